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

// each dials count times, inFlight at a time, and hands on what succeeded.
func (d *dials) each(use func(net.Conn)) dialsResult {
	var tally tally
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
				if conn, took, err := d.one(); tally.count(took, err) {
					use(conn)
				}
			}
		})
	}
	workers.Wait()
	return tally.result(d.count, time.Since(started))
}

// one dials; its time is without the banner.
func (d *dials) one() (net.Conn, time.Duration, error) {
	started := time.Now()
	conn, err := dialOnce(d.dial, d.target)
	took := time.Since(started)
	if err == nil && d.banner {
		err = readBanner(conn)
	}
	return conn, took, err
}

// tally is what came of many dials that run at once.
type tally struct {
	mu           sync.Mutex
	times        []time.Duration
	failures     int
	firstFailure string
}

// count says whether it succeeded.
func (t *tally) count(took time.Duration, err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.times = append(t.times, took)
		return true
	}
	t.failures++
	if t.firstFailure == "" {
		t.firstFailure = err.Error()
	}
	return false
}

func (t *tally) result(dials int, took time.Duration) dialsResult {
	slices.Sort(t.times)
	return dialsResult{
		Dials: dials, Failures: t.failures, FirstFailure: t.firstFailure,
		P50Ms: percentile(t.times, 50), P99Ms: percentile(t.times, 99), Seconds: took.Seconds(),
	}
}

func readBanner(conn net.Conn) error {
	// konnectivity-client's connections have no deadlines.
	late := time.AfterFunc(bannerTimeout, func() { conn.Close() })
	defer late.Stop()
	line, err := bufio.NewReader(conn).ReadString('\n')
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
