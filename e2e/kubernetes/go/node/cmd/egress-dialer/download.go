package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"culvert.invalid/node/internal/payload"
)

type downloadResult struct {
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
	MBps    float64 `json:"MBps"`
	// Every byte was the one sent there, and none was missing.
	Intact bool `json:"intact"`
}

// fetch reads /bytes/N through one dialled connection. The time includes the dial.
func fetch(dial utilnet.DialFunc, target string, length int64) (downloadResult, error) {
	started := time.Now()
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, "tcp", target) },
	}
	response, err := (&http.Client{Transport: transport}).Get(fmt.Sprintf("http://%s/bytes/%d", target, length))
	if err != nil {
		return downloadResult{}, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return downloadResult{}, fmt.Errorf("the target answered %s", response.Status)
	}
	check := &payload.Check{}
	_, err = io.Copy(check, response.Body)
	seconds := time.Since(started).Seconds()
	intact := check.Bytes == length && !check.Wrong
	return downloadResult{check.Bytes, seconds, float64(check.Bytes) / 1e6 / seconds, intact}, err
}
