package index

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/meter"
)

// workMeter is a meter that calls a function at each call of Working.
type workMeter struct {
	meter.Meter
	working func()
}

func (w workMeter) Working(context.Context, any) { w.working() }

// pods returns n series, each with a unique value of the label pod.
func pods(n int) []labels.Labels {
	series := make([]labels.Labels, n)
	for i := range series {
		series[i] = labels.FromStrings(
			labels.MetricName, "up", "pod", fmt.Sprintf("pod-%d", i*7919%n), "zone", fmt.Sprint("z", i%2),
		)
	}
	return series
}

func oneMatcher(kind labels.MatchType, name, value string) (Prepared, []*labels.Matcher) {
	ms := []*labels.Matcher{labels.MustNewMatcher(kind, name, value)}
	return Prepare(ms), ms
}

// TestColumnsListTheSeriesOfEachValue checks the values and positions in columns of many sizes. Some columns are sorted
// in multiple runs, and some of these have an odd number of runs.
func TestColumnsListTheSeriesOfEachValue(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{smallSet + 1, stretch, stretch + 1, 2 * stretch, 5*stretch + 7} {
		for _, distinct := range []int{1, 50, 10 * n} {
			want := map[string][]uint32{}
			series := make([]labels.Labels, n)
			for i := range series {
				v := fmt.Sprint(r.IntN(distinct))
				if r.IntN(9) == 0 {
					series[i] = labels.FromStrings(labels.MetricName, "up")
					continue
				}
				series[i] = labels.FromStrings(labels.MetricName, "up", "pod", v)
				want[v] = append(want[v], uint32(i))
			}
			set := New(series)
			c := set.column(t.Context(), "pod")
			require.Equal(t, slices.Sorted(maps.Keys(want)), c.values)
			for i, v := range c.values {
				require.Equal(t, want[v], c.positionsOf(i))
				at, ok := c.find(v, hashOf(v))
				require.True(t, ok)
				require.Equal(t, i, at)
			}
			_, ok := c.find("none", hashOf("none"))
			require.False(t, ok)
			require.Equal(t, set.labelBytes+c.bytes()+int64(len("pod")), set.Bytes())
		}
	}
}

func TestAReaderLeavesAColumnThatOthersFillOn(t *testing.T) {
	series := pods(4 * stretch)
	set := New(series)
	q, ms := oneMatcher(labels.MatchRegexp, "pod", "pod-1.*7")
	ctx, cancel := context.WithCancel(t.Context())
	steps := 0
	require.Empty(t, set.MatchPrepared(meter.WithMeter(ctx, workMeter{working: func() {
		if steps++; steps == 3 {
			cancel()
		}
	}}), &q))
	require.Equal(t, 3, steps)
	require.Nil(t, set.filledColumn("pod"))
	require.Empty(t, set.LabelValues(ctx, "pod", set.all()))
	require.Greater(t, set.Bytes(), set.labelBytes, "what is left of the filling is accounted for")

	require.Equal(t, naiveMatch(series, ms), set.MatchPrepared(t.Context(), &q))
	require.NotNil(t, set.filledColumn("pod"))
}

func TestNoReaderWaitsForOneThatWaitsForItsTurn(t *testing.T) {
	series := pods(4 * stretch)
	set := New(series)
	q, ms := oneMatcher(labels.MatchRegexp, "pod", "pod-1.*7")
	waits, turn, answer := make(chan struct{}), make(chan struct{}), make(chan []uint32)
	var steps atomic.Int64
	ctx := meter.WithMeter(t.Context(), workMeter{working: func() {
		if steps.Add(1) == 2 {
			close(waits)
			<-turn
		}
	}})
	go func() { answer <- set.MatchPrepared(ctx, &q) }()
	<-waits
	lookup, equal := oneMatcher(labels.MatchEqual, "pod", "pod-77")
	require.Equal(t, naiveMatch(series, equal), set.MatchPrepared(t.Context(), &lookup))
	require.Nil(t, set.filledColumn("pod"))
	require.Equal(t, naiveMatch(series, ms), set.MatchPrepared(t.Context(), &q))
	require.NotNil(t, set.filledColumn("pod"))
	close(turn)
	require.Equal(t, naiveMatch(series, ms), <-answer)
}

func TestLookUpsFillAColumnOfManyValuesInParts(t *testing.T) {
	series := pods(20*stretch + 7)
	set := New(series)
	lookups := 0
	for ; set.filledColumn("pod") == nil; lookups++ {
		require.Less(t, lookups, 40)
		for _, kind := range []labels.MatchType{labels.MatchEqual, labels.MatchNotEqual} {
			q, ms := oneMatcher(kind, "pod", fmt.Sprint("pod-", lookups))
			require.Equal(t, naiveMatch(series, ms), set.MatchPrepared(t.Context(), &q))
		}
	}
	require.Greater(t, lookups, 3)
	full := New(series)
	full.column(t.Context(), "pod")
	require.Equal(t, full.Bytes(), set.Bytes())

	// The column of a label with few values is filled by the first look-up.
	q, ms := oneMatcher(labels.MatchEqual, "zone", "z1")
	require.Equal(t, naiveMatch(series, ms), set.MatchPrepared(t.Context(), &q))
	require.NotNil(t, set.filledColumn("zone"))
}

func TestTestsOfAllSeriesEndWithTheContext(t *testing.T) {
	set := New(pods(4 * stretch))
	q, _ := oneMatcher(labels.MatchNotEqual, "pod", "pod-77")
	ctx, cancel := context.WithCancel(t.Context())
	require.Empty(t, set.MatchPrepared(meter.WithMeter(ctx, workMeter{working: cancel}), &q))
	require.Nil(t, set.filledColumn("pod"))
}

func TestNamesThatNoSeriesHasLeaveNothing(t *testing.T) {
	set := New(pods(4 * stretch))
	before := set.Bytes()
	for i := range 2 * maxAbsent {
		ctx, cancel := context.WithCancel(t.Context())
		steps := 0
		q, _ := oneMatcher(labels.MatchRegexp, fmt.Sprint("no", i), ".*x.*")
		set.MatchPrepared(meter.WithMeter(ctx, workMeter{working: func() {
			if steps++; steps == 2 {
				cancel()
			}
		}}), &q)
	}
	require.Empty(t, set.columns)
	require.Equal(t, before, set.Bytes())
}

func BenchmarkFirstLookUps(b *testing.B) {
	series := pods(1_000_000)
	q, _ := oneMatcher(labels.MatchEqual, "pod", "pod-77")
	later := New(series)
	later.column(b.Context(), "pod")
	for _, c := range []struct {
		name   string
		before int
	}{{"first", 0}, {"second", 1}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				set := New(series)
				for range c.before {
					set.MatchPrepared(b.Context(), &q)
				}
				b.StartTimer()
				set.MatchPrepared(b.Context(), &q)
			}
		})
	}
	b.Run("later", func(b *testing.B) {
		for b.Loop() {
			later.MatchPrepared(b.Context(), &q)
		}
	})
	b.Run("fill", func(b *testing.B) {
		for b.Loop() {
			New(series).column(b.Context(), "pod")
		}
	})
}
