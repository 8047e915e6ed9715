// Package listen opens the stand-in's ports and counts what is open on each, so that a test can ask whether anything was
// left behind.
package listen

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// Ports are the listeners of one process, by name.
type Ports struct {
	listeners []*listener
}

type listener struct {
	net.Listener
	name string
	open atomic.Int64
}

// Open listens on an address. An address without a host takes IPv4 and IPv6.
func (p *Ports) Open(name, address string) (net.Listener, error) {
	inner, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	l := &listener{Listener: inner, name: name}
	p.listeners = append(p.listeners, l)
	return l, nil
}

// WriteMetrics writes the counts in Prometheus' text format.
func (p *Ports) WriteMetrics(w io.Writer) {
	fmt.Fprintln(w, "# TYPE node_stand_in_open_connections gauge")
	for _, l := range p.listeners {
		fmt.Fprintf(w, "node_stand_in_open_connections{port=%q} %d\n", l.name, l.open.Load())
	}
}

func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.open.Add(1)
	return &countedConn{TCPConn: conn.(*net.TCPConn), listener: l}, nil
}

// countedConn stays a *net.TCPConn to its user: half-close and sendfile work as without it.
type countedConn struct {
	*net.TCPConn
	listener *listener
	once     sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.listener.open.Add(-1) })
	return c.TCPConn.Close()
}
