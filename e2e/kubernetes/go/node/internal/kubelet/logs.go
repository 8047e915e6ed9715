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
	// A follower sees silence for this long and then one line more, which is the end.
	silence time.Duration
}

// logOf chooses by the container's name:
//
//	counter    1000 numbered lines
//	quiet-N    a line, N seconds of silence, a last line
//	any other  one line that names the container
func logOf(container string) containerLog {
	if container == "counter" {
		return containerLog{past: numberedLines(1000)}
	}
	if seconds, err := strconv.Atoi(strings.TrimPrefix(container, "quiet-")); err == nil {
		return containerLog{past: "before the silence\n", silence: time.Duration(seconds) * time.Second}
	}
	return containerLog{past: "log of " + container + "\n"}
}

func numberedLines(count int) string {
	var lines strings.Builder
	for number := 1; number <= count; number++ {
		fmt.Fprintf(&lines, "line %d\n", number)
	}
	return lines.String()
}

// serveLogs is GET /containerLogs, with the option of `kubectl logs` --follow.
func serveLogs(w http.ResponseWriter, r *http.Request) {
	log := logOf(r.PathValue("container"))
	w.Header().Set("Content-Type", "text/plain")
	// A reader who left has nothing left to be told.
	_, _ = io.WriteString(w, log.past)
	_ = http.NewResponseController(w).Flush()
	if r.URL.Query().Get("follow") != "true" || log.silence == 0 {
		return
	}
	select {
	case <-time.After(log.silence):
		_, _ = io.WriteString(w, "after the silence\n")
	case <-r.Context().Done():
	}
}
