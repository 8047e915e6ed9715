// Dials and moves bytes as callers do. http1: as kube-apiserver through its egress selector, a connection for each dial
// (unix socket, or TCP with a full TLS handshake and a client certificate), CONNECT with "Host: 127.0.0.1", and then the
// 200 alone. grpc: with konnectivity-client, a gRPC connection for each dial. h2: CONNECT (RFC 9113 §8.5) on one
// connection. Reads one job as JSON on stdin and writes its figures as JSON on stdout.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"
)

// No dial may hold up the run for longer.
const dialTimeout = 15 * time.Second

type job struct {
	Dial struct {
		Path    string
		Port    int
		TLS     *struct{ CA, Cert, Key string }
		Connect string
	}
	// http1, grpc or h2
	Protocol string
	// dials, down or up
	What            string
	Count, InFlight int
	Seconds         float64
}

type result struct {
	Seconds      float64   `json:"seconds"`
	Ms           []float64 `json:"ms"`
	Bytes        int64     `json:"bytes"`
	Failures     int       `json:"failures"`
	FirstFailure string    `json:"firstFailure"`
}

// Opens a connection to the target.
type dialer func(ctx context.Context) (io.ReadWriteCloser, error)

func main() {
	var asked job
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		log.Fatal(err)
	}
	found, err := asked.run()
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		log.Fatal(err)
	}
}

func (j *job) run() (result, error) {
	config, err := j.tlsConfig()
	if err != nil {
		return result{}, err
	}
	dial := j.http1Dialer(config)
	if j.Protocol == "grpc" {
		dial = j.grpcDialer(config)
	} else if j.Protocol == "h2" {
		dial = j.http2Dialer(config)
	}
	if j.What == "dials" {
		return j.dials(dial), nil
	}
	return j.bulk(dial)
}

// Dials Count times, InFlight at once.
func (j *job) dials(dial dialer) result {
	tickets := make(chan struct{}, j.Count)
	for range j.Count {
		tickets <- struct{}{}
	}
	close(tickets)
	var lock sync.Mutex
	var all sync.WaitGroup
	found := result{Ms: make([]float64, 0, j.Count)}
	begun := time.Now()
	for range j.InFlight {
		all.Add(1)
		go func() {
			defer all.Done()
			for range tickets {
				dialled := time.Now()
				ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
				conn, err := dial(ctx)
				took := time.Since(dialled)
				if err == nil {
					err = conn.Close()
				}
				cancel()
				lock.Lock()
				if err == nil {
					found.Ms = append(found.Ms, float64(took.Nanoseconds())/1e6)
				} else {
					if found.Failures == 0 {
						found.FirstFailure = err.Error()
					}
					found.Failures++
				}
				lock.Unlock()
			}
		}()
	}
	all.Wait()
	found.Seconds = time.Since(begun).Seconds()
	return found
}

// Moves bytes on one connection for Seconds, after a fifth of that time to get going.
func (j *job) bulk(dial dialer) (result, error) {
	conn, err := dial(context.Background())
	if err != nil {
		return result{}, err
	}
	if _, err := conn.Write([]byte("go")); err != nil { // the source waits for it
		return result{}, err
	}
	chunk := make([]byte, 64*1024)
	move := func() (int, error) { return conn.Write(chunk) }
	if j.What == "down" {
		move = func() (int, error) { return conn.Read(chunk) }
	}
	length := time.Duration(j.Seconds * float64(time.Second))
	var begun time.Time
	var bytes int64
	for started := time.Now(); ; {
		n, err := move()
		if err != nil {
			return result{}, err
		}
		if begun.IsZero() {
			if time.Since(started) > length/5 {
				begun = time.Now()
			}
			continue
		}
		bytes += int64(n)
		if took := time.Since(begun); took > length {
			return result{Bytes: bytes, Seconds: took.Seconds()}, nil
		}
	}
}

