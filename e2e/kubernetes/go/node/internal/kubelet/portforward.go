package kubelet

import (
	"context"
	"io"
	"net"
	"strconv"
)

// PortForward joins a stream to a port of this network namespace: all pods share the node's address here. It lasts until
// the target has ended; a caller who ends first is passed on as half-close.
func (containerRuntime) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return err
	}
	defer conn.Close()
	go func() {
		_, _ = io.Copy(conn, stream)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(stream, conn)
	return err
}
