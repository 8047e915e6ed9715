// egress-dialer is kube-apiserver's own dialer without the kube-apiserver: it dials a target through the egress selector
// that a configuration file describes, many times, and prints one JSON line about it. Or it forwards a port.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/server/egressselector"
)

func main() {
	config := flag.String("config", "", "EgressSelectorConfiguration, as kube-apiserver reads it")
	direct := flag.Bool("direct", false, "dial without it")
	overTLS := flag.String("grpc-over-tls", "", "host:port of a server to dial without it, with --ca, --cert and --key")
	ca := flag.String("ca", "", "CA of that server")
	cert := flag.String("cert", "", "certificate for that server")
	key := flag.String("key", "", "its key")
	target := flag.String("target", "", "host:port to dial")
	count := flag.Int("count", 1, "dials in all")
	inFlight := flag.Int("in-flight", 1, "dials at a time")
	banner := flag.Bool("banner", false, "the target speaks first: expect a line of SSH")
	hold := flag.Bool("hold", false, "keep the connections open until killed")
	listen := flag.String("listen", "", "host:port whose connections are forwarded to the target until killed")
	download := flag.Int64("download", 0, "dial once and read /bytes/N of the HTTP server there")
	flag.Parse()

	var dial utilnet.DialFunc
	var err error
	if *overTLS != "" {
		dial, err = grpcOverTLS(*overTLS, *ca, *cert, *key)
	} else {
		dial, err = dialer(*config, *direct)
	}
	check(err)
	d := dials{dial: dial, target: *target, count: *count, inFlight: *inFlight, banner: *banner}
	switch {
	case *listen != "":
		forward(*listen, dial, *target)
	case *download > 0:
		result, err := fetch(dial, *target, *download)
		check(err)
		printLine(result)
	case *hold:
		held, result := d.keep()
		printLine(heldResult{len(held), result.Failures, result.FirstFailure})
		waitForSignal()
		// A connection without a reference would have been closed by the garbage collector.
		runtime.KeepAlive(held)
	default:
		printLine(d.run())
	}
}

func dialer(file string, direct bool) (utilnet.DialFunc, error) {
	if direct {
		return (&net.Dialer{}).DialContext, nil
	}
	config, err := egressselector.ReadEgressSelectorConfiguration(file)
	if err != nil {
		return nil, err
	}
	if wrong := egressselector.ValidateEgressSelectorConfiguration(config); len(wrong) > 0 {
		return nil, wrong.ToAggregate()
	}
	selector, err := egressselector.NewEgressSelector(config)
	if err != nil {
		return nil, err
	}
	if selector == nil {
		return nil, fmt.Errorf("%q selects nothing", file)
	}
	dial, err := selector.Lookup(egressselector.Cluster.AsNetworkContext())
	if err == nil && dial == nil {
		err = fmt.Errorf("%q has no selection named cluster", file)
	}
	return dial, err
}

func waitForSignal() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	<-signals
}

func dialOnce(dial utilnet.DialFunc, target string) (net.Conn, error) {
	return dial(context.Background(), "tcp", target)
}

func printLine(value any) {
	check(json.NewEncoder(os.Stdout).Encode(value))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
