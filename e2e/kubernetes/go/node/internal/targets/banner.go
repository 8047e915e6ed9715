package targets

import (
	"io"
	"net"
)

const banner = "SSH-2.0-stand-in\r\n"

// ServeBanner greets each connection at once, as SSH and SMTP servers do, and then echoes: the target that speaks first.
func ServeBanner(listener net.Listener) error {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go greet(conn)
	}
}

func greet(conn net.Conn) {
	defer conn.Close()
	if _, err := io.WriteString(conn, banner); err != nil {
		return
	}
	_, _ = io.Copy(conn, conn)
}
