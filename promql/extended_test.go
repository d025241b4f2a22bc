package promql

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/promql/resolution"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/soak"
	"github.com/cassia-db/cassia/storage/tenant"
)

// extendedKinds are the kinds of series of TestExtendedRangesAreWithinTheirInfos.
var extendedKinds = []string{"counter", "resets", "falling", "walk", "noise", "two values", "steps", "nan", "infinite",
	"infinite counter", "stale", "sparse", "started", "deltas", "few", "large", "cancelling", "huge", "huge resets",
	"huge nan"}

// extendedValue returns the value of sample i of a kind.
func extendedValue(r *rand.Rand, kind string, i int, v float64) float64 {
	switch kind {
	case "counter", "stale", "sparse":
		return v + float64(r.IntN(100))
	case "resets", "started":
		if r.IntN(30) == 0 {
			return float64(r.IntN(3))
		}
		return v + r.Float64()*10
	case "falling":
		return 1e6 - float64(i) - r.Float64()
	case "walk":
		return v + r.NormFloat64()
	case "two values":
		return float64(r.IntN(2))
	case "steps":
		return float64(r.IntN(3) * (i / 50 % 5))
	case "deltas", "few":
		return float64(r.IntN(50))
	case "cancelling":
		if r.IntN(200) == 0 {
			return 1e20 * float64(1-2*r.IntN(2))
		}
		return r.Float64()
	case "huge":
		return math.Round(r.NormFloat64()*8) * 1e20
	case "huge resets":
		if r.IntN(30) == 0 {
			return float64(r.IntN(3))
		}
		if r.IntN(100) == 0 {
			return v + 1e20
		}
		return v + r.Float64()*10
	case "huge nan":
		if r.IntN(20) == 0 {
			return math.NaN()
		}
		return 1e20 * r.Float64()
	case "large":
		if r.IntN(200) == 0 {
			return 1e300
		}
	case "nan":
		if r.IntN(20) == 0 {
			return math.NaN()
		}
	case "infinite":
		if r.IntN(100) == 0 {
			return math.Inf(1 - 2*r.IntN(2))
		}
	case "infinite counter":
		if r.IntN(200) == 0 {
			return math.Inf(1)
		}
		if math.IsInf(v, 1) {
			v = 0
		}
		return v + 1
	}
	return math.Round(r.NormFloat64()*1e3) / 10
}

// extendedSeries returns one series of each kind.
func extendedSeries(seed uint64) func(begin time.Time) []storage.ImportedSeries {
	return func(begin time.Time) (all []storage.ImportedSeries) {
		r := rand.New(rand.NewPCG(seed, 8))
		for _, kind := range extendedKinds {
			var s chunk.Samples
			v, start := 0.0, begin.UnixMilli()
			for i := range 10 * 24 * 60 {
				at := begin.Add(time.Duration(i+1) * time.Minute).UnixMilli()
				before := v
				v = extendedValue(r, kind, i, v)
				switch kind {
				case "started":
					if v < before || r.IntN(100) == 0 {
						start = at - 1 - r.Int64N(59_000)
					}
					s.AppendFloat(at, start, v)
				case "deltas":
					if r.IntN(20) > 0 {
						s.AppendFloat(at, at-60_000, v)
					}
				case "stale":
					if r.IntN(50) == 0 {
						s.AppendFloat(at, 0, math.Float64frombits(value.StaleNaN))
						continue
					}
					s.AppendFloat(at, 0, v)
				case "sparse", "few":
					if r.IntN(map[string]int{"sparse": 9, "few": 3}[kind]) == 0 {
						s.AppendFloat(at-r.Int64N(30_000), 0, v)
					}
				default:
					s.AppendFloat(at, 0, v)
				}
			}
			name := "x_" + strings.ReplaceAll(kind, " ", "_")
			all = append(all, storage.ImportedSeries{Labels: labels.FromStrings("__name__", name), Samples: &s})
		}
		return all
	}
}

// extendedFunctions are functions that are exact or have a bounded error over windows that start and end at bucket
// edges.
var extendedFunctions = []string{"increase %s anchored", "increase %s smoothed", "rate %s anchored", "rate %s smoothed",
	"delta %s anchored", "delta %s smoothed", "changes %s anchored", "resets %s anchored",
	"increase %s", "rate %s", "delta %s", "changes %s", "resets %s"}

// TestExtendedRangesAreWithinTheirInfos checks anchored, smoothed and other ranges that start and end at bucket edges,
// over all kinds of series, after raw samples have expired. Without an info, the values must equal the values of raw
// samples. With an info, they may differ by no more than it states.
func TestExtendedRangesAreWithinTheirInfos(t *testing.T) {
	t.Parallel()
	seed := soak.Seed(t)
	r := rand.New(rand.NewPCG(seed, 7))
	a := newAgedStores(t, extendedSeries(seed))
	var engines [2]*Engine
	for i := range engines {
		o := DefaultOptions()
		o.Parser, o.StartTimestamps = allSyntax, i == 1
		engines[i] = NewEngine(o)
		defer engines[i].Close()
	}
	outcomes := map[string]int{}
	for range soak.Amount(t, 300, 20_000) {
		fn, kind := oneOf(r, extendedFunctions...), oneOf(r, extendedKinds...)
		name, modifier, _ := strings.Cut(fn, " %s")
		hours := 1 + r.IntN(8)
		query := fmt.Sprintf("%s(x_%s[%dh]%s)", name, strings.ReplaceAll(kind, " ", "_"), hours, modifier)
		if r.IntN(4) == 0 {
			query = "sum(" + query + ")"
		}
		from := a.now.Add(-time.Duration(1+r.IntN(9)) * 24 * time.Hour).Add(time.Duration(r.IntN(24)) * time.Hour)
		to := from.Add(time.Duration(r.IntN(12)) * time.Hour)
		e := engines[r.IntN(2)]
		outcomes[a.compareExtended(t, e, a.aged, query, from, to, time.Hour)]++
	}
	t.Log(outcomes)
	require.Greater(t, outcomes["exact"], 100)
	require.Positive(t, outcomes["bounded"])
}

