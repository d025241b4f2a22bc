package counts

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/format"
)

// TestValueCounterGoesThroughSeriesAgain counts values in multiple passes, and compares the result with that of a
// single pass.
func TestValueCounterGoesThroughSeriesAgain(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 7))
	var rows [][]byte
	want := map[string]map[string]uint64{}
	for i := range 3000 {
		lb := labels.NewScratchBuilder(8)
		lb.Add(labels.MetricName, "m")
		for _, l := range [][2]string{
			{"few", fmt.Sprint(i % 3)}, {"id", fmt.Sprint(i)},
			{"long", strings.Repeat("x", 40) + fmt.Sprint(rng.IntN(900))},
			{fmt.Sprintf("rare_%d", i%50), fmt.Sprint(rng.IntN(4))},
		} {
			lb.Add(l[0], l[1])
			if want[l[0]] == nil {
				want[l[0]] = map[string]uint64{}
			}
			want[l[0]][l[1]]++
		}
		lb.Sort()
		rows = append(rows, format.AppendLabels(nil, lb.Labels()))
	}
	passesOf := map[int]int{}
	for _, limit := range []int{1 << 30, 100_000, 20_000, 3000} {
		c, passes := newValueCounter(limit, maxCountedValues), 1
		for ; ; passes++ {
			for _, row := range rows {
				require.NoError(t, c.add(row))
				require.LessOrEqual(t, c.used, limit)
			}
			if !c.endPass() {
				break
			}
		}
		passesOf[limit] = passes
		list := c.labels()
		require.Len(t, list, len(want))
		for _, l := range list {
			require.EqualValues(t, len(want[l.Name]), l.Count, l.Name)
			var all []Count
			for value, n := range want[l.Name] {
				all = append(all, Count{Name: value, Count: n})
			}
			slices.SortFunc(all, format.CompareCounts)
			require.Equal(t, all[:min(len(all), maxCountedValues)], l.Values, l.Name)
		}
	}
	require.Equal(t, 1, passesOf[1<<30])
	require.Greater(t, passesOf[20_000], passesOf[100_000])
	require.Greater(t, passesOf[3000], 50)
	require.Error(t, newValueCounter(100, maxCountedValues).add([]byte{9}))
}

// TestTooManyLabels checks that counting stops above the maximum number of label names.
func TestTooManyLabels(t *testing.T) {
	c := newValueCounter(1<<30, maxCountedValues)
	for i := range maxCountedLabels + 1 {
		require.False(t, c.tooMany)
		require.NoError(t, c.add(format.AppendLabels(nil, labels.FromStrings(fmt.Sprint("l", i), "x"))))
	}
	require.True(t, c.tooMany)
}

// TestBoundCounts checks that the smallest counts are removed if not all fit in a batch.
func TestBoundCounts(t *testing.T) {
	list := func(n, length int) (list []Count) {
		for i := range n {
			list = append(list, Count{
				Name: fmt.Sprintf("%06d%s", i, strings.Repeat("x", length)), Count: uint64(n - i + 1<<40),
			})
		}
		return list
	}
	all := &format.Counts{Metrics: list(100_000, 5)}
	for _, l := range list(5000, 30) {
		all.Labels = append(all.Labels, format.LabelCounts{NamedCount: l, Values: list(maxCountedValues, 10)})
	}
	all.AllMetrics, all.AllLabels = uint64(len(all.Metrics)), uint64(len(all.Labels))
	metrics, names := slices.Clone(all.Metrics), slices.Clone(all.Labels)
	limitCounts(all)
	rows, err := format.EncodeCounts(all)
	require.NoError(t, err)
	require.Greater(t, len(rows), 3)
	require.Greater(t, len(all.Metrics), 15_000)
	require.Equal(t, metrics[:len(all.Metrics)], all.Metrics)
	require.Greater(t, len(all.Labels), 2000)
	for i, l := range all.Labels {
		require.Equal(t, names[i].NamedCount, l.NamedCount)
		require.Equal(t, names[i].Values[:len(l.Values)], l.Values)
	}
	q := SeriesQuery{Label: all.Labels[3].Name, Limit: len(all.Labels[3].Values)}
	_, ok := answerFromCounts(all, q)
	require.True(t, ok)
	q.Limit++
	_, ok = answerFromCounts(all, q)
	require.False(t, ok, "there are more values")
	_, ok = answerFromCounts(all, SeriesQuery{Label: names[len(names)-1].Name, Limit: 1})
	require.False(t, ok, "the label was left out")
	_, ok = answerFromCounts(all, SeriesQuery{Limit: len(all.Metrics) + 1})
	require.False(t, ok)
	_, ok = answerFromCounts(all, SeriesQuery{Limit: 1, Metric: "m"})
	require.False(t, ok)
}