// A connection for each dial, up to the 200.
func (j *job) http1Dialer(config *tls.Config) dialer {
	return func(ctx context.Context) (io.ReadWriteCloser, error) {
		conn, err := j.connection(ctx, config)
		if err != nil {
			return nil, err
		}
		if err := j.ask(conn); err != nil {
			conn.Close()
			return nil, err
		}
		return conn, nil
	}
}

func (j *job) ask(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", j.Dial.Connect); err != nil {
		return err
	}
	reader := bufio.NewReader(conn)
	answer, err := http.ReadResponse(reader, nil)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the answer is %s", answer.Status)
	}
	if reader.Buffered() > 0 {
		return errors.New("there are bytes behind the 200")
	}
	return nil
}

// To the unix socket, or over TCP with or without TLS.
func (j *job) connection(ctx context.Context, config *tls.Config) (net.Conn, error) {
	if j.Dial.Path != "" {
		return new(net.Dialer).DialContext(ctx, "unix", j.Dial.Path)
	}
	address := fmt.Sprintf("127.0.0.1:%d", j.Dial.Port)
	if config == nil {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}
	return (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
}

// A gRPC connection for each dial.
func (j *job) grpcDialer(config *tls.Config) dialer {
	security := insecure.NewCredentials()
	if config != nil {
		security = credentials.NewTLS(config)
	}
	address := fmt.Sprintf("127.0.0.1:%d", j.Dial.Port)
	options := []grpc.DialOption{grpc.WithTransportCredentials(security)}
	if j.Dial.Path != "" {
		address = "passthrough:///unix"
		options = append(options, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return j.connection(ctx, nil)
		}))
	}
	return func(ctx context.Context) (io.ReadWriteCloser, error) {
		tunnel, err := client.CreateSingleUseGrpcTunnelWithContext(ctx, context.Background(), address, options...)
		if err != nil {
			return nil, err
		}
		return tunnel.DialContext(ctx, "tcp", j.Dial.Connect)
	}
}

// One connection for all; the transport opens another one when the server says GOAWAY.
func (j *job) http2Dialer(config *tls.Config) dialer {
	transport := &http2.Transport{
		DialTLSContext: func(ctx context.Context, _, _ string, _ *tls.Config) (net.Conn, error) {
			if config == nil {
				return j.connection(ctx, nil)
			}
			config := config.Clone()
			config.NextProtos = []string{"h2"}
			return j.connection(ctx, config)
		},
	}
	return func(ctx context.Context) (io.ReadWriteCloser, error) {
		up, feed := io.Pipe()
		request := &http.Request{
			Method: http.MethodConnect,
			Host:   j.Dial.Connect,
			URL:    &url.URL{Scheme: "https", Host: j.Dial.Connect},
			Header: http.Header{},
			Body:   up,
		}
		answer, err := transport.RoundTrip(request)
		if err != nil {
			return nil, err
		}
		if answer.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("the answer is %s", answer.Status)
		}
		return &stream{answer.Body, feed}, nil
	}
}

// The two sides of a CONNECT.
type stream struct {
	down io.ReadCloser
	up   *io.PipeWriter
}

func (s *stream) Read(b []byte) (int, error)  { return s.down.Read(b) }
func (s *stream) Write(b []byte) (int, error) { return s.up.Write(b) }

// Ends both sides. Closing at once would reset the stream.
func (s *stream) Close() error {
	err := s.up.Close()
	_, drained := io.Copy(io.Discard, s.down)
	return errors.Join(err, drained, s.down.Close())
}

// Full handshakes only: like the egress selector's, the configuration has no cache of sessions.
func (j *job) tlsConfig() (*tls.Config, error) {
	if j.Dial.TLS == nil {
		return nil, nil
	}
	pair, err := tls.X509KeyPair([]byte(j.Dial.TLS.Cert), []byte(j.Dial.TLS.Key))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(j.Dial.TLS.CA)) {
		return nil, errors.New("no certificate in the CA")
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, MinVersion: tls.VersionTLS13}, nil
}
