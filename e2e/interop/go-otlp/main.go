// A receiver of OTLP over HTTP that reads spans by OpenTelemetry's own Go types, strictly, and prints a line of JSON for
// each.
package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

type line struct {
	Service    string         `json:"service"`
	Instance   string         `json:"instance"`
	Name       string         `json:"name"`
	Kind       string         `json:"kind"`
	TraceID    string         `json:"traceId"`
	SpanID     string         `json:"spanId"`
	ParentID   string         `json:"parentId"`
	Start      uint64         `json:"start"`
	End        uint64         `json:"end"`
	Status     string         `json:"status"`
	Message    string         `json:"message"`
	Attributes map[string]any `json:"attributes"`
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	go func() { // ends with the test that has started it
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	var mutex sync.Mutex
	out := json.NewEncoder(os.Stdout)
	http.HandleFunc("/v1/traces", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &request)
		}
		if err == nil && len(request.ProtoReflect().GetUnknown()) > 0 {
			err = fmt.Errorf("unknown fields")
		}
		if err != nil || r.Header.Get("Content-Type") != "application/x-protobuf" {
			http.Error(w, fmt.Sprint("no spans: ", err), http.StatusBadRequest)
			return
		}
		mutex.Lock()
		for _, resource := range request.ResourceSpans {
			about := values(resource.Resource.Attributes)
			for _, scope := range resource.ScopeSpans {
				for _, span := range scope.Spans {
					_ = out.Encode(lineOf(about, span))
				}
			}
		}
		mutex.Unlock()
		answer, _ := proto.Marshal(&collector.ExportTraceServiceResponse{})
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, _ = w.Write(answer)
	})
	panic(http.Serve(listener, nil))
}

func lineOf(about map[string]any, span *trace.Span) line {
	return line{
		Service:    fmt.Sprint(about["service.name"]),
		Instance:   fmt.Sprint(about["service.instance.id"]),
		Name:       span.Name,
		Kind:       span.Kind.String(),
		TraceID:    hex.EncodeToString(span.TraceId),
		SpanID:     hex.EncodeToString(span.SpanId),
		ParentID:   hex.EncodeToString(span.ParentSpanId),
		Start:      span.StartTimeUnixNano,
		End:        span.EndTimeUnixNano,
		Status:     span.Status.GetCode().String(),
		Message:    span.Status.GetMessage(),
		Attributes: values(span.Attributes),
	}
}

func values(attributes []*common.KeyValue) map[string]any {
	found := map[string]any{}
	for _, each := range attributes {
		switch value := each.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			found[each.Key] = value.StringValue
		case *common.AnyValue_IntValue:
			found[each.Key] = value.IntValue
		default:
			found[each.Key] = fmt.Sprint(each.Value)
		}
	}
	return found
}
