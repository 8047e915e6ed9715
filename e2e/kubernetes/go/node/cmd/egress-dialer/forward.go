package main

import (
	"io"
	"log"
	"net"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// forward dials once for each connection that comes to the address, and never returns.
func forward(address string, dial utilnet.DialFunc, target string) {
	listener, err := net.Listen("tcp", address)
	check(err)
	log.Printf("forwarding %s to %s", listener.Addr(), target)
	for {
		near, err := listener.Accept()
		check(err)
		go join(near, dial, target)
	}
}

// join ends when either side does: konnectivity-client has no half-close.
func join(near net.Conn, dial utilnet.DialFunc, target string) {
	defer near.Close()
	far, err := dialOnce(dial, target)
	if err != nil {
		log.Print(err)
		return
	}
	defer far.Close()
	ended := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		go func() {
			io.Copy(way[0], way[1])
			ended <- struct{}{}
		}()
	}
	<-ended
}
