package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// errRefused means that the server rejected a request permanently.
var errRefused = errors.New("bench: the server rejected a request")

// Options configure the delivery of a workload.
type Options struct {
	// URL is the remote write endpoint.
	URL string
	// Protocol defaults to V1.
	Protocol Protocol
	// Tenant is sent in the header X-Scope-OrgID; empty: no header.
	Tenant string
	// Senders is the number of concurrent senders. Each sends one request at a time. Default 4.
	Senders int
	// RequestSamples is the max number of samples per request. Default 2000, as in Prometheus.
	RequestSamples int
	// Speed is the factor by which the workload is replayed faster than in real time; 0: as fast as possible.
	Speed float64
	// Rate is the max number of samples per second; 0: no limit.
	Rate float64
	// RetryFor is how long a request is retried before the run fails. Default 1 minute.
	RetryFor time.Duration
	// Progress receives a progress line every ProgressEvery (default 5 s). If it is nil, there are none.
	Progress      io.Writer
	ProgressEvery time.Duration
	// PID is the ID of the server's process, and Dir is its data directory. They are optional and only used for the
	// report, if the server runs on this machine.
	PID int
	Dir string
	// Client is the HTTP client. If it is nil, a new client is created.
	Client *http.Client
}

func (o Options) withDefaults() Options {
	if o.Protocol == "" {
		o.Protocol = V1
	}
	if o.Senders <= 0 {
		o.Senders = 4
	}
	if o.RequestSamples <= 0 {
		o.RequestSamples = 2000
	}
	if o.RetryFor <= 0 {
		o.RetryFor = time.Minute
	}
	if o.ProgressEvery <= 0 {
		o.ProgressEvery = 5 * time.Second
	}
	if o.Client == nil {
		o.Client = &http.Client{
			Timeout:   time.Minute,
			Transport: &http.Transport{MaxIdleConnsPerHost: o.Senders, DisableCompression: true},
		}
	}
	return o
}

// run is a run in progress.
type run struct {
	Options
	g    *Generator
	acks *Acks
	// began is the start time on this machine's clock.
	began            time.Time
	requests, errors atomic.Int64
	bytes            atomic.Int64

	mu        sync.Mutex
	latencies latencyHistogram
}

// Run sends the whole workload and returns the report. acks receives the acknowledged samples, even if the run is
// interrupted by ctx or an error.
func Run(ctx context.Context, g *Generator, acks *Acks, o Options) (Report, error) {
	r := &run{Options: o.withDefaults(), g: g, acks: acks, began: time.Now()}
	before, err := r.usage()
	if err != nil {
		return Report{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var senders, progress sync.WaitGroup
	for number := range r.Senders {
		senders.Go(func() {
			if err := r.sendShard(ctx, newShard(g.Workload, number, r.Senders)); err != nil {
				cancel(err)
			}
		})
	}
	done := make(chan struct{})
	progress.Go(func() { r.writeProgress(done) })
	senders.Wait()
	close(done)
	progress.Wait()
	report, err := r.report(before)
	if cause := context.Cause(ctx); cause != nil {
		return report, cause
	}
	return report, err
}

// sendShard sends all requests of a shard.
func (r *run) sendShard(ctx context.Context, s *shard) error {
	enc, err := newEncoder(r.Protocol, r.g)
	if err != nil {
		return err
	}
	var own latencyHistogram
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.latencies.addAll(&own)
	}()
	refs := make([]sampleRef, 0, r.RequestSamples)
	sent := 0
	for {
		step := s.step
		refs = s.next(refs[:0], r.RequestSamples, r.Speed > 0)
		if len(refs) == 0 {
			return nil
		}
		if err := wait(ctx, time.Until(r.dueTime(step, sent))); err != nil {
			return err
		}
		body, err := enc.encode(refs)
		if err != nil {
			return err
		}
		took, err := r.deliverRequest(ctx, body, enc.headers())
		if err != nil {
			return err
		}
		own.add(took)
		r.acks.markAcked(refs)
		r.requests.Add(1)
		r.bytes.Add(int64(len(body)))
		sent += len(refs)
	}
}

// dueTime returns the time at which a request may be sent. With Options.Speed, a request isn't sent before the end of
// its step. With Options.Rate, a sender may not exceed its share of the rate.
func (r *run) dueTime(step, sent int) time.Time {
	at := r.began
	if r.Speed > 0 {
		over := time.Duration(step+1) * r.g.Interval()
		at = at.Add(time.Duration(float64(over) / r.Speed))
	}
	if r.Rate > 0 {
		byRate := r.began.Add(time.Duration(float64(sent) * float64(r.Senders) / r.Rate * float64(time.Second)))
		if byRate.After(at) {
			at = byRate
		}
	}
	return at
}

func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// firstPause and lastPause are the first and the longest pause between attempts to send a request.
const (
	firstPause = 30 * time.Millisecond
	lastPause  = 5 * time.Second
)

// deliverRequest sends a request repeatedly until it is acknowledged, but for at most RetryFor. It returns the duration
// of the successful attempt. It doesn't retry a request that the server rejects permanently.
func (r *run) deliverRequest(ctx context.Context, body []byte, headers map[string]string) (time.Duration, error) {
	giveUp := time.Now().Add(r.RetryFor)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		began := time.Now()
		again, err := r.tryRequest(ctx, body, headers)
		if err == nil {
			return time.Since(began), nil
		}
		r.errors.Add(1)
		if errors.Is(err, errRefused) || ctx.Err() != nil {
			return 0, err
		}
		if time.Now().After(giveUp) {
			return 0, fmt.Errorf("gave up after %s: %w", r.RetryFor, err)
		}
		if err := wait(ctx, max(pause, min(again, lastPause))); err != nil {
			return 0, err
		}
	}
}

// tryRequest sends a request once. If it fails, it also returns the pause that the server requests with Retry-After.
func (r *run) tryRequest(ctx context.Context, body []byte, headers map[string]string) (time.Duration, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL, bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errRefused, err)
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	request.Header.Set("User-Agent", "cassia-bench")
	if r.Tenant != "" {
		request.Header.Set("X-Scope-OrgID", r.Tenant)
	}
	response, err := r.Client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 4096))
	switch status := response.StatusCode; {
	case status/100 == 2:
		return 0, err
	case status == http.StatusTooManyRequests || status/100 == 5:
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
		return time.Duration(seconds) * time.Second,
			fmt.Errorf("%s: %s", response.Status, strings.TrimSpace(string(text)))
	default:
		return 0, fmt.Errorf("%w: %s: %s", errRefused, response.Status, strings.TrimSpace(string(text)))
	}
}
