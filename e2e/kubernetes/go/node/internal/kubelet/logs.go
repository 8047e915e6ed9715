package kubelet

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// containerLog is what a container has written so far and, to a follower, what it still will.
type containerLog struct {
	past string
	// Each comes after a pause; the last one is the end.
	future []string
	pause  time.Duration
}

// How often a container writes that writes all the time.
const steadily = 20 * time.Millisecond

// logOf chooses by the container's name:
//
//	counter    1000 numbered lines
//	past-N     N numbered lines
//	steady-N   N numbered lines, one every 20 ms
//	quiet-N    a line, N seconds of silence, a last line
//	any other  one line that names the container
func logOf(container string) containerLog {
	if container == "counter" {
		return containerLog{past: strings.Join(numberedLines(1000), "")}
	}
	if lines, err := strconv.Atoi(strings.TrimPrefix(container, "past-")); err == nil {
		return containerLog{past: strings.Join(numberedLines(lines), "")}
	}
	if lines, err := strconv.Atoi(strings.TrimPrefix(container, "steady-")); err == nil {
		return containerLog{future: numberedLines(lines), pause: steadily}
	}
	if seconds, err := strconv.Atoi(strings.TrimPrefix(container, "quiet-")); err == nil {
		pause := time.Duration(seconds) * time.Second
		return containerLog{past: "before the silence\n", future: []string{"after the silence\n"}, pause: pause}
	}
	return containerLog{past: "log of " + container + "\n"}
}

func numberedLines(count int) []string {
	lines := make([]string, count)
	for i := range lines {
		lines[i] = fmt.Sprintf("line %d\n", i+1)
	}
	return lines
}

// serveLogs is GET /containerLogs, with the option of `kubectl logs` --follow.
func serveLogs(w http.ResponseWriter, r *http.Request) {
	log := logOf(r.PathValue("container"))
	flush := http.NewResponseController(w).Flush
	w.Header().Set("Content-Type", "text/plain")
	// A reader who left has nothing left to be told.
	_, _ = io.WriteString(w, log.past)
	_ = flush()
	if r.URL.Query().Get("follow") != "true" {
		return
	}
	for _, line := range log.future {
		select {
		case <-time.After(log.pause):
			_, _ = io.WriteString(w, line)
			_ = flush()
		case <-r.Context().Done():
			return
		}
	}
}
