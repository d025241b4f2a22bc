package storage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/soak"
)

// concurrentFor is the duration of concurrent tests.
func concurrentFor(t *testing.T) time.Duration {
	return time.Duration(soak.Times(t, int(2*time.Second)))
}

// TestConcurrent runs writers, sealers and readers of one store concurrently, and compares the answers with the model.
// Run it with -race.
func TestConcurrent(t *testing.T) {
	newConcurrentRun(t, faultengine.Wrap(memory.New(), func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Write && op.N%97 == 0 {
			return faultengine.Lose(nil)
		}
		return faultengine.Pass()
	})).do(concurrentFor(t))
}

// concurrentRun runs all operations on one store concurrently, and compares the answers with the model.
type concurrentRun struct {
	t     *testing.T
	store *Store
	now   atomic.Int64
	model *protocolModel
	stop  atomic.Bool
}

func newConcurrentRun(t *testing.T, eng engine.Engine) *concurrentRun {
	r := &concurrentRun{t: t, model: newProtocolModel()}
	r.now.Store(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC).UnixMilli())
	opts := DefaultOptions()
	opts.Partitions, opts.CacheBytes = 4, 1<<16
	opts.Now = func() time.Time { return time.UnixMilli(r.now.Load()) }
	r.store = openReady(t, eng, opts)
	t.Cleanup(func() { require.NoError(t, r.store.Close()) })
	return r
}

func (r *concurrentRun) do(d time.Duration) {
	var wg sync.WaitGroup
	repeat := func(do func(rng *rand.Rand), pause time.Duration) {
		seed := rand.Uint64()
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 1))
			for !r.stop.Load() {
				do(rng)
				time.Sleep(pause)
			}
		})
	}
	for range 3 {
		repeat(r.write, 0)
	}
	repeat(r.read, 0)
	repeat(r.read, 0)
	repeat(r.round, time.Millisecond)
	repeat(r.sealAll, 20*time.Millisecond)
	repeat(func(*rand.Rand) { r.store.ReleaseSeries() }, time.Millisecond)
	repeat(func(rng *rand.Rand) { r.now.Add(rng.Int64N(10 * 60_000)) }, 5*time.Millisecond)
	time.Sleep(d)
	r.stop.Store(true)
	wg.Wait()
	r.end()
}

func (r *concurrentRun) write(rng *rand.Rand) {
	now := r.now.Load()
	b := r.store.NewBatch("ann")
	type sent struct {
		series string
		t      int64
		v      protocolValue
	}
	var all []sent
	for range 1 + rng.IntN(20) {
		series := fmt.Sprintf("up/%d", rng.IntN(60))
		ref, ok := b.Lookup([]byte(series))
		if !ok {
			var err error
			ref, err = b.Define([]byte(series), protocolLabels(series))
			assert.NoError(r.t, err)
		}
		x := protocolSendSample{series: series, t: now - rng.Int64N(60*60_000), float: float64(rng.IntN(3))}
		if rng.IntN(10) == 0 {
			x.t -= rng.Int64N(20 * format.DayMS)
		}
		if rng.IntN(20) == 0 {
			x.hist = &protocolHistograms[rng.IntN(len(protocolHistograms))]
			h, fh := copyHistogram(*x.hist)
			assert.NoError(r.t, b.Histogram(ref, x.t, 0, h, fh))
		} else {
			assert.NoError(r.t, b.Float(ref, x.t, 0, x.float))
		}
		s := sent{series, x.t, x.value()}
		r.model.send(protocolSeries{"ann", s.series}, s.t, s.v)
		all = append(all, s)
	}
	ctx, cancel := context.Background(), func() {}
	if rng.IntN(20) == 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(1000))*time.Microsecond)
	}
	defer cancel()
	if b.Commit(ctx) != nil {
		return
	}
	for _, s := range all {
		r.model.stays(protocolSeries{"ann", s.series}, s.t, s.v)
	}
}

func (r *concurrentRun) read(rng *rand.Rand) {
	needs := r.model.needs("ann")
	end := r.now.Load()
	q := query.Query{Tenant: "ann", MinT: end - rng.Int64N(25*format.DayMS), MaxT: end}
	q.Matchers = []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, "up")}
	if rng.IntN(2) == 0 {
		q.Matchers[0] = labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, "u.+")
	}
	found, err := r.store.Select(r.t.Context(), q)
	if !assert.NoError(r.t, err) {
		return
	}
	got := map[protocolSeries][]protocolSample{}
	for _, s := range found {
		var samples chunk.Samples
		assert.NoError(r.t, s.Samples(&samples))
		list, problem := flatten(&samples)
		assert.Empty(r.t, problem)
		got[protocolSeries{"ann", "up/" + s.Labels.Get("host")}] = list
	}
	problem := r.model.judge(nil, needs, got, visible{minT: q.MinT, maxT: q.MaxT})
	assert.Empty(r.t, problem)
	if problem != "" {
		r.stop.Store(true)
	}
}

// round runs a round of the sealing loop. Like sealAll it may fail if the result of a write is lost; both are called
// again.
func (r *concurrentRun) round(*rand.Rand) {
	ctx := context.Background()
	for p := range r.store.period.Partitions() {
		work, err := r.store.WaitingWork(ctx, p)
		assert.NoError(r.t, err)
		work = slices.DeleteFunc(work, func(w Work) bool { return !r.store.IsSettled(w.Slot, 0) })
		r.store.sealPasses(work, func(works []Work) { _, _ = r.store.SealTogether(ctx, works) })
		_ = r.store.UnlistSlots(ctx, p)
	}
}

func (r *concurrentRun) sealAll(*rand.Rand) { _ = r.store.SealAll(context.Background()) }

// end seals the remaining samples, and requires the head to be empty.
func (r *concurrentRun) end() {
	require.EventuallyWithT(r.t, func(c *assert.CollectT) {
		assert.NoError(c, r.store.SealAll(context.Background()))
		r.store.ReleaseSeries()
		assert.Zero(c, r.store.head.SeriesCount())
		assert.Zero(c, r.store.head.Bytes())
	}, 3*time.Minute, time.Millisecond)
	r.read(rand.New(rand.NewPCG(1, 1)))
	stats, err := r.store.Check(r.t.Context(), func(problem string) { r.t.Error(problem) })
	require.NoError(r.t, err)
	require.Positive(r.t, stats.Samples)
	r.t.Logf("%d samples in %d chunks of %d series", stats.Samples, stats.Chunks, stats.Series)
}

// sealPasses calls seal for each pass of work.
func (s *Store) sealPasses(work []Work, seal func([]Work)) {
	for _, at := range s.PlanPasses(work, 1) {
		pass := make([]Work, len(at))
		for i, n := range at {
			pass[i] = work[n]
		}
		seal(pass)
	}
}
