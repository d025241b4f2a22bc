package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

const (
	// sharedFailover is the time after which another replica is elected, and sharedTick is the interval at which
	// replicas send.
	sharedFailover = 10 * time.Second
	sharedTick     = 500 * time.Millisecond
	// sharedInterval is the interval at which sharedRules are evaluated.
	sharedInterval = 2 * time.Second
	// Repeated evaluations can be detected: newer samples arrive continuously, so the value of newest is larger if it
	// is evaluated later.
	sharedRules = `
groups:
- name: every other second
  interval: 2s
  rules:
  - record: tick
    expr: vector(time())
  - record: newest
    expr: max(beat)
  - alert: Always
    expr: vector(1)
    for: 4s
`
)

// sharedRig consists of two processes on one keyspace that evaluate the same rules and receive samples of the same
// replicas.
type sharedRig struct {
	t         *testing.T
	ctx       context.Context
	binary    string
	engine    []string
	processes []*promrig.Process
	senders   []*sender
}

func newSharedRig(t *testing.T) *sharedRig {
	r := &sharedRig{t: t, binary: builtCassia(t), engine: cassiatest.OnCassandra(t)}
	var cancel context.CancelFunc
	r.ctx, cancel = context.WithTimeout(t.Context(), 20*time.Minute)
	t.Cleanup(cancel)
	rules := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(rules, "r.yml"), []byte(sharedRules), 0o600))
	flags := append([]string{
		"--storage.slot=1h", "--storage.settle=1d", "--storage.partitions=2", "--retention.raw=30d",
		"--no-self-monitoring", "--rule.files=" + rules + "/*.yml", "--ha.enabled",
		"--ha.failover-timeout=" + sharedFailover.String(),
	}, r.engine...)
	r.processes = startAll(r.ctx, t, promrig.Cassia(r.binary, t.TempDir(), cassiatest.FreeAddress(t), flags...),
		promrig.Cassia(r.binary, t.TempDir(), cassiatest.FreeAddress(t), flags...))
	return r
}

// wait waits for a condition. The condition may fail the test.
func (r *sharedRig) wait(why string, condition func() bool) {
	r.t.Helper()
	for began := time.Now(); !condition(); time.Sleep(100 * time.Millisecond) {
		require.Less(r.t, time.Since(began), cassiatest.Patience, why)
	}
}

// restart stops a process in an orderly way and starts it again.
func (r *sharedRig) restart(i int) {
	require.NoError(r.t, r.processes[i].Terminate(cassiatest.StopWithin))
	r.processes[i] = start(r.ctx, r.t, r.processes[i].Program)
}

// silence returns the longest time without an acknowledgement for an active sender. A process or Cassandra was blocked
// for this time.
func (r *sharedRig) silence() (longest time.Duration) {
	for _, s := range r.senders {
		longest = max(longest, s.silence())
	}
	return longest
}

// query returns the answer of process i to a query. It repeats the query after errors, see patiently.
func (r *sharedRig) query(i int, query string) (answer promrig.Answer) {
	r.t.Helper()
	require.NoError(r.t, patiently(func() (err error) {
		answer, err = promrig.API{URL: r.processes[i].URL()}.Query(r.ctx, query, time.Now())
		return err
	}), query)
	return answer
}

// samples returns the samples of the last hour of a series, as returned by process i. It returns nil if there are none.
func (r *sharedRig) samples(i int, selector string) []stamped {
	r.t.Helper()
	answer := r.query(i, selector+"[1h]")
	if len(answer.Series) == 0 {
		return nil
	}
	require.Len(r.t, answer.Series, 1, selector)
	return parsePoints(r.t, answer.Series[0].Floats)
}

func (r *sharedRig) metric(i int, name string) float64 {
	r.t.Helper()
	return valueOf(r.t, r.processes[i].URL(), name)
}

// sender sends the samples of a series to one process when they are due. It repeats them until they are accepted, as
// Prometheus does.
type sender struct {
	labels []prompb.Label
	v      func(at int64) float64
	// every is the interval between samples, offset the time of the first one, and behind the delay with which they are
	// sent.
	every, offset, behind time.Duration

	mu    sync.Mutex
	acked []int64 // times of acknowledged samples
	// heard is the time of the last acknowledgement or, if there is none, the time when sending started. It is zero
	// while the sender is inactive. silent is the longest time between acknowledgements.
	heard  time.Time
	silent time.Duration
}

func newSender(v func(int64) float64, nameAndLabels ...string) *sender {
	s := &sender{v: v, every: sharedTick}
	for i := 0; i < len(nameAndLabels); i += 2 {
		s.labels = append(s.labels, prompb.Label{Name: nameAndLabels[i], Value: nameAndLabels[i+1]})
	}
	return s
}

// send starts to send to a process. stop stops it and waits until all sent samples are acknowledged or the test ends.
func (r *sharedRig) send(s *sender, to int) (stop func()) {
	if !slices.Contains(r.senders, s) {
		r.senders = append(r.senders, s)
	}
	ctx, cancel := context.WithCancel(r.ctx)
	stopping, refused := make(chan struct{}), make(chan error, 1)
	url := r.processes[to].URL() + "/api/v1/write"
	s.hear(nil)
	go func() { refused <- s.run(ctx, stopping, url) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			close(stopping)
			require.NoError(r.t, <-refused)
			s.mu.Lock()
			s.heard = time.Time{}
			s.mu.Unlock()
		})
	}
	r.t.Cleanup(func() { cancel(); stop() })
	return stop
}

func (s *sender) run(ctx context.Context, stopping <-chan struct{}, url string) error {
	for at := time.Now().Truncate(s.every).Add(s.offset); ; {
		pause := time.NewTimer(time.Until(at.Add(s.behind)))
		select {
		case <-ctx.Done():
			pause.Stop()
			return nil
		case <-stopping:
			pause.Stop()
			return nil
		case <-pause.C:
		}
		var due []prompb.Sample
		var times []int64
		for now := time.Now(); !at.Add(s.behind).After(now); at = at.Add(s.every) {
			times = append(times, at.UnixMilli())
			due = append(due, prompb.Sample{Timestamp: at.UnixMilli(), Value: s.v(at.UnixMilli())})
		}
		if err := deliver(ctx, url, prompb.TimeSeries{Labels: s.labels, Samples: due}); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		s.hear(times)
	}
}

// hear records that samples with these times were acknowledged now.
func (s *sender) hear(times []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if !s.heard.IsZero() {
		s.silent = max(s.silent, now.Sub(s.heard))
	}
	s.heard = now
	s.acked = append(s.acked, times...)
}

// silence returns the longest time between two acknowledgements, including the time since the last one.
func (s *sender) silence() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heard.IsZero() {
		return s.silent
	}
	return max(s.silent, time.Since(s.heard))
}

func (s *sender) acknowledged() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]int64(nil), s.acked...)
}

// last returns the time of the newest acknowledged sample.
func (s *sender) last() int64 {
	acked := s.acknowledged()
	return acked[len(acked)-1]
}

// deliver sends series repeatedly until they are accepted.
func deliver(ctx context.Context, url string, series ...prompb.TimeSeries) error {
	for {
		code, text, err := post(ctx, url, series...)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil: // The process was killed.
		case code/100 == 2:
			return nil
		case code/100 == 4 && code != http.StatusTooManyRequests:
			return fmt.Errorf("%v was refused: %d: %s", series[0].Labels, code, text)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// post sends series to a process with remote write.
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
