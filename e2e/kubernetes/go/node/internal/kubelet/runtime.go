package kubelet

import (
	"net/http"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// A real kubelet's: no test is silent for that long.
const idleTimeout = 4 * time.Hour

// containerRuntime is what a kubelet leads exec, attach and port-forward to.
type containerRuntime struct{}

func runtimeHandler() http.Handler {
	var runtime containerRuntime
	mux := http.NewServeMux()
	for _, path := range []string{"/{namespace}/{pod}/{container}", "/{namespace}/{pod}/{uid}/{container}"} {
		mux.HandleFunc("/exec"+path, runtime.serveExec)
		mux.HandleFunc("/attach"+path, runtime.serveAttach)
	}
	mux.HandleFunc("/portForward/{namespace}/{pod}", runtime.servePortForward)
	mux.HandleFunc("/portForward/{namespace}/{pod}/{uid}", runtime.servePortForward)
	return mux
}

func (c containerRuntime) serveExec(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(w, r, c, r.PathValue("pod"), r.PathValue("uid"), r.PathValue("container"), r.Form["command"],
		options, idleTimeout, remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
}

func (c containerRuntime) serveAttach(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeAttach(w, r, c, r.PathValue("pod"), r.PathValue("uid"), r.PathValue("container"),
		options, idleTimeout, remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
}

func (c containerRuntime) servePortForward(w http.ResponseWriter, r *http.Request) {
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, r, c, r.PathValue("pod"), r.PathValue("uid"),
		options, idleTimeout, remotecommand.DefaultStreamCreationTimeout, portforward.SupportedProtocols)
}
