package storage

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/pebble"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/soak"
)

// cutEngines contains functions that open the engines on which operations are canceled at a step, by name of the
// engine.
var cutEngines = map[string]func(t *testing.T) engine.Engine{
	"memory": func(*testing.T) engine.Engine { return memory.New() },
	"pebble": func(t *testing.T) engine.Engine {
		eng, err := pebble.Open(t.TempDir(), pebble.DefaultOptions())
		require.NoError(t, err)
		return eng
	},
}

// cutModel is a model of series in pages of multiple levels. Its engine can cancel contexts at a step.
type cutModel struct {
	*deleteModel
	cut  *cuttingEngine
	seed uint64
}

func newCutModel(t *testing.T, inner engine.Engine) *cutModel {
	seed := soak.Seed(t)
	cut := &cuttingEngine{Engine: unclosed{inner}}
	ts := &testStore{t: t, opts: DefaultOptions(), now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), memory: cut}
	ts.opts.Now = func() time.Time { return ts.now }
	ts.opts.Partitions, ts.opts.seams.still = 2, true
	ts.open()
	t.Cleanup(func() { require.NoError(t, inner.Close()) })
	t.Cleanup(ts.close)
	m := &cutModel{deleteModel: &deleteModel{
		testStore: ts, r: rand.New(rand.NewPCG(seed, 0)), labels: seriesOfGroups("abcd"),
		want: map[string]map[int64]float64{},
	}, cut: cut, seed: seed}
	return m
}

// of writes samples of each series of the given groups. times contains the ages of the samples.
func (m *cutModel) of(groups string, value float64, times ...time.Duration) {
	var list []sample
	for _, ago := range times {
		list = append(list, sample{m.now.Add(-ago).UnixMilli(), value})
	}
	for _, ls := range seriesOfGroups(groups) {
		m.put(ls, list...)
	}
}

// levels returns the number of levels with pages of raw chunks.
func (m *cutModel) levels() int {
	found := map[int64]bool{}
	for _, p := range m.pagesIn(m.pagedPartitions("default")) {
		if p.res == rollup.Raw && !p.isLabels() {
			found[p.clustering[2].Int] = true
		}
	}
	return len(found)
}

// ending calls do with a context that is canceled at a step of the engine, or shortly after it. It returns the error of
// do, which must be nil or context.Canceled.
func (m *cutModel) ending(step int, do func(context.Context) error) error {
	ctx, cancel := context.WithCancel(m.t.Context())
	defer cancel()
	end := cancel
	if spins := m.r.IntN(60); spins < 30 {
		end = func() {
			go func() {
				for range spins {
					runtime.Gosched()
				}
				cancel()
			}()
		}
	}
	m.cut.cutAt(step, end)
	err := do(ctx)
	if m.cut.cutAt(0, end); err != nil {
		require.ErrorIs(m.t, err, context.Canceled)
	}
	return err
}

// query reads all samples, or all buckets, of the series in groups at a resolution. It stops at the first error.
func (m *cutModel) query(ctx context.Context, groups string, res rollup.Resolution) error {
	found, err := m.Select(ctx, query.Query{
		Tenant: "default", MinT: -format.MaxTime, MaxT: format.MaxTime, Resolution: res, Columns: rollup.ColumnMax,
		Matchers: []*labels.Matcher{
			labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, "m|n"),
			labels.MustNewMatcher(labels.MatchRegexp, "group", "["+groups+"]"),
		},
	})
	for i := 0; i < len(found) && err == nil; i++ {
		err = m.querySeries(found[i], res)
	}
	return err
}

// querySeries reads the samples or buckets of a series. An answer without an error must be complete.
func (m *cutModel) querySeries(s *query.SelectedSeries, res rollup.Resolution) error {
	if res != rollup.Raw {
		return s.Buckets(&rollup.Buckets{}, &query.BucketBuffers{})
	}
	var samples chunk.Samples
	if err := s.Samples(&samples); err != nil {
		return err
	}
	want := m.want[s.Labels.String()]
	if samples.Len() != len(want) {
		return errors.New("other samples than were written, of " + s.Labels.String())
	}
	for i, t := range samples.T {
		if want[t] != samples.V[i] {
			return errors.New("another value than was written, of " + s.Labels.String())
		}
	}
	return nil
}

// build writes and seals samples so that they are stored in pages of multiple levels, and in rows.
func (m *cutModel) build() {
	for _, step := range []struct{ groups, late string }{{"a", "ab"}, {"b", "ab"}, {"cd", "ac"}} {
		m.of(step.groups, 1, 9*time.Hour, 30*time.Hour)
		require.NoError(m.t, m.SealAll(m.t.Context()))
		m.of(step.late, 2, 9*time.Hour+time.Minute, 26*time.Hour)
		require.NoError(m.t, m.SealAll(m.t.Context()))
	}
	require.Greater(m.t, m.levels(), 1)
}

