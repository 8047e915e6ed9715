// A server of gRPC over mutual TLS or none, as Konnectivity's is to whoever looks from outside; and a client that asks a server
// for its health through a proxy.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"time"

	"golang.org/x/net/proxy"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

func main() {
	mode := flag.String("mode", "", "server, or check: the server's health, by HTTPS_PROXY or -socks")
	socks := flag.String("socks", "", "SOCKS5 proxy of check, which x/net/proxy dials")
	target := flag.String("target", "", "what check dials, as gRPC writes targets")
	ca := flag.String("ca", "", "CA of the other end (PEM); without it the server speaks without TLS")
	cert := flag.String("cert", "", "own certificate (PEM)")
	key := flag.String("key", "", "its key (PEM)")
	flag.Parse()
	switch *mode {
	case "server":
		server(transport(*ca, *cert, *key))
	case "check":
		check(*target, *socks)
	default:
		log.Fatal("-mode server or check")
	}
}

func transport(ca, cert, key string) credentials.TransportCredentials {
	if ca == "" {
		return insecure.NewCredentials()
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		log.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		log.Fatal(err)
	}
	return credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair},
		ClientCAs:    pool,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		MinVersion:   tls.VersionTLS12,
	})
}

// Prints the health of a server without TLS.
func check(target string, socks string) {
	options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if socks != "" {
		dialer, err := proxy.SOCKS5("tcp", socks, nil, proxy.Direct)
		if err != nil {
			log.Fatal(err)
		}
		options = append(options, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.(proxy.ContextDialer).DialContext(ctx, "tcp", address)
		}))
		target = "passthrough:///" + target
	}
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	answer, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Status)
}

// Prints the port, and serves until stdin ends.
func server(creds credentials.TransportCredentials) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		server := grpc.NewServer(grpc.Creds(creds))
		grpc_health_v1.RegisterHealthServer(server, health.NewServer())
		if err := server.Serve(listener); err != nil {
			log.Fatal(err)
		}
	}()
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	_, _ = os.Stdin.Read(make([]byte, 1))
}
