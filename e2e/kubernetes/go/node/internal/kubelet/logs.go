package kubelet

import (
	"bufio"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// containerLog is what a container has written so far and, to a follower, what it still will.
type containerLog struct {
	past int
	line func(number int) string
	// A follower sees silence for this long and then one line more, which is the end.
	silence time.Duration
}

// logOf chooses by the container's name:
//
//	counter    1000 numbered lines
//	big        a million numbered lines of 64 bytes
//	quiet-N    a line, N seconds of silence (quiet: 30), a last line
//	any other  one line that names the container
func logOf(container string) containerLog {
	switch {
	case container == "counter":
		return containerLog{past: 1000, line: func(number int) string { return fmt.Sprintf("line %d\n", number) }}
	case container == "big":
		return containerLog{past: 1_000_000, line: func(number int) string { return fmt.Sprintf("line %058d\n", number) }}
	case container == "quiet" || strings.HasPrefix(container, "quiet-"):
		return containerLog{past: 1, line: func(int) string { return "before the silence\n" }, silence: silenceOf(container)}
	default:
		return containerLog{past: 1, line: func(int) string { return "log of " + container + "\n" }}
	}
}

func silenceOf(container string) time.Duration {
	seconds, err := strconv.Atoi(strings.TrimPrefix(container, "quiet-"))
	if err != nil {
		return 30 * time.Second
	}
	return time.Duration(seconds) * time.Second
}

// serveLogs is GET /containerLogs, with the options of `kubectl logs` --follow, --tail and --limit-bytes.
func serveLogs(w http.ResponseWriter, r *http.Request) {
	log := logOf(r.PathValue("container"))
	query := r.URL.Query()
	out := newLogWriter(w, query)
	first := 1
	if tail, ok := number(query, "tailLines"); ok {
		first = max(1, log.past-int(tail)+1)
	}
	for i := first; i <= log.past; i++ {
		if !out.write(log.line(i)) {
			return
		}
	}
	out.flush()
	if query.Get("follow") != "true" || log.silence == 0 {
		return
	}
	select {
	case <-time.After(log.silence):
		out.write("after the silence\n")
		out.flush()
	case <-r.Context().Done():
	}
}

// logWriter stops at --limit-bytes and at a reader who has left.
type logWriter struct {
	buffer  *bufio.Writer
	flusher *http.ResponseController
	left    int64
}

func newLogWriter(w http.ResponseWriter, query url.Values) *logWriter {
	w.Header().Set("Content-Type", "text/plain")
	left, ok := number(query, "limitBytes")
	if !ok {
		left = 1 << 62
	}
	return &logWriter{buffer: bufio.NewWriterSize(w, 32*1024), flusher: http.NewResponseController(w), left: left}
}

func (l *logWriter) write(line string) bool {
	part := line[:min(int64(len(line)), l.left)]
	l.left -= int64(len(part))
	_, err := l.buffer.WriteString(part)
	if err != nil || l.left == 0 {
		l.flush()
		return false
	}
	return true
}

func (l *logWriter) flush() {
	_ = l.buffer.Flush()
	_ = l.flusher.Flush()
}

func number(query url.Values, name string) (int64, bool) {
	value, err := strconv.ParseInt(query.Get(name), 10, 64)
	return value, err == nil && value >= 0
}