// TestExtendedRangesOverTheLimitsOfRetention checks that retention boundaries that cut buckets don't change the values
// of anchored and smoothed ranges.
func TestExtendedRangesOverTheLimitsOfRetention(t *testing.T) {
	t.Parallel()
	seed := soak.Seed(t)
	r := rand.New(rand.NewPCG(seed, 9))
	a := newAgedStores(t, extendedSeries(seed))
	o := DefaultOptions()
	o.Parser = allSyntax
	e := NewEngine(o)
	defer e.Close()
	outcomes := map[string]int{}
	for range soak.Amount(t, 3, 100) {
		var limits []time.Time
		within := time.Duration(r.Int64N(3600_000)) * time.Millisecond
		cut := a.open(within, func(o *storage.Options) {
			o.Retention, o.Retention5m = 48*time.Hour, 6*24*time.Hour
			limits = []time.Time{a.now.Add(within - o.Retention), a.now.Add(within - o.Retention5m)}
		})
		for range 150 {
			fn, kind, unit := oneOf(r, extendedFunctions[:8]...), oneOf(r, extendedKinds...), time.Hour
			name, modifier, _ := strings.Cut(fn, " %s")
			limit := oneOf(r, limits...)
			if limit == limits[0] && r.IntN(2) == 0 {
				unit = 5 * time.Minute
			}
			width := time.Duration(1+r.IntN(8)) * unit
			query := fmt.Sprintf("%s(x_%s[%dm]%s)", name, strings.ReplaceAll(kind, " ", "_"), int(width.Minutes()),
				modifier)
			from := limit.Truncate(unit).Add(time.Duration(r.IntN(4)) * unit)
			to := from.Add(time.Duration(r.IntN(6)) * unit)
			outcome := a.compareExtended(t, e, cut, query, from, to, unit)
			outcomes[outcome]++
			if limit == limits[1] {
				outcomes[outcome+" from 1h buckets"]++
			}
		}
	}
	t.Log(outcomes)
	for _, outcome := range []string{"exact", "exact from 1h buckets"} {
		require.Greater(t, outcomes[outcome], 50, outcome)
		require.Positive(t, outcomes[strings.Replace(outcome, "exact", "bounded", 1)], outcome)
	}
}

// compareExtended compares the values of an anchored, smoothed or other range with the values of raw samples. Without
// an info they must be equal. With an info they may differ by no more than it states. It returns exact, bounded or
// unbounded.
func (a *agedStores) compareExtended(t *testing.T, e *Engine, aged *storage.Store, query string, from, to time.Time,
	step time.Duration) string {
	t.Helper()
	ctx := tenant.NewContext(t.Context(), "default")
	want, _ := a.points(t, e, a.whole, ctx, query, from, to, step)
	got, notes := a.points(t, e, aged, ctx, query, from, to, step)
	var texts []string
	for _, err := range notes {
		texts = append(texts, err.Error())
	}
	each, _, isBounded := valueBounds(t, texts)
	what := "exact"
	switch isTold := strings.Contains(strings.Join(texts, " "), "raw samples before"); {
	case isTold && !isBounded:
		require.Contains(t, query, "x_infinite", "only increases of infinite values have no bound: %q", texts)
		return "unbounded"
	case isBounded:
		what = "bounded"
	}
	largest := 1.0
	if strings.Contains(query, "x_large") {
		largest = 1e300
	} else if strings.Contains(query, "x_falling") {
		largest = 1e7
	}
	require.Len(t, got, len(want), query)
	for series, values := range want {
		require.Len(t, got[series], len(values), query)
		for at, v := range values {
			x := got[series][at]
			if v == x || v != v && x != x || math.Abs(v-x) <= each+1e-11*max(largest, math.Abs(v)) {
				continue
			}
			require.Fail(t, "off", "%s at %s: %v, not %v: %s, %q", query, time.UnixMilli(at).UTC(), x, v, what, texts)
		}
	}
	return what
}

// TestErrorsOfExtendedRangesOverflow checks that a sum of errors that overflows, within a series or over all series, is
// no bound.
func TestErrorsOfExtendedRangesOverflow(t *testing.T) {
	for _, series := range [][][]bucketError{
		{{{end: 1, by: math.MaxFloat64}, {end: 2, by: math.MaxFloat64}}},
		{{{end: 1, by: math.MaxFloat64}}, {{end: 1, by: math.MaxFloat64}}},
	} {
		e := &extendedErrors{extendedRange: extendedRange{width: 10}}
		var last error
		for _, list := range series {
			e.add(list, func(err error) { last = err })
		}
		var missing *resolution.MissingError
		require.ErrorAs(t, last, &missing)
		require.True(t, missing.Shortfall.ErrorBound.Unknown)
	}
}
