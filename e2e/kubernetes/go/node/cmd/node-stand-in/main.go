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
	var options options
	flag.StringVar(&options.kubelet, "kubelet", ":10250", "address of the kubelet's API (TLS)")
	flag.StringVar(&options.http, "http", ":8080", "address of the HTTP service")
	flag.StringVar(&options.https, "https", ":8443", "address of the HTTPS service")
	flag.StringVar(&options.webhook, "webhook", ":9443", "address of the admission webhook (TLS)")
	flag.StringVar(&options.aggregated, "aggregated", ":9444", "address of the aggregated API (TLS)")
	flag.StringVar(&options.banner, "banner", ":9001", "address of the target that speaks first")
	flag.StringVar(&options.cert, "cert", "", "serving certificate of every TLS port")
	flag.StringVar(&options.key, "key", "", "its key")
	flag.StringVar(&options.clientCA, "client-ca", "", "CA of those who may use the kubelet's API")
	flag.StringVar(&options.requestheaderCA, "requestheader-ca", "", "CA of the front proxy, for the aggregated API")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	failed := make(chan error, 1)
	if err := serve(options, failed); err != nil {
		log.Fatal(err)
	}
	fmt.Println(`{"ready":true}`)
	select {
	case <-ctx.Done():
	case err := <-failed:
		log.Fatal(err)
	}
}
