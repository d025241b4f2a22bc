package promql

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/tenant"
)

var (
	statedEach = regexp.MustCompile(`differ by at most ([0-9.e+-]+)`)
	statedSum  = regexp.MustCompile(`the sum of all series by at most ([0-9.e+-]+)`)
)

// valueBounds returns the bounds of values in an info: for a series, and for sums of series.
func valueBounds(t *testing.T, notes []string) (each, sum float64, ok bool) {
	for _, note := range notes {
		if m := statedEach.FindStringSubmatch(note); m != nil {
			each = numberOf(t, m[1])
			sum = each
			if m := statedSum.FindStringSubmatch(note); m != nil {
				sum = numberOf(t, m[1])
			}
			return each, sum, true
		}
		if strings.Contains(note, "no value differs by that") {
			return 0, 0, true
		}
	}
	return 0, 0, false
}

// numberOf parses a number. A bound that was rounded up beyond the largest float64 is returned as infinity.
func numberOf(t *testing.T, text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	if !errors.Is(err, strconv.ErrRange) {
		require.NoError(t, err)
	}
	return v
}

// beyond describes a value of a fragment that differs from the value of raw samples by more than the bound in the info.
// It returns "" if there is no such value.
func (d *rollupDuel) beyond(c candidate, want, got answer) string {
	each, sum, ok := valueBounds(d.t, got.notes)
	if !ok || c.over != nil && c.over.expr.Op != parser.SUM {
		return ""
	}
	bound := each
	if c.over != nil {
		bound = sum
	}
	d.outcomes["bounded"]++
	wanted := valuesOf(want.rows)
	for at, v := range valuesOf(got.rows) {
		w, ok := wanted[at]
		if !ok || v.h != nil || w.h != nil || v.f == w.f || math.IsNaN(v.f) || math.IsNaN(w.f) {
			continue
		}
		if math.Abs(v.f-w.f) <= bound+tolerance*d.truths.boundOf(c)(v.metric, at.t) {
			continue
		}
		return fmt.Sprintf("%s has %v at %d, not %v: more than %v away, which the info says: %q", v.metric, v.f, at.t,
			w.f, bound, got.notes)
	}
	return ""
}

// TestInfosBoundValues checks the bound in the info about a series that increases only at full hours. The samples
// between a requested edge and the edge used may account for most of a value, even if the shift of the edge is small.
// The bound must include these samples.
func TestInfosBoundValues(t *testing.T) {
	a := newAgedStores(t, func(begin time.Time) []storage.ImportedSeries {
		var s chunk.Samples
		for i := range 10 * 24 * 240 {
			s.AppendFloat(begin.Add(time.Duration(i)*15*time.Second).UnixMilli(), 0, float64(i/240*1000))
		}
		return []storage.ImportedSeries{{Labels: labels.FromStrings("__name__", "hourly_total", "job", "j"),
			Samples: &s}}
	})
	e := NewEngine(DefaultOptions())
	defer e.Close()
	exact, err := WithResolution(tenant.NewContext(t.Context(), "default"), "exact", 0)
	require.NoError(t, err)
	auto := tenant.NewContext(t.Context(), "default")
	from, to := a.now.Add(-8*24*time.Hour), a.now.Add(-24*time.Hour)
	for _, store := range []*storage.Store{a.whole, a.aged} {
		for _, query := range []string{"increase(hourly_total[1h30s])", "rate(hourly_total[2h45s])",
			"sum(increase(hourly_total[1h30s]))", "max_over_time(hourly_total[1h30s])"} {
			want, none := a.points(t, e, a.whole, exact, query, from, to, time.Hour)
			require.Empty(t, none)
			got, notes := a.points(t, e, store, auto, query, from, to, time.Hour)
			require.Len(t, notes, 1, query)
			require.ErrorContains(t, notes[0], "% of the range)", query)
			each, _, ok := valueBounds(t, []string{notes[0].Error()})
			require.True(t, ok, notes[0])
			most := 0.0
			for series, values := range want {
				for at, v := range values {
					most = max(most, math.Abs(v-got[series][at]))
				}
			}
			require.LessOrEqual(t, most, each, "%s: %s", query, notes[0])
			if !strings.HasPrefix(query, "max") {
				require.Greater(t, most, 0.3*want[firstKey(want)][to.UnixMilli()], "it isn't far off")
			}
			require.LessOrEqual(t, each, 3*most+1e-9, "the bound is that of the edges, and no more: %s", notes[0])
		}
	}
}

func firstKey(all map[string]map[int64]float64) string {
	for key := range all {
		return key
	}
	return ""
}
