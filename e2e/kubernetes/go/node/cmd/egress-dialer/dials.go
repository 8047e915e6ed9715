package main

import (
	"bufio"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

const bannerTimeout = 10 * time.Second

type dials struct {
	dial            utilnet.DialFunc
	target          string
	count, inFlight int
	banner          bool
}

type dialsResult struct {
	Dials        int     `json:"dials"`
	Failures     int     `json:"failures"`
	FirstFailure string  `json:"firstFailure"`
	P50Ms        float64 `json:"p50Ms"`
	P99Ms        float64 `json:"p99Ms"`
	Seconds      float64 `json:"seconds"`
}

type heldResult struct {
	Held         int    `json:"held"`
	Failures     int    `json:"failures"`
	FirstFailure string `json:"firstFailure"`
}

// run dials and closes.
func (d *dials) run() dialsResult {
	return d.each(func(conn net.Conn) { conn.Close() })
}

// keep dials and leaves all that succeeded open.
func (d *dials) keep() ([]net.Conn, dialsResult) {
	var mu sync.Mutex
	var kept []net.Conn
	result := d.each(func(conn net.Conn) {
		mu.Lock()
		defer mu.Unlock()
		kept = append(kept, conn)
	})
	return kept, result
}

// each dials count times, inFlight at a time, and hands on what succeeded. Times are of the successful dials, without
// the banner.
func (d *dials) each(use func(net.Conn)) dialsResult {
	var mu sync.Mutex
	var times []time.Duration
	result := dialsResult{Dials: d.count}
	one := func() {
		started := time.Now()
		conn, err := dialOnce(d.dial, d.target)
		took := time.Since(started)
		if err == nil && d.banner {
			err = readBanner(conn)
		}
		mu.Lock()
		if err == nil {
			times = append(times, took)
		} else {
			result.Failures++
			if result.FirstFailure == "" {
				result.FirstFailure = err.Error()
			}
		}
		mu.Unlock()
		if err == nil {
			use(conn)
		}
	}

	started := time.Now()
	turns := make(chan struct{}, d.count)
	for range d.count {
		turns <- struct{}{}
	}
	close(turns)
	var workers sync.WaitGroup
	for range d.inFlight {
		workers.Go(func() {
			for range turns {
				one()
			}
		})
	}
	workers.Wait()
	result.Seconds = time.Since(started).Seconds()
	slices.Sort(times)
	result.P50Ms, result.P99Ms = percentile(times, 50), percentile(times, 99)
	return result
}

func readBanner(conn net.Conn) error {
	err := conn.SetReadDeadline(time.Now().Add(bannerTimeout))
	var line string
	if err == nil {
		line, err = bufio.NewReader(conn).ReadString('\n')
	}
	if err == nil && !strings.HasPrefix(line, "SSH-2.0-") {
		err = fmt.Errorf("no banner but %q", line)
	}
	if err != nil {
		conn.Close()
		return fmt.Errorf("after the dial: %w", err)
	}
	return nil
}

// percentile by nearest rank, in milliseconds.
func percentile(sorted []time.Duration, percent int) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := (len(sorted)*percent + 99) / 100
	return float64(sorted[rank-1].Microseconds()) / 1000
}
