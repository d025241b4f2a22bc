package downsample

import (
	"bytes"
	"context"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/check"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// TestMain fails if a test leaks a goroutine.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a loop for a store on an engine with failure rules, and a clock that the test sets.
type rig struct {
	t     *testing.T
	eng   *faultengine.Engine
	store *storage.Store
	loop  *Loop
	log   *lockedBuffer
	clock atomic.Int64 // milliseconds
	// rule decides which of the engine's operations fail. nil: none.
	rule atomic.Pointer[func(faultengine.Op) faultengine.Action]
	reg  *prometheus.Registry
}

var testStart = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

const hour = time.Hour

func newRig(t *testing.T, change func(*storage.Options, *Options)) *rig {
	r := &rig{t: t, log: &lockedBuffer{}, reg: prometheus.NewRegistry()}
	r.clock.Store(testStart.UnixMilli())
	r.eng = faultengine.Wrap(memory.New(), func(op faultengine.Op) faultengine.Action {
		if rule := r.rule.Load(); rule != nil {
			return (*rule)(op)
		}
		return faultengine.Pass()
	})
	r.open(change)
	t.Cleanup(func() { require.NoError(t, r.store.Close()) })
	return r
}

func (r *rig) open(change func(*storage.Options, *Options)) {
	so, o := storage.DefaultOptions(), DefaultOptions()
	so.Partitions, so.Now = 4, r.now
	o.Now, o.Share, o.Workers, o.Registerer = r.now, 1, 1, r.reg
	o.Logger = slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	if change != nil {
		change(&so, &o)
	}
	r.store = storagetest.Start(r.t, r.eng, func(into *storage.Options) { *into = so })
	var err error
	r.loop, err = New(r.store, o)
	require.NoError(r.t, err)
}

func (r *rig) now() time.Time { return time.UnixMilli(r.clock.Load()) }

func (r *rig) advance(d time.Duration) { r.clock.Add(d.Milliseconds()) }

// fail makes matching operations of the engine fail, until mend is called.
func (r *rig) fail(matches func(faultengine.Op) bool) {
	rule := func(op faultengine.Op) faultengine.Action {
		if matches(op) {
			return faultengine.Fail(nil)
		}
		return faultengine.Pass()
	}
	r.rule.Store(&rule)
}

func (r *rig) mend() { r.rule.Store(nil) }

// write writes one sample to each of a few series, which cover all partitions.
func (r *rig) write(at time.Time, v float64) {
	r.t.Helper()
	b := r.store.NewBatch("default")
	for i := range 40 {
		s, err := b.Define(nil, labels.FromStrings(labels.MetricName, "up", "instance", string(rune('a'+i))))
		require.NoError(r.t, err)
		require.NoError(r.t, b.Float(s, at.UnixMilli(), 0, v))
	}
	require.NoError(r.t, b.Commit(context.Background()))
}

// listed returns the elements of an iterator.
func listed[T any](t *testing.T, all iter.Seq2[T, error]) (list []T) {
	t.Helper()
	for x, err := range all {
		require.NoError(t, err)
		list = append(list, x)
	}
	return list
}

// check verifies all stored rows and returns the totals.
func (r *rig) check() check.Totals {
	r.t.Helper()
	stats, err := r.store.Check(r.t.Context(), func(problem string) { r.t.Error(problem) })
	require.NoError(r.t, err)
	return stats
}

// unroll removes all rollups, as an interrupted import would.
func (r *rig) unroll() {
	r.t.Helper()
	kept, err := r.store.WindowInfos(r.t.Context())
	require.NoError(r.t, err)
	for _, k := range kept {
		tables := map[string][]*engine.Table{
			"5m": {engine.R5m, engine.R5mPages}, "1h": {engine.R1h, engine.R1hPages},
		}[k.Resolution.String()]
		if tables == nil {
			continue
		}
		for _, t := range append(tables, engine.Sealed) {
			require.NoError(r.t, r.eng.Drop(r.t.Context(), t, engine.Key{engine.Int(k.Window)}))
		}
	}
}

// metric returns the value of one of the loop's metrics.
func (r *rig) metric(name string) float64 {
	r.t.Helper()
	families, err := r.reg.Gather()
	require.NoError(r.t, err)
	for _, f := range families {
		if f.GetName() == "cassia_downsample_"+name {
			m := f.GetMetric()[0]
			return m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	require.Fail(r.t, "no such metric", name)
	return 0
}

// TestMetricsAreSound checks names and help texts against Prometheus' rules.
func TestMetricsAreSound(t *testing.T) {
	problems, err := testutil.GatherAndLint(newRig(t, nil).reg)
	require.NoError(t, err)
	require.Empty(t, problems)
}

// lockedBuffer collects log lines from multiple goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// take returns the log lines since the previous call.
func (l *lockedBuffer) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.b.Reset()
	return l.b.String()
}
