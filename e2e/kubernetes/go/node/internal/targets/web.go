// Package targets has the plain services of the stand-in: what a Service, a Pod's port or a caller of CONNECT leads to.
package targets

import (
	"fmt"
	"net/http"
	"strconv"

	"culvert.invalid/node/internal/payload"
)

// Web is the service behind --http and --https:
//
//	/           hello with the path
//	/bytes/N    N bytes of payload, with Content-Length
func Web() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", hello)
	mux.HandleFunc("GET /bytes/{length}", serveBytes)
	return mux
}

func hello(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "hello from the stand-in, path %s\n", r.URL.Path)
}

func serveBytes(w http.ResponseWriter, r *http.Request) {
	length, err := strconv.ParseInt(r.PathValue("length"), 10, 64)
	if err != nil || length < 0 {
		http.Error(w, "not a length", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
	// A reader who left has nothing left to be told.
	_ = payload.Write(w, length)
}
