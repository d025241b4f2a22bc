package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

const (
	// sharedFailover is after which time another replica is elected, and sharedTick how often replicas send.
	sharedFailover = 3 * time.Second
	sharedTick     = 500 * time.Millisecond
	// sharedRules are evaluated every second. What newest gives tells when it was evaluated, for newer samples arrive all the
	// time: whoever evaluates it once more, later, stores a greater value.
	sharedRules = `
groups:
- name: every second
  interval: 1s
  rules:
  - record: tick
    expr: vector(time())
  - record: newest
    expr: max(beat)
  - alert: Always
    expr: vector(1)
    for: 2s
`
)

// sharedRig is two processes on one keyspace that evaluate the same rules and take the samples of the same replicas.
type sharedRig struct {
	t         *testing.T
	ctx       context.Context
	binary    string
	engine    []string
	processes []*promrig.Process
}

func newSharedRig(ctx context.Context, t *testing.T) *sharedRig {
	r := &sharedRig{t: t, ctx: ctx, engine: onCassandra(t)}
	var err error
	r.binary, err = promrig.BuildCassia(t.TempDir())
	require.NoError(t, err)
	rules := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(rules, "r.yml"), []byte(sharedRules), 0o600))
	flags := append([]string{
		"--storage.slot=1h", "--storage.settle=1d", "--storage.partitions=2", "--retention.raw=30d", "--no-self-monitoring",
		"--rule.files=" + rules + "/*.yml", "--ha.enabled", "--ha.failover-timeout=" + sharedFailover.String(),
	}, r.engine...)
	r.processes = startAll(ctx, t, promrig.Cassia(r.binary, t.TempDir(), address(t), flags...), promrig.Cassia(r.binary, t.TempDir(), address(t), flags...))
	return r
}

func (r *sharedRig) wait(why string, condition func() bool) {
	r.t.Helper()
	require.Eventually(r.t, condition, time.Minute, 100*time.Millisecond, why)
}

// restart ends a process in order, and starts it again.
func (r *sharedRig) restart(i int) {
	require.NoError(r.t, r.processes[i].Terminate(stopWithin))
	r.processes[i] = start(r.ctx, r.t, r.processes[i].Program)
}

// stamped is a sample as a process answers it, at a time in milliseconds.
type stamped struct {
	at int64
	v  float64
}

// samples asks a process for the samples of a series within the last ten minutes, or since hours ago.
func (r *sharedRig) samples(i int, selector, since string) []stamped {
	r.t.Helper()
	answer, err := promrig.API{URL: r.processes[i].URL()}.Query(r.ctx, selector+"["+since+"]", time.Now())
	require.NoError(r.t, err)
	if len(answer.Series) == 0 {
		return nil
	}
	require.Len(r.t, answer.Series, 1, selector)
	var all []stamped
	for _, point := range answer.Series[0].Floats {
		at, v := parsePoint(r.t, point)
		all = append(all, stamped{int64(at*1000 + 0.5), v})
	}
	return all
}

// metric is the sum of a metric that a process has, or 0.
func (r *sharedRig) metric(i int, name string) (sum float64) {
	r.t.Helper()
	_, text := running{url: r.processes[i].URL()}.get(r.t, "/metrics")
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || (rest[0] != ' ' && rest[0] != '{') {
			continue
		}
		var v float64
		_, err := fmt.Sscan(rest[strings.LastIndex(rest, " ")+1:], &v)
		require.NoError(r.t, err)
		sum += v
	}
	return sum
}

// sender sends the samples of a series to one process, one after the other, each again until it is taken, as Prometheus
// does.
type sender struct {
	labels []prompb.Label
	v      func(at int64) float64
	// every is the time between two samples, from offset on, which are late by behind.
	every, offset, behind time.Duration

	mu    sync.Mutex
	acked []int64 // times of what was acknowledged
}

func newSender(v func(int64) float64, nameAndLabels ...string) *sender {
	s := &sender{v: v, every: sharedTick}
	for i := 0; i < len(nameAndLabels); i += 2 {
		s.labels = append(s.labels, prompb.Label{Name: nameAndLabels[i], Value: nameAndLabels[i+1]})
	}
	return s
}

// start sends to a process until stop is called, or the test ends.
func (s *sender) start(ctx context.Context, t *testing.T, to *promrig.Process) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	refused := make(chan error, 1)
	go func() { refused <- s.run(ctx, to.URL()+"/api/v1/write") }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			require.NoError(t, <-refused)
		})
	}
	t.Cleanup(stop)
	return stop
}

func (s *sender) run(ctx context.Context, url string) error {
	for at := time.Now().Truncate(s.every).Add(s.offset); ; at = at.Add(s.every) {
		pause := time.NewTimer(time.Until(at.Add(s.behind)))
		select {
		case <-ctx.Done():
			pause.Stop()
			return nil
		case <-pause.C:
		}
		for {
			code, text, err := post(ctx, url, prompb.TimeSeries{Labels: s.labels, Samples: []prompb.Sample{{Timestamp: at.UnixMilli(), Value: s.v(at.UnixMilli())}}})
			if ctx.Err() != nil {
				return nil
			}
			if err == nil && code/100 == 2 {
				break
			}
			if err == nil && code/100 == 4 && code != http.StatusTooManyRequests {
				return fmt.Errorf("%v was refused: %d: %s", s.labels, code, text)
			}
			time.Sleep(50 * time.Millisecond) // The process is gone, or can't take it now.
		}
		s.mu.Lock()
		s.acked = append(s.acked, at.UnixMilli())
		s.mu.Unlock()
	}
}

func (s *sender) acknowledged() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]int64(nil), s.acked...)
}

// last is the time of the newest sample that was acknowledged.
func (s *sender) last() int64 {
	acked := s.acknowledged()
	return acked[len(acked)-1]
}

// post sends series to a process by remote write.
func post(ctx context.Context, url string, series ...prompb.TimeSeries) (code int, text string, err error) {
	body, err := (&prompb.WriteRequest{Timeseries: series}).Marshal()
	if err != nil {
		return 0, "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(snappy.Encode(nil, body)))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	request.Header.Set("Content-Encoding", "snappy")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(said), err
}
