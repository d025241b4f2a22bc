package relabeling

import (
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"github.com/stretchr/testify/require"
)

// A trial reports the effect of each rule on stored series and changes nothing.
func TestTrial(t *testing.T) {
	r := newRig(t, "")
	series := []string{
		"go_gc,job=a", "go_gc,job=b", "old_x,job=a", "up,job=a,pod=1", "up,job=a,pod=2", "up,job=b", "bad,kill=name",
	}
	for range 2 {
		r.send("t", series...)
		r.now++
	}
	in := r.intake("t")
	for h, fh := range map[*histogram.Histogram]*histogram.FloatHistogram{
		tsdbutil.GenerateTestHistogram(3): nil, nil: tsdbutil.GenerateTestFloatHistogram(4),
	} {
		r.now++
		require.NoError(t, in.Histogram(parse(t, "latency,job=a"), r.now, r.now-1000, h, fh))
	}
	require.NoError(t, in.Commit())
	r.send("other", "go_gc,job=a")
	before := r.stored("t")
	table, err := Parse([]byte(exampleRules[:len(exampleRules)-len("tenants:\n  free: {}\n")-
		len("- {source_labels: [kill], regex: all, action: keep}\n")] + "tenants:\n  free: {}\n"))
	require.NoError(t, err)

	day := (24 * time.Hour).Milliseconds()
	o := TrialOptions{Tenant: "t", MinT: r.now - day + 1, MaxT: r.now}
	trial, err := RunTrial(t.Context(), r.store, table, o)
	require.NoError(t, err)
	counts := func(a Amount) [2]int64 { return [2]int64{a.Series, a.Samples} }
	require.Equal(t, [2]int64{8, 16}, counts(trial.All))
	require.Equal(t, [2]int64{2, 4}, counts(trial.Dropped))
	require.Equal(t, [2]int64{1, 2}, counts(trial.Refused))
	require.Contains(t, trial.Refusal, "name")
	require.Equal(t, [2]int64{3, 6}, counts(trial.Changed))
	require.EqualValues(t, 1, trial.Merged, "two pods become one")
	require.Equal(t, [2]int{5, 5}, [2]int{trial.Metrics, trial.AllMetrics})
	require.False(t, trial.Cut)
	require.False(t, trial.Measured, "nothing is sealed")
	require.Positive(t, trial.Dropped.DayBytes)
	require.Less(t, trial.Dropped.DayBytes, trial.All.DayBytes)
	require.Len(t, trial.Rules, 4)
	require.Equal(t, [2]int64{2, 4}, counts(trial.Rules[0].Dropped))
	require.Equal(t, Example{Before: `{__name__="go_gc", job="a"}`}, trial.Rules[0].Examples[0])
	require.Equal(t, []Example{{`{__name__="old_x", job="a"}`, `{__name__="new_x", job="a"}`}}, trial.Rules[1].Examples)
	require.Equal(t, [2]int64{2, 4}, counts(trial.Rules[2].Changed))
	require.Equal(t, [2]int64{1, 2}, counts(trial.Rules[3].Changed), "what is rejected at the end")
	require.Equal(t, before, r.stored("t"))

	o.MaxSeries = 3
	trial, err = RunTrial(t.Context(), r.store, table, o)
	require.NoError(t, err)
	require.True(t, trial.Cut)
	require.EqualValues(t, 3, trial.All.Series)
	require.Less(t, trial.Metrics, trial.AllMetrics)
	o.MaxSeries, o.Until = 0, time.Unix(0, 0)
	trial, err = RunTrial(t.Context(), r.store, table, o)
	require.NoError(t, err)
	require.True(t, trial.Cut)
	require.Zero(t, trial.All.Series)
	o.Tenant, o.Until = "free", time.Time{}
	_, err = RunTrial(t.Context(), r.store, table, o)
	require.ErrorIs(t, err, ErrNoRules)
}

// If all data is sealed, sizes are shares of the sealed rows' size.
func TestTrialOfSealedData(t *testing.T) {
	r := newRig(t, "")
	r.now -= (24 * time.Hour).Milliseconds()
	for range 200 {
		r.send("t", "go_gc,job=a", "up,job=a")
		r.now += 60_000
	}
	require.NoError(t, r.store.SealAll(t.Context()))
	require.NoError(t, r.eng.CompactAll(t.Context()))
	space, err := MeasureSpace(t.Context(), r.store, "t")
	require.NoError(t, err)
	total := 0.0
	for _, of := range space {
		require.NotEmpty(t, of.Windows)
		total += of.DayBytes
	}
	table, err := Parse([]byte(exampleRules))
	require.NoError(t, err)
	trial, err := RunTrial(t.Context(), r.store, table, TrialOptions{
		Tenant: "t", MinT: r.now - (48 * time.Hour).Milliseconds(), MaxT: r.now,
	})
	require.NoError(t, err)
	require.EqualValues(t, 400, trial.All.Samples)
	require.True(t, trial.Measured)
	require.InDelta(t, total, trial.All.DayBytes, total*1e-9)
	require.Positive(t, trial.Dropped.DayBytes)
}
