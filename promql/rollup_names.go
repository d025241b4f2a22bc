package promql

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/cassia-db/cassia/promql/resolution"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Rollups have names: foo_min, foo_max, foo_sum, foo_count and foo_avg are the values of foo's buckets, one sample per
// bucket, at the bucket's end. These values are computed, never stored. Stored series with such a name take precedence.

// aggregate is a value of buckets that has a name. suffix is added to the name of the metric.
type aggregate struct {
	suffix string
	column rollup.Columns
	value  func(b *rollup.Buckets, i int) float64
}

var aggregates = [...]aggregate{
	{"_min", rollup.ColumnMin, func(b *rollup.Buckets, i int) float64 { return b.Min[i] }},
	{"_max", rollup.ColumnMax, func(b *rollup.Buckets, i int) float64 { return b.Max[i] }},
	{"_sum", rollup.ColumnSum, func(b *rollup.Buckets, i int) float64 { return b.Sum[i] + b.SumLow[i] }},
	{"_count", 0, func(b *rollup.Buckets, i int) float64 { return float64(b.Count[i]) }},
	{
		"_avg", rollup.ColumnSum,
		func(b *rollup.Buckets, i int) float64 { return (b.Sum[i] + b.SumLow[i]) / float64(b.Count[i]) },
	},
}

// rollupNames holds the rules for names of rollups.
type rollupNames struct {
	// counters are the suffixes of metrics for which only the sum is available.
	counters []string
}

// hasAggregate reports whether an aggregate is available for a metric. A metric whose name ends in an aggregate's
// suffix has only that aggregate, or none if the suffix is _avg. A metric with a counter's suffix has only the sum.
func (n rollupNames) hasAggregate(metric string, a *aggregate) bool {
	for i := range aggregates {
		if own := &aggregates[i]; strings.HasSuffix(metric, own.suffix) {
			return own == a && a.suffix != "_avg"
		}
	}
	for _, ending := range n.counters {
		if strings.HasSuffix(metric, ending) {
			return a.suffix == "_sum"
		}
	}
	return true
}

// splitName splits the name of a rollup into its metric and its aggregate. The aggregate is nil if the name isn't a
// rollup's.
func (n rollupNames) splitName(name string) (metric string, a *aggregate) {
	for i := range aggregates {
		a := &aggregates[i]
		if metric, ok := strings.CutSuffix(name, a.suffix); ok && metric != "" && n.hasAggregate(metric, a) {
			return metric, a
		}
	}
	return "", nil
}

// RollupMetric returns the metric of a rollup's name, or "" if the name isn't a rollup's.
func (q *Queryable) RollupMetric(name string) string {
	metric, _ := q.names.splitName(name)
	return metric
}

// equalName returns the metric name that the matchers require to be equal, or "" if there is none.
func equalName(matchers []*labels.Matcher) string {
	for _, m := range matchers {
		if m.Name == labels.MetricName && m.Type == labels.MatchEqual {
			return m.Value
		}
	}
	return ""
}

// selectNamed finds the series of a rollup's name. It is called if a query finds no stored series.
func (r *reader) selectNamed(ctx context.Context, q query.Query,
	hints *promstorage.SelectHints) ([]sourceSeries, error) {
	name, step := equalName(q.Matchers), hintedStep(hints)
	metric, a := r.names.splitName(name)
	how := resolutionParamsOf(ctx)
	if a == nil || how.mode == resolution.ModeRaw {
		return nil, nil
	}
	real, err := r.store.Select(ctx, query.Query{
		Tenant: q.Tenant, MinT: -format.MaxTime, MaxT: format.MaxTime, LabelsOnly: true, Limit: 1, Warn: q.Warn,
		Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, name)},
	})
	if err != nil || len(real) > 0 {
		// Stored series may have the name at other times or with other labels. Then the name isn't a rollup's.
		return nil, err
	}
	q.Matchers = slices.Clone(q.Matchers)
	for i, m := range q.Matchers {
		if m.Name == labels.MetricName && m.Type == labels.MatchEqual {
			q.Matchers[i] = labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, metric)
		}
	}
	horizons, err := r.store.BoundariesOf(ctx, q)
	if err != nil {
		return nil, err
	}
	q.Resolution = rollup.FiveMinutes
	switch {
	case !how.mode.Allows(rollup.OneHour, how.coarsest):
	case how.mode == resolution.ModeOneHour || step >= rollup.OneHour.Width() ||
		q.MinT <= latestBoundary(horizons, rollup.FiveMinutes):
		q.Resolution = rollup.OneHour
	}
	q.Columns = rollup.ColumnCount | a.column
	list, err := r.store.Select(ctx, q)
	if err != nil {
		return nil, err
	}
	if len(list) > 0 && mayMissValues(q, hints) {
		q.Warn(fmt.Errorf(
			"%w: %s has one value per bucket of %s, at the end of the bucket; use that step or a multiple of it, or a range over it",
			annotations.PromQLInfo, name, q.Resolution,
		))
	}
	noteNamed(ctx, name, SegmentStats{
		From: time.UnixMilli(q.MinT).UTC(), To: time.UnixMilli(q.MaxT).UTC(), Resolution: q.Resolution.String(),
		Edges: resolution.FitAligned.String(), Series: len(list),
	})
	series := make([]sourceSeries, len(list))
	builder := labels.NewBuilder(labels.EmptyLabels())
	for i, s := range list {
		builder.Reset(s.Labels)
		series[i] = sourceSeries{labels: builder.Set(labels.MetricName, name).Labels(),
			named: &namedRollup{s, a, q.MaxT}}
	}
	return series, nil
}

// mayMissValues reports whether a query for a rollup's name may find no values because it is evaluated between the
// values: the interval between values is the width of a bucket.
func mayMissValues(q query.Query, hints *promstorage.SelectHints) bool {
	width := q.Resolution.Width()
	if hints == nil || hints.Func == "series" || hints.Range >= width || width <= (5*time.Minute).Milliseconds() &&
		hints.Range == 0 {
		return false
	}
	return hints.End%width != 0 || hints.Step%width != 0
}

// appendNamed appends the values of buckets as samples. Buckets that end after until are skipped, because they aren't
// complete.
func (a *aggregate) appendNamed(into *chunk.Samples, s *query.SelectedSeries, until int64) error {
	var b rollup.Buckets
	var buffers query.BucketBuffers
	if err := s.Buckets(&b, &buffers); err != nil {
		return err
	}
	for i, end := range b.End {
		if b.Count[i] > 0 && b.Flags[i]&rollup.HasHistograms == 0 && end <= until {
			into.AppendFloat(end, 0, a.value(&b, i))
		}
	}
	return nil
}

type rollupNamesKey struct{}

// WithRollupNames returns a context in which lists of metric names include the names of rollups.
func WithRollupNames(ctx context.Context) context.Context {
	return context.WithValue(ctx, rollupNamesKey{}, true)
}

// addRollupNames adds the names of rollups to sorted metric names if ctx was made by WithRollupNames.
func (n rollupNames) addRollupNames(ctx context.Context, metrics []string, hints *promstorage.LabelHints) []string {
	if asked, _ := ctx.Value(rollupNamesKey{}).(bool); !asked {
		return metrics
	}
	all := slices.Clone(metrics)
	for _, metric := range metrics {
		for i := range aggregates {
			if n.hasAggregate(metric, &aggregates[i]) {
				all = append(all, metric+aggregates[i].suffix)
			}
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	if hints != nil && hints.Limit > 0 && len(all) > hints.Limit {
		all = all[:hints.Limit]
	}
	return all
}
