package promql

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// TestLargeValuesLeaveOutOnlyTheirOwnSums checks queries of values that are so large that their sum may overflow,
// infinite values, NaN, and the smallest floats. After raw samples have expired, functions that don't add values must
// have the same answers as before. Sums must also have the same answers, unless they depend on the order of addition.
func TestLargeValuesLeaveOutOnlyTheirOwnSums(t *testing.T) {
	t.Parallel()
	const most, tiny = math.MaxFloat64, math.SmallestNonzeroFloat64
	inf := math.Inf(1)
	sums, overflowing := []string{"sum_over_time", "avg_over_time"}, []string{"avg_over_time"}
	added := append([]string{"increase", "rate"}, sums...)
	store := openRolled(t, memory.New(), 5*24*time.Hour, 0)
	series := []struct {
		name   string
		values []float64 // once, among small values
		// missing are the functions that have no value, in addition to deviations and lines.
		missing []string
		// all is the value of all other samples, if it isn't 0.
		all float64
	}{
		{"large", []float64{1e300}, nil, 0},
		{"negative", []float64{-1e300}, nil, 0},
		{"largest", []float64{most}, nil, 0},
		{"lowest", []float64{-most}, nil, 0},
		{"overflow", []float64{most, most}, overflowing, 0},
		{"underflow", []float64{-most, -most}, overflowing, 0},
		{"opposite", []float64{most, -1e300}, added, 0},
		{"with_nan", []float64{math.NaN(), most}, nil, 0},
		{"with_inf", []float64{inf, 1e300}, overflowing, 0},
		{"with_negative_inf", []float64{1e300, -inf}, added, 0},
		{"infinite", []float64{inf}, nil, 0},
		{"infinities", []float64{inf, -inf}, nil, 0},
		{"denormal", []float64{tiny, -tiny, 3 * tiny}, nil, 0},
		{"constant", nil, nil, most},
	}
	for _, s := range series {
		for i := range int64(8 * 60) {
			v := float64(i % 7)
			if s.all != 0 {
				v = s.all
			}
			if k := int(i - 190); k >= 0 && k < 2*len(s.values) && k%2 == 0 {
				v = s.values[k/2]
			}
			storagetest.Write(t, store.Store, "default", labels.FromStrings(labels.MetricName, s.name),
				storagetest.FloatSample{T: someDay + i*minute + 1000, V: v})
		}
	}
	require.NoError(t, store.SealAll(t.Context()))
	r := newRivals(t, NewQueryable(store.Store), nil)
	functions := strings.Fields("count_over_time min_over_time max_over_time first_over_time last_over_time " +
		"changes resets delta present_over_time ts_of_first_over_time ts_of_last_over_time sum_over_time " +
		"avg_over_time increase rate stddev_over_time stdvar_over_time deriv")
	var asks []asked
	for _, s := range series {
		for _, fn := range functions {
			text := fmt.Sprintf("%s(%s[2h])", fn, s.name)
			asks = append(asks, asked{text: text, start: someDay + 2*hour, end: someDay + 8*hour, step: time.Hour})
		}
	}
	answers := func(mode string) (all []answer) {
		for _, a := range asks {
			r.ctx = newRollupContext(t, mode)
			got, _ := r.answerOf(a)
			all = append(all, got)
		}
		return all
	}
	want := answers("raw")
	(&rollupContest{t: t, store: store}).passes(time.UnixMilli(someDay + 7*day))
	left := 0
	for i, got := range answers("exact") {
		s, fn, text := series[i/len(functions)], functions[i%len(functions)], asks[i].text
		mayMiss := slices.Contains(s.missing, fn) ||
			len(s.values) > 0 && (strings.HasPrefix(fn, "std") || fn == "deriv")
		require.Len(t, want[i].rows, 1, text)
		has := map[int64]float64{}
		for _, row := range got.rows {
			for _, p := range row.Floats {
				has[p.T] = p.F
			}
		}
		for _, p := range want[i].rows[0].Floats {
			at := (p.T - someDay) / hour
			v, ok := has[p.T]
			if !ok {
				require.True(t, mayMiss && (at == 4 || at == 5), "%s has no value at %d h", text, at)
				require.Contains(t, strings.Join(got.notes, " "), "steps that need raw samples have no value", text)
				left++
				continue
			}
			largest := 7.
			for _, v := range append(s.values, s.all) {
				if !math.IsInf(v, 0) && v == v && (at == 4 || at == 5 || s.all != 0) {
					largest = max(largest, math.Abs(v))
				}
			}
			require.True(t, within(p.F, v, largest), "%s at %d h: %v, not %v", text, at, v, p.F)
		}
		require.LessOrEqual(t, len(has), len(want[i].rows[0].Floats), text)
	}
	require.NotZero(t, left)
}
