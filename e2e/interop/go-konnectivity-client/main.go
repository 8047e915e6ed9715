// A caller by Konnectivity's gRPC protocol: konnectivity-client, the library that kube-apiserver dials with.
//
//	go-konnectivity-client -target unix:/path COMMAND ADDRESS [NUMBER]
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"
)

var (
	target = flag.String("target", "", "what is dialled, as gRPC writes targets")
	ca     = flag.String("ca", "", "CA of the server (PEM); without it there is no TLS")
	cert   = flag.String("cert", "", "own certificate (PEM)")
	key    = flag.String("key", "", "its key (PEM)")
	shared = flag.Bool("shared", false, "all dials share one connection, as of konnectivity-client 0.37")
)

var commands = map[string]func(address string, number int){
	"echo":     echo,
	"parallel": parallel,
	"read":     read,
	"unread":   unread,
	"first":    first,
	"close":    closeAfter,
	"hold":     hold,
}

// Prints one line, which begins with ok or with the error of the dial.
func main() {
	flag.Parse()
	number, _ := strconv.Atoi(flag.Arg(2))
	commands[flag.Arg(0)](flag.Arg(1), number)
}

func transport() grpc.DialOption {
	if *ca == "" {
		return grpc.WithTransportCredentials(insecure.NewCredentials())
	}
	pem, err := os.ReadFile(*ca)
	if err != nil {
		log.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	pair, err := tls.LoadX509KeyPair(*cert, *key)
	if err != nil {
		log.Fatal(err)
	}
	return grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		RootCAs: pool, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12,
	}))
}

var reusable = sync.OnceValue(func() client.Tunnel {
	tunnel, err := client.CreateGRPCTunnel(context.Background(), *target, transport())
	if err != nil {
		log.Fatal(err)
	}
	return tunnel
})

// As kube-apiserver does: a connection for each dial, unless they share one.
func dial(ctx context.Context, address string) (net.Conn, error) {
	if *shared {
		return reusable().DialContext(ctx, "tcp", address)
	}
	tunnel, err := client.CreateSingleUseGrpcTunnelWithContext(ctx, context.Background(), *target, transport())
	if err != nil {
		return nil, err
	}
	return tunnel.DialContext(ctx, "tcp", address)
}

func mustDial(address string) net.Conn {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, err := dial(ctx, address)
	if err != nil {
		_, reason := client.GetDialFailureReason(err)
		fmt.Printf("%s: %v\n", reason, err)
		os.Exit(0)
	}
	return conn
}

// Sends so many bytes, and expects them back.
func echoed(conn net.Conn, number int) error {
	sent := make([]byte, number)
	_, _ = rand.Read(sent)
	go func() {
		for at := 0; at < number; at += 32 << 10 {
			if _, err := conn.Write(sent[at:min(at+32<<10, number)]); err != nil {
				log.Fatal(err)
			}
		}
	}()
	got := make([]byte, number)
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if !bytes.Equal(sent, got) {
		return errors.New("other bytes came back")
	}
	return conn.Close()
}

func echo(address string, number int) {
	if err := echoed(mustDial(address), number); err != nil {
		log.Fatal(err)
	}
	fmt.Println("ok")
}

func parallel(address string, number int) {
	var all sync.WaitGroup
	for range number {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			conn, err := dial(ctx, address)
			if err == nil {
				err = echoed(conn, 10_000)
			}
			if err != nil {
				log.Fatal(err)
			}
		})
	}
	all.Wait()
	fmt.Println("ok")
}

// Reads to the end.
func read(address string, _ int) {
	got, err := io.ReadAll(mustDial(address))
	fmt.Println("ok", len(got), err)
}

// Reads nothing for so many seconds, and then to the end. Whether the connection could half-close.
func unread(address string, number int) {
	conn := mustDial(address)
	time.Sleep(time.Duration(number) * time.Second)
	got, err := io.ReadAll(conn)
	_, halfCloses := conn.(interface{ CloseWrite() error })
	fmt.Println("ok", len(got), err, halfCloses)
}

// Dials 200 times, 20 at once, and reads so many bytes each time.
func first(address string, number int) {
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range 10 {
				conn := mustDial(address)
				if _, err := io.ReadFull(conn, make([]byte, number)); err != nil {
					log.Fatal(err)
				}
				_ = conn.Close()
			}
		})
	}
	all.Wait()
	fmt.Println("ok")
}

// Sends one line, and closes while the target may go on.
func closeAfter(address string, _ int) {
	conn := mustDial(address)
	if _, err := conn.Write([]byte("one line\n")); err != nil {
		log.Fatal(err)
	}
	begun := time.Now()
	err := conn.Close()
	fmt.Println("ok", time.Since(begun) < 5*time.Second, err)
}

// Holds the connection until stdin ends.
func hold(address string, _ int) {
	conn := mustDial(address)
	fmt.Println("ok")
	_, _ = os.Stdin.Read(make([]byte, 1))
	_ = conn.Close()
}
