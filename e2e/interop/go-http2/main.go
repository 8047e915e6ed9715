// A caller over HTTP/2 (CONNECT, RFC 9113 §8.5) by golang.org/x/net/http2, with all its CONNECTs on one connection:
//
//	echo TARGET COUNT BYTES    as many CONNECTs at once; each sends bytes, ends its side and compares what comes back
//	refused TARGET             prints status, Proxy-Status and body
//	hold TARGET COUNT NOBODY   opens some, and as many more to a target that never answers; prints "held" and stays
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/net/http2"
)

func main() {
	path := flag.String("path", "", "unix socket of the server")
	address := flag.String("address", "", "or its address, with -ca, -cert and -key")
	ca := flag.String("ca", "", "CA of the server (PEM)")
	cert := flag.String("cert", "", "own certificate (PEM)")
	key := flag.String("key", "", "its key (PEM)")
	flag.Parse()
	caller := &caller{}
	caller.transport = &http2.Transport{
		DialTLSContext: func(ctx context.Context, _, _ string, _ *tls.Config) (net.Conn, error) {
			caller.connections.Add(1)
			if *path != "" {
				return new(net.Dialer).DialContext(ctx, "unix", *path)
			}
			return (&tls.Dialer{Config: configOf(*ca, *cert, *key)}).DialContext(ctx, "tcp", *address)
		},
	}
	switch target := flag.Arg(1); flag.Arg(0) {
	case "echo":
		caller.echo(target, number(2), number(3))
	case "refused":
		answer, _ := caller.connect(target)
		body, err := io.ReadAll(answer.Body)
		check(err)
		fmt.Println(answer.StatusCode, answer.Header.Get("Proxy-Status"))
		fmt.Print(string(body))
	case "hold":
		caller.hold(target, number(2), flag.Arg(3))
	default:
		log.Fatal("echo, refused or hold")
	}
}

type caller struct {
	transport   *http2.Transport
	connections atomic.Int64
}

func (c *caller) connect(target string) (*http.Response, io.WriteCloser) {
	up, feed := io.Pipe()
	answer, err := c.transport.RoundTrip(&http.Request{
		Method: http.MethodConnect,
		Host:   target,
		URL:    &url.URL{Scheme: "https", Host: target},
		Header: http.Header{},
		Body:   up,
	})
	check(err)
	return answer, feed
}

func (c *caller) echo(target string, count, length int) {
	var all sync.WaitGroup
	for range count {
		all.Add(1)
		go func() {
			defer all.Done()
			answer, feed := c.connect(target)
			if answer.StatusCode != http.StatusOK {
				log.Fatal("the answer is ", answer.Status)
			}
			sent, came := make([]byte, length), sha256.New()
			rand.Read(sent)
			go func() {
				_, err := feed.Write(sent)
				check(err)
				check(feed.Close())
			}()
			_, err := io.Copy(came, answer.Body)
			check(err)
			if want := sha256.Sum256(sent); !bytes.Equal(want[:], came.Sum(nil)) {
				log.Fatal("other bytes came back than were sent")
			}
		}()
	}
	all.Wait()
	fmt.Println(count, "whole on", c.connections.Load(), "connection")
}

func (c *caller) hold(target string, count int, nobody string) {
	var all sync.WaitGroup
	for range count {
		all.Add(1)
		go func() {
			defer all.Done()
			c.connect(target)
		}()
		go c.connect(nobody)
	}
	all.Wait()
	fmt.Println("held")
	select {}
}

// Agrees on h2, as x/net/http2 requires.
func configOf(ca, cert, key string) *tls.Config {
	pem, err := os.ReadFile(ca)
	check(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	pair, err := tls.LoadX509KeyPair(cert, key)
	check(err)
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, NextProtos: []string{"h2"}}
}

func number(argument int) int {
	value, err := strconv.Atoi(flag.Arg(argument))
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
