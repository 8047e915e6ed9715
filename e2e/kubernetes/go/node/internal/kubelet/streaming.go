package kubelet

import (
	"net/http"
	"net/url"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/util/httpstream/wsstream"
	"k8s.io/apimachinery/pkg/util/proxy"
	translator "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

const (
	execVerb        = "exec"
	attachVerb      = "attach"
	portForwardVerb = "portforward"

	spdy      = "spdy"
	webSocket = "websocket"
)

// streaming is a kind of request that is counted: a test asks what was really spoken.
type streaming struct {
	verb, protocol string
}

func newStreamed() map[streaming]*atomic.Int64 {
	streamed := map[streaming]*atomic.Int64{}
	for _, verb := range []string{execVerb, attachVerb, portForwardVerb} {
		for _, protocol := range []string{spdy, webSocket} {
			streamed[streaming{verb, protocol}] = &atomic.Int64{}
		}
	}
	return streamed
}

// stream hands a request on to the container runtime, which speaks SPDY; a WebSocket is translated, as kubelets do it
// since 1.36 (pkg/kubelet/server/server.go).
func (k *Kubelet) stream(verb string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		location := &url.URL{Scheme: "http", Host: k.runtime, Path: r.URL.Path, RawQuery: r.URL.RawQuery}
		protocol := spdy
		var handler http.Handler = proxy.NewUpgradeAwareHandler(location, nil, false, true, responder{})
		switch {
		case wsstream.IsWebSocketRequestWithStreamCloseProtocol(r):
			options, err := remotecommand.NewOptions(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			protocol = webSocket
			handler = translator.NewStreamTranslatorHandler(location, nil, 0, translator.Options{
				Stdin: options.Stdin, Stdout: options.Stdout, Stderr: options.Stderr, Tty: options.TTY,
			})
		case wsstream.IsWebSocketRequestWithTunnelingProtocol(r):
			protocol = webSocket
			handler = translator.NewTunnelingHandler(handler)
		}
		k.streamed[streaming{verb, protocol}].Add(1)
		handler.ServeHTTP(w, r)
	}
}

type responder struct{}

func (responder) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusInternalServerError)
}
