// Package kubelet serves what kube-apiserver asks of a kubelet, on the streaming code that real container runtimes use.
//
// No pod is known here: any namespace, pod and container name is served, and the container's name chooses what its log
// says.
package kubelet

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// A real kubelet's: no test is silent for that long.
const idleTimeout = 4 * time.Hour

// Kubelet is the kubelet's API.
type Kubelet struct {
	metrics func(io.Writer)
}

// New makes a kubelet whose /metrics are written by the function given.
func New(metrics func(io.Writer)) *Kubelet {
	return &Kubelet{metrics: metrics}
}

// Handler routes as the kubelet does; exec, attach and port-forward arrive as POST (SPDY) or GET (WebSocket).
func (k *Kubelet) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", serveHealth)
	mux.HandleFunc("GET /metrics", k.serveMetrics)
	mux.HandleFunc("GET /pods", servePods)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", serveLogs)
	for _, path := range []string{"/{namespace}/{pod}/{container}", "/{namespace}/{pod}/{uid}/{container}"} {
		mux.HandleFunc("/exec"+path, k.serveExec)
		mux.HandleFunc("/attach"+path, k.serveAttach)
	}
	mux.HandleFunc("/portForward/{namespace}/{pod}", k.servePortForward)
	mux.HandleFunc("/portForward/{namespace}/{pod}/{uid}", k.servePortForward)
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

func serveHealth(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprint(w, "ok")
}

func (k *Kubelet) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	k.metrics(w)
}

func servePods(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}`)
}

func (k *Kubelet) serveExec(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(w, r, k, r.PathValue("pod"), r.PathValue("uid"), r.PathValue("container"), r.Form["command"],
		options, idleTimeout, remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
}

func (k *Kubelet) serveAttach(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeAttach(w, r, k, r.PathValue("pod"), r.PathValue("uid"), r.PathValue("container"),
		options, idleTimeout, remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
}

func (k *Kubelet) servePortForward(w http.ResponseWriter, r *http.Request) {
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, r, k, r.PathValue("pod"), r.PathValue("uid"),
		options, idleTimeout, remotecommand.DefaultStreamCreationTimeout, portforward.SupportedProtocols)
}
