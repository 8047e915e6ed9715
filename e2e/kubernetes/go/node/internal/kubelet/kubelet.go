// Package kubelet serves what kube-apiserver asks of a kubelet, on the streaming code that real kubelets and container
// runtimes use.
//
// No pod is known here: any namespace, pod and container name is served, and the container's name chooses what its log
// says.
package kubelet

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
)

// Kubelet is the kubelet's API.
type Kubelet struct {
	// Address of the container runtime's streaming server.
	runtime string
	metrics func(io.Writer)
	// By verb and protocol.
	streamed map[streaming]*atomic.Int64
}

// New makes a kubelet, and the container runtime that it leads to; what `metrics` writes is a part of /metrics.
func New(metrics func(io.Writer)) (*Kubelet, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() { _ = http.Serve(listener, runtimeHandler()) }()
	return &Kubelet{runtime: listener.Addr().String(), metrics: metrics, streamed: newStreamed()}, nil
}

// Handler routes as the kubelet does; exec, attach and port-forward arrive as POST (SPDY) or GET (WebSocket).
func (k *Kubelet) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", k.serveMetrics)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", serveLogs)
	mux.HandleFunc("/exec/", k.stream(execVerb))
	mux.HandleFunc("/attach/", k.stream(attachVerb))
	mux.HandleFunc("/portForward/", k.stream(portForwardVerb))
	return onlyWithCertificate(mux)
}

// onlyWithCertificate answers strangers in HTTP, as a kubelet does: the TLS layer has verified a certificate only if one
// was given.
func onlyWithCertificate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (k *Kubelet) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	k.metrics(w)
	fmt.Fprintln(w, "# TYPE node_stand_in_streaming_requests_total counter")
	for request, count := range k.streamed {
		fmt.Fprintf(w, "node_stand_in_streaming_requests_total{verb=%q,protocol=%q} %d\n",
			request.verb, request.protocol, count.Load())
	}
}
