package promql

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/storagetest"
	"github.com/cassia-db/cassia/storage/tenant"
)

// agedStores are two stores with the same samples, one per minute for ten days. One keeps them indefinitely. The other
// keeps raw samples for two days and 5m rollups for six.
type agedStores struct {
	whole, aged *storage.Store
	now         time.Time
	// open returns another store with the same samples, and then advances its clock by older.
	open func(older time.Duration, change func(*storage.Options)) *storage.Store
}

// newAgedStores returns stores that also contain the series that the functions in more return.
func newAgedStores(t *testing.T, more ...func(begin time.Time) []storage.ImportedSeries) *agedStores {
	const day = 24 * time.Hour
	a := &agedStores{now: time.Date(2026, 5, 11, 0, 0, 0, 0, time.UTC)}
	begin := a.now.Add(-10 * day)
	var sine, steady, bursty chunk.Samples
	c, burst := 0.0, 0.0
	for i := range 10 * 24 * 60 {
		at := begin.Add(time.Duration(i+1) * time.Minute)
		if c += 120; i%5000 == 4999 {
			c = 0 // A restart.
		}
		if i%17 == 0 {
			burst += float64(i % 1000)
		}
		sine.AppendFloat(at.UnixMilli(), 0, 50+50*math.Sin(2*math.Pi*float64(at.Unix())/(4*3600)))
		steady.AppendFloat(at.UnixMilli(), 0, c)
		bursty.AppendFloat(at.UnixMilli(), 0, burst)
	}
	a.open = func(older time.Duration, change func(*storage.Options)) *storage.Store {
		clock := begin.Add(time.Hour)
		store := storagetest.Open(
			t, memory.New(), storagetest.Clock(func() time.Time { return clock }), storagetest.KeepForever, change,
		)
		clock = a.now
		for _, name := range []string{"default", "ta", "tb"} {
			series := []storage.ImportedSeries{
				{Labels: labels.FromStrings("__name__", "sine", "job", "j"), Samples: clone(&sine)},
				{Labels: labels.FromStrings("__name__", "c", "job", "j"), Samples: clone(&steady)},
				{Labels: labels.FromStrings("__name__", "bursty", "job", "j"), Samples: clone(&bursty)},
			}
			for _, list := range more {
				series = append(series, list(begin)...)
			}
			_, err := store.Import(t.Context(), name, series)
			require.NoError(t, err)
		}
		clock = clock.Add(older)
		return store
	}
	a.whole = a.open(0, func(*storage.Options) {})
	a.aged = a.open(0, func(o *storage.Options) { o.Retention, o.Retention5m = 2*day, 6*day })
	return a
}

func clone(s *chunk.Samples) *chunk.Samples {
	var c chunk.Samples
	c.AppendAll(s)
	return &c
}

// points returns the values of a range query by series and time.
func (a *agedStores) points(t *testing.T, e *Engine, store *storage.Store, ctx context.Context,
	query string, from, to time.Time, step time.Duration) (map[string]map[int64]float64, []error) {
	t.Helper()
	q, err := e.NewRangeQuery(ctx, NewQueryable(store), nil, query, from, to, step)
	require.NoError(t, err)
	defer q.Close()
	r := q.Exec(ctx)
	require.NoError(t, r.Err, query)
	m, err := r.Matrix()
	require.NoError(t, err)
	found := map[string]map[int64]float64{}
	for _, s := range m {
		of := map[int64]float64{}
		for _, p := range s.Floats {
			of[p.T] = p.F
		}
		found[s.Metric.String()] = of
	}
	return found, r.Warnings.AsErrors()
}

// pastThePlanner maps a reason why the planner doesn't answer a query to the settings of the query.
var pastThePlanner = map[string]struct {
	tenants string
	set     func(*Options)
}{
	"evaluator":            {"default", func(o *Options) { o.NoPlanner = true }},
	"several tenants":      {"ta|tb", func(*Options) {}},
	"delayed name removal": {"default", func(o *Options) { o.DelayedNameRemoval = true }},
	"start timestamps":     {"default", func(o *Options) { o.StartTimestamps = true }},
}

