// Connects as kube-apiserver does through its egress selector: for each request a connection of its own (unix socket,
// or TCP with a full TLS handshake and a client certificate), CONNECT with "Host: 127.0.0.1", and then the 200 alone.
// Reads one job as JSON on stdin and writes its times as JSON on stdout.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
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
	Count, InFlight int
}

type result struct {
	Seconds      float64   `json:"seconds"`
	Ms           []float64 `json:"ms"`
	Failures     int       `json:"failures"`
	FirstFailure string    `json:"firstFailure"`
}

func main() {
	var asked job
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		log.Fatal(err)
	}
	config, err := asked.tlsConfig()
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(asked.run(config)); err != nil {
		log.Fatal(err)
	}
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

// Dials count times, inFlight at once.
func (j *job) run(config *tls.Config) result {
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
				err := j.dial(config)
				took := time.Since(dialled)
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

// One connection, up to the 200, and its end.
func (j *job) dial(config *tls.Config) error {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	conn, err := j.connection(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close()
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