// TestCancelledQueriesOfPages cancels queries at random steps of the engine, in a store that was just started and in
// one with filled caches, sequentially and concurrently. Queries that aren't canceled must return the right answers.
func TestCancelledQueriesOfPages(t *testing.T) {
	t.Parallel()
	for name, open := range cutEngines {
		t.Run(name, func(t *testing.T) {
			m := newCutModel(t, open(t))
			m.build()
			resolutions := []rollup.Resolution{rollup.Raw, rollup.FiveMinutes, rollup.OneHour}
			for range soak.Times(t, 6) {
				m.reopen()
				for range 4 {
					groups, res := []string{"abcd", "ab", "c", "d"}[m.r.IntN(4)], resolutions[m.r.IntN(3)]
					_ = m.ending(1+m.r.IntN(120), func(ctx context.Context) error { return m.query(ctx, groups, res) })
				}
				var others sync.WaitGroup
				for range 3 {
					others.Go(func() {
						for _, res := range resolutions {
							if err := m.query(t.Context(), "abcd", res); err != nil {
								t.Errorf("beside queries that are ended, seed %d: %v", m.seed, err)
							}
						}
					})
				}
				for range 6 {
					groups, res := []string{"abcd", "ab", "c", "d"}[m.r.IntN(4)], resolutions[m.r.IntN(3)]
					_ = m.ending(1+m.r.IntN(120), func(ctx context.Context) error { return m.query(ctx, groups, res) })
				}
				others.Wait()
				m.compare("afterwards")
			}
		})
	}
}

// TestCancelledWorkOnPages cancels seals, imports, deletes and their background work at random steps, with canceled
// queries in between. Once each operation was repeated, answers must contain all written samples.
func TestCancelledWorkOnPages(t *testing.T) {
	t.Parallel()
	for name, open := range cutEngines {
		t.Run(name, func(t *testing.T) {
			m := newCutModel(t, open(t))
			for range soak.Times(t, 20) {
				m.now = m.now.Add(time.Duration(m.r.IntN(4)) * time.Hour)
				m.cutStep()
				if m.r.IntN(4) == 0 {
					m.reopen()
				}
			}
			m.compare("at the end")
		})
	}
}

// repeated calls do up to two times with a context that is canceled at some step. If both calls fail, it calls do with
// a context that isn't canceled, and requires success.
func (m *cutModel) repeated(do func(context.Context) error) {
	for range 2 {
		if m.ending(1+m.r.IntN(150), do) == nil {
			return
		}
		_ = m.ending(1+m.r.IntN(80), func(ctx context.Context) error { return m.queryAny(ctx) })
	}
	require.NoError(m.t, do(m.t.Context()))
}

// queryAny is like query, but accepts any answer, because samples may be written at the same time.
func (m *cutModel) queryAny(ctx context.Context) error {
	found, err := m.Select(ctx, query.Query{
		Tenant: "default", MinT: -format.MaxTime, MaxT: format.MaxTime,
		Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, "m|n")},
	})
	for i := 0; i < len(found) && err == nil; i++ {
		err = found[i].Samples(&chunk.Samples{})
	}
	return err
}

func (m *cutModel) cutStep() {
	groups := []string{"abcd", "a", "b", "cd", "ab"}[m.r.IntN(5)]
	ago := time.Duration(1+m.r.IntN(40)) * time.Hour
	value := float64(m.r.IntN(100))
	switch m.r.IntN(6) {
	case 0, 1, 2:
		m.of(groups, value, ago, ago+time.Minute)
		m.repeated(m.SealAll)
	case 3:
		for _, ls := range seriesOfGroups(groups) {
			m.note(ls, sample{m.now.Add(-ago).UnixMilli(), value})
		}
		m.repeated(func(ctx context.Context) error {
			var list []ImportedSeries
			for _, ls := range seriesOfGroups(groups) {
				samples := &chunk.Samples{}
				samples.AppendFloat(m.now.Add(-ago).UnixMilli(), 0, value)
				list = append(list, ImportedSeries{ls, samples})
			}
			_, err := m.Import(ctx, "default", list)
			return err
		})
	case 4:
		start, end := m.now.Add(-ago-2*time.Hour).UnixMilli(), m.now.Add(-ago).UnixMilli()
		m.repeated(func(ctx context.Context) error {
			return m.Delete(ctx, "default", start, end, equal("group", groups[:1]))
		})
		m.delete(ago+2*time.Hour, ago, equal("group", groups[:1]))
		m.repeated(func(ctx context.Context) error { return m.WorkOffDeletes(ctx, "default") })
	default:
		m.repeated(func(ctx context.Context) error { return m.CleanTombstones(ctx, "default") })
	}
	m.compare("repeated")
}

// note records a sample in the model. Of multiple samples with one time, the model keeps the highest value.
func (m *cutModel) note(ls labels.Labels, x sample) {
	name := ls.String()
	if m.want[name] == nil {
		m.want[name] = map[int64]float64{}
	}
	if old, ok := m.want[name][x.t]; !ok || x.v > old {
		m.want[name][x.t] = x.v
	}
}
