package storage

import (
	"context"
	"iter"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/pebble"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/soak"
)

// crashingEngine calls a function at one step: each scan is a step, and each write before it begins and when it has
// ended.
type crashingEngine struct {
	engine.Engine
	steps atomic.Int64
	at    atomic.Int64
	crash func()
}

func (e *crashingEngine) step() {
	if e.steps.Add(1) == e.at.Load() {
		e.crash()
	}
}

func (e *crashingEngine) Scan(ctx context.Context, r engine.Range) iter.Seq2[engine.Row, error] {
	e.step()
	return e.Engine.Scan(ctx, r)
}

func (e *crashingEngine) Write(ctx context.Context, batches []engine.Batch) error {
	e.step()
	defer e.step()
	return e.Engine.Write(ctx, batches)
}

func (e *crashingEngine) CompareAndSet(ctx context.Context, t *engine.Table, partition, clustering engine.Key, old, value []byte) (bool, []byte, error) {
	e.step()
	defer e.step()
	return e.Engine.CompareAndSet(ctx, t, partition, clustering, old, value)
}

// Version implements engine.Versioned.
func (e *crashingEngine) Version(t *engine.Table, partition engine.Key) (uint64, bool) {
	return e.Engine.(engine.Versioned).Version(t, partition)
}

// TakesClear implements engine.Clearing, where the engine does.
func (e *crashingEngine) TakesClear() bool { return takesClear(e.Engine) }

// TestCompactionSurvivesPowerCuts cuts the power at random steps of compactions, one after the other: after each the
// answers are the same as before, and in the end the chunks are compacted. Between, samples come late.
func TestCompactionSurvivesPowerCuts(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(soak.Seed(t), 8))
	disk := &pebbleDisk{fs: pebble.NewCrashableFS()}
	m := &deleteModel{
		testStore: &testStore{t: t, opts: DefaultOptions(), now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)},
		r:         rng, want: map[string]map[int64]float64{}, labels: seriesOfGroups("abcd"),
	}
	m.opts.Now = func() time.Time { return m.now }
	m.opts.Retention, m.opts.Partitions, m.opts.seams.still = 0, 2, true
	// start opens the files that are left. The power is cut at a step of the engine: next has those left by that.
	start := func() (eng *crashingEngine, next *pebbleDisk) {
		inner, err := disk.open()
		require.NoError(t, err)
		left := *disk
		eng = &crashingEngine{Engine: inner, crash: func() { left.powerCut(50 * rng.IntN(3)) }}
		m.eng = eng
		m.Store = openReady(t, eng, m.opts)
		return eng, &left
	}
	answers := func() (all [resolutions]map[string]string) {
		for res := range rollup.Resolution(resolutions) {
			var err error
			all[res], err = answerTo(t.Context(), m.Store, wholeQuery("default", res))
			require.NoError(t, err)
		}
		return all
	}
	compacted := 0
	for round := range soak.Histories(t, 5) {
		start()
		ago := overAgo + time.Duration(rng.IntN(100))*time.Hour
		for _, ls := range seriesOfGroups([]string{"abcd", "ab", "c"}[rng.IntN(3)]) {
			for i := range 4 {
				m.put(ls, sample{m.now.Add(-ago + time.Duration(i*7)*time.Hour).UnixMilli(), float64(rng.IntN(100))})
			}
		}
		require.NoError(t, m.SealAll(t.Context()))
		before := answers()
		m.close()
		for cut := true; cut; {
			eng, left := start()
			requireSame(t, before, answers(), "round %d", round)
			m.check()
			eng.steps.Store(0)
			eng.at.Store(1 + rng.Int64N(120))
			stats, err := m.compactAll(t.Context(), func() {})
			require.NoError(t, err)
			cut = eng.steps.Load() >= eng.at.Load()
			compacted += stats.Series
			requireSame(t, before, answers(), "round %d, beside the cut", round)
			m.close()
			if cut {
				disk = left
			}
		}
	}
	require.Positive(t, compacted)
	start()
	m.compare("at the end")
	require.NotZero(t, m.longChunks("default")[rollup.FiveMinutes])
	m.close()
}

func requireSame(t *testing.T, before, after [resolutions]map[string]string, about string, args ...any) {
	t.Helper()
	for res := range before {
		require.Empty(t, changed(before[res], after[res]), about, args)
	}
}
