// node-stand-in is a node without Kubernetes: it serves, inside its network, all that a kube-apiserver reaches there.
// It registers nothing; the objects that point here (Node, Pod, Service, webhook, APIService) are the test's.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os/signal"
	"syscall"
)

func main() {
	var files files
	flag.StringVar(&files.cert, "cert", "", "serving certificate of every TLS port")
	flag.StringVar(&files.key, "key", "", "its key")
	flag.StringVar(&files.clientCA, "client-ca", "", "CA of those who may use the kubelet's API")
	flag.StringVar(&files.requestheaderCA, "requestheader-ca", "", "CA of the front proxy, for the aggregated API")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	failed := make(chan error, 1)
	if err := serve(files, failed); err != nil {
		log.Fatal(err)
	}
	fmt.Println(`{"ready":true}`)
	select {
	case <-ctx.Done():
	case err := <-failed:
		log.Fatal(err)
	}
}
