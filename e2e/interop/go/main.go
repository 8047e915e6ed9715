// The peer of e2e/interop: hashicorp/yamux over a pipe, TCP or WebSocket, driven by the streams that the other end opens.
//
// The first line of a stream says what to do with it:
//
//	echo            every byte back, then the end
//	sink            read to the end, answer "<bytes> <sha256>"
//	slow            the same, 64 KiB every millisecond
//	source N        N bytes and the 64 hex digits of their sha256, then the end
//	linger          end our side at once; resets the stream after -close-timeout
//	hold NAME       read until the stream fails; "result NAME" says how
//	result NAME     what "hold NAME" saw
//	open N SIZE     open N streams at once, send SIZE bytes on each, compare the echo; answer "ok" or what was wrong
//	streams         how many are open
//	ping | goaway | close   of the session
package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/hashicorp/yamux"
)

type peer struct {
	session *yamux.Session
	mu      sync.Mutex
	results map[string]chan string
}

var closeTimeout time.Duration

func main() {
	log.SetOutput(os.Stderr)
	mode := flag.String("mode", "listen", "stdio: one session on stdin and stdout; listen: print addresses; dial: one session on a WebSocket")
	role := flag.String("role", "server", "of the session: client or server")
	url := flag.String("url", "", "where to dial")
	flag.DurationVar(&closeTimeout, "close-timeout", 5*time.Minute, "a stream that only we have ended is reset after this")
	flag.Parse()
	switch *mode {
	case "stdio":
		run(stdio{}, *role)
	case "dial":
		conn, _, err := websocket.Dial(context.Background(), *url, nil)
		check(err)
		run(overWebSocket(conn), *role)
	case "listen":
		fmt.Println(listenTCP("server"), listenTCP("client"), listenWebSocket())
		io.Copy(io.Discard, os.Stdin)
	}
}

type stdio struct{}

func (stdio) Read(into []byte) (int, error)   { return os.Stdin.Read(into) }
func (stdio) Write(bytes []byte) (int, error) { return os.Stdout.Write(bytes) }
func (stdio) Close() error                    { os.Stdout.Close(); return os.Stdin.Close() }
func (stdio) RemoteAddr() net.Addr            { return &net.UnixAddr{Name: "stdio"} }
func (stdio) LocalAddr() net.Addr             { return &net.UnixAddr{Name: "stdio"} }

func listenTCP(role string) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go run(conn, role)
		}
	}()
	return listener.Addr().String()
}

func listenWebSocket() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	go http.Serve(listener, http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		conn, err := websocket.Accept(response, request, nil)
		if err == nil {
			run(overWebSocket(conn), strings.TrimPrefix(request.URL.Path, "/"))
		}
	}))
	return listener.Addr().String()
}

func overWebSocket(conn *websocket.Conn) net.Conn {
	conn.SetReadLimit(-1)
	return websocket.NetConn(context.Background(), conn, websocket.MessageBinary)
}

// run holds one session until it ends.
func run(conn io.ReadWriteCloser, role string) {
	config := yamux.DefaultConfig()
	config.EnableKeepAlive = false
	config.ConnectionWriteTimeout = 30 * time.Second
	config.StreamOpenTimeout = 10 * time.Second
	config.StreamCloseTimeout = closeTimeout
	var session *yamux.Session
	var err error
	if role == "client" {
		session, err = yamux.Client(conn, config)
	} else {
		session, err = yamux.Server(conn, config)
	}
	check(err)
	p := &peer{session: session, results: map[string]chan string{}}
	for {
		stream, err := session.AcceptStream()
		if err != nil {
			return
		}
		go p.serve(stream)
	}
}

func (p *peer) serve(stream *yamux.Stream) {
	in := bufio.NewReaderSize(stream, 64*1024)
	line, err := in.ReadString('\n')
	if err != nil {
		stream.Close()
		return
	}
	words := strings.Fields(line)
	number := func(at int) int {
		value, err := strconv.Atoi(words[at])
		check(err)
		return value
	}
	switch words[0] {
	case "echo":
		io.Copy(stream, in)
	case "sink":
		fmt.Fprint(stream, digest(in, 0))
	case "slow":
		fmt.Fprint(stream, digest(in, time.Millisecond))
	case "source":
		source(stream, number(1))
	case "hold":
		_, err := io.Copy(io.Discard, in)
		p.result(words[1]) <- fmt.Sprint(err)
	case "result":
		select {
		case text := <-p.result(words[1]):
			fmt.Fprint(stream, text)
		case <-time.After(5 * time.Second):
			fmt.Fprint(stream, "nothing within 5 s")
		}
	case "open":
		fmt.Fprint(stream, p.open(number(1), number(2)))
	case "streams":
		fmt.Fprint(stream, p.session.NumStreams())
	case "ping":
		took, err := p.session.Ping()
		fmt.Fprint(stream, took > 0, err)
	case "goaway":
		fmt.Fprint(stream, p.session.GoAway())
	case "close":
		p.session.Close()
	}
	stream.Close()
}

func (p *peer) result(name string) chan string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.results[name] == nil {
		p.results[name] = make(chan string, 1)
	}
	return p.results[name]
}

// open is this end as the one that opens: count streams at once, each echoed by the other end.
func (p *peer) open(count, size int) string {
	failures := make(chan string, count)
	for i := 0; i < count; i++ {
		go func(seed int) { failures <- p.echoed(seed, size) }(i)
	}
	for i := 0; i < count; i++ {
		if failure := <-failures; failure != "" {
			return failure
		}
	}
	return "ok"
}

func (p *peer) echoed(seed, size int) string {
	stream, err := p.session.OpenStream()
	if err != nil {
		return err.Error()
	}
	sent := make([]byte, size)
	rand.New(rand.NewSource(int64(seed))).Read(sent)
	go func() {
		stream.Write(sent)
		stream.Close()
	}()
	received, err := io.ReadAll(stream)
	if err != nil {
		return fmt.Sprintf("stream %d: %v after %d bytes", stream.StreamID(), err, len(received))
	}
	if string(received) != string(sent) {
		return fmt.Sprintf("stream %d: %d bytes came back different from the %d sent", stream.StreamID(), len(received), len(sent))
	}
	return ""
}

func digest(in io.Reader, pause time.Duration) string {
	hash := sha256.New()
	total := 0
	buffer := make([]byte, 64*1024)
	for {
		n, err := in.Read(buffer)
		hash.Write(buffer[:n])
		total += n
		if err == io.EOF {
			return fmt.Sprintf("%d %s", total, hex.EncodeToString(hash.Sum(nil)))
		}
		if err != nil {
			return err.Error()
		}
		if pause > 0 {
			time.Sleep(pause)
		}
	}
}

func source(out io.Writer, size int) {
	hash := sha256.New()
	random := rand.New(rand.NewSource(int64(size)))
	buffer := make([]byte, 100_000)
	for left := size; left > 0; {
		chunk := buffer[:min(left, len(buffer))]
		random.Read(chunk)
		hash.Write(chunk)
		if _, err := out.Write(chunk); err != nil {
			return
		}
		left -= len(chunk)
	}
	fmt.Fprint(out, hex.EncodeToString(hash.Sum(nil)))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