// TestAnswersPastThePlannerWhereRawIsGone checks that queries that the planner doesn't answer read samples made from
// buckets for times without raw samples. If windows consist of whole buckets, the answer is the same as from the
// original samples. Otherwise it is close, and has an info.
func TestAnswersPastThePlannerWhereRawIsGone(t *testing.T) {
	a := newAgedStores(t)
	exact := []string{ // At steps and ranges that are multiples of the buckets.
		"rate(c[1h])", "increase(c[1h])", "resets(c[1h])", "changes(c[1h])", "delta(c[1h] offset 1h)",
		"max_over_time(sine[1h])", "min_over_time(sine[1h])", "avg_over_time(sine[1h])", "sum_over_time(sine[1h])",
		"count_over_time(sine[1h])",
		"increase(bursty[1h])", "avg_over_time(bursty[1h])", "last_over_time(sine[1h])", "first_over_time(sine[1h])",
		"present_over_time(sine[1h])",
		"sine", "timestamp(sine)", "increase(c[1h] anchored)", "rate(c[1h] smoothed)",
	}
	same := []string{ // At any steps and ranges: only the presence of values is compared.
		"absent(sine)", "absent_over_time(sine[10m])", "absent(rate(c[5m]))", "absent(none)", "limitk(1, sine) * 0",
		"count(info(rate(c[5m])))", "sine * 0",
		"count_over_time(sine[5m])", "rate(c[5m])", "present_over_time(c[2m])",
	}
	for name, way := range pastThePlanner {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := DefaultOptions()
			o.Parser = allSyntax
			way.set(&o)
			e := NewEngine(o)
			defer e.Close()
			o.NoPlanner = true
			reference := NewEngine(o)
			defer reference.Close()
			ctx := tenant.NewContext(t.Context(), way.tenants)
			for zone, from := range map[string]time.Time{"1h": a.now.Add(-8 * 24 * time.Hour),
				"5m": a.now.Add(-4 * 24 * time.Hour)} {
				compare := func(query string, to time.Time, step time.Duration, within float64) {
					t.Helper()
					want, _ := a.points(t, reference, a.whole, ctx, query, from, to, step)
					got, notes := a.points(t, e, a.aged, ctx, query, from, to, step)
					require.Len(t, got, len(want), "%s, %s", query, zone)
					for series, values := range want {
						require.Len(t, got[series], len(values), "%s of %s, %s", query, series, zone)
						for at, v := range values {
							require.InEpsilon(t, v+1, got[series][at]+1, within, "%s of %s at %s, %s", query, series,
								time.UnixMilli(at).UTC(), zone)
						}
					}
					for _, err := range notes {
						require.NotContains(t, err.Error(), "%!", query)
					}
				}
				for _, query := range exact {
					compare(query, from.Add(5*time.Hour), time.Hour, 1e-9)
				}
				if name != "evaluator" { // Samples made from buckets have another deviation.
					compare("stddev_over_time(sine[1h])", from.Add(5*time.Hour), time.Hour, 1e-12)
					compare("stdvar_over_time(bursty[2h])", from.Add(5*time.Hour), time.Hour, 1e-12)
					for _, query := range []string{"quantile_over_time(0.9, sine[2h])",
						"quantile_over_time(0.1, bursty[1h])"} {
						compare(query, from.Add(5*time.Hour), time.Hour, 0.01)
					}
				}
				for _, query := range same {
					compare(query, from.Add(2*time.Hour), 5*time.Minute, 1e-9)
				}
			}
			report := &Report{}
			a.points(t, e, a.aged, report.Into(ctx), "absent(sine)", a.now.Add(-8*24*time.Hour), a.now, time.Hour)
			if name == "evaluator" {
				require.Contains(t, report.Resolution(), "1h approximate, 5m approximate", "the header tells")
			} else {
				require.Equal(t, "1h", report.Resolution(), "the header tells")
			}
			_, notes := a.points(t, e, a.aged, ctx, "quantile_over_time(0.9, sine[1h])", a.now.Add(-8*24*time.Hour),
				a.now.Add(-8*24*time.Hour), time.Hour)
			require.Len(t, notes, 1, "what is approximate is told")
			if name == "evaluator" {
				require.ErrorContains(t, notes[0], "samples reconstructed from buckets")
			} else {
				require.ErrorContains(t, notes[0],
					"quantiles are computed from sketches in buckets of up to 1h, with each sample within 1 % of its value")
			}
			for _, query := range []string{"quantile_over_time(0.9, sine[5m])", "sine", "count(info(sine))",
				"double_exponential_smoothing(sine[5m], 0.5, 0.5)"} {
				_, notes = a.points(t, e, a.aged, ctx, query, a.now.Add(-48*time.Hour+5*time.Minute), a.now, time.Hour)
				require.Empty(t, notes,
					"%s: all samples of the windows are there, only those before the first are gone", query)
			}
		})
	}
}

// TestWindowsAreMovedByLittleAndTold checks that windows are moved by at most 1% of their range while raw samples
// exist, with an info, and only if the value doesn't depend on single samples. In instant queries, including their
// subqueries, windows are never moved.
func TestWindowsAreMovedByLittleAndTold(t *testing.T) {
	a := newAgedStores(t)
	o := DefaultOptions()
	e := NewEngine(o)
	defer e.Close()
	o.NoSnap = true
	off := NewEngine(o)
	defer off.Close()
	exact, err := WithResolution(tenant.NewContext(t.Context(), "default"), "exact", 0)
	require.NoError(t, err)
	auto := tenant.NewContext(t.Context(), "default")
	from, to := a.now.Add(-8*24*time.Hour), a.now
	for _, query := range []string{
		"last_over_time(sine[1d])", "first_over_time(sine[20h30m])", "present_over_time(sine[1d])", "delta(sine[6h])",
		"avg_over_time(sine[70m])",
	} {
		want, _ := a.points(t, e, a.whole, exact, query, from.Add(7*time.Minute), to, 17*time.Minute)
		got, notes := a.points(t, e, a.whole, auto, query, from.Add(7*time.Minute), to, 17*time.Minute)
		require.Empty(t, notes, query)
		require.Equal(t, len(want), len(got))
		for series, values := range want {
			for at, v := range values {
				require.InDelta(t, v, got[series][at], 1e-9*(1+math.Abs(v)), query)
			}
		}
	}
	const moved = "avg_over_time(sine[1h15s])"
	_, notes := a.points(t, e, a.whole, auto, moved, from, to, time.Hour)
	require.Len(t, notes, 1)
	require.ErrorContains(t, notes[0], "edges of 1h0m15s windows are moved by up to 15s (0.41 % of the range)")
	_, notes = a.points(t, off, a.whole, auto, moved, from, to, time.Hour)
	require.Empty(t, notes)
	for _, query := range []string{"avg_over_time(sine[5d15s])", "max_over_time(avg_over_time(sine[1h15s])[8d:1h])"} {
		q, err := e.NewInstantQuery(auto, NewQueryable(a.whole), nil, query, to.Add(-7*time.Minute))
		require.NoError(t, err)
		r := q.Exec(auto)
		require.NoError(t, r.Err)
		require.Empty(t, r.Warnings, query)
		q.Close()
	}
}
