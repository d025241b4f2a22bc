package query

import (
	"context"
	"math"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Seen is the time for which sealed raw rows of a metric are kept: from the start of the first window that has series of it to the end of the last one,
// whatever is between.
type Seen struct{ First, Last time.Time }

// maxSeenNames bounds the names that one MetricsSeen reads.
const maxSeenNames = 500_000

// MetricsSeen returns in which windows of raw rows some metrics of a tenant were seen, of those that are shown. It reads the names of metrics, window by
// window from both ends on until all were found; metrics that aren't found among so many as it reads are left out, as are those of which nothing is sealed.
func (q *Querier) MetricsSeen(ctx context.Context, tenant string, metrics []string) (map[string]Seen, error) {
	r, err := q.newRequest(ctx, Query{Tenant: tenant, MinT: -format.MaxTime, MaxT: format.MaxTime, Warn: damage.Warnings(ctx), overGaps: true})
	if err != nil {
		return nil, err
	}
	windows, err := windowFinder{r}.windows(ctx, rollup.Raw)
	if err != nil {
		return nil, err
	}
	first, err := r.catalog().firstWith(ctx, len(windows), func(i int) sealedWindow { return windows[i] }, metrics)
	if err != nil {
		return nil, err
	}
	last, err := r.catalog().firstWith(ctx, len(windows), func(i int) sealedWindow { return windows[len(windows)-1-i] }, metrics)
	if err != nil {
		return nil, err
	}
	seen := map[string]Seen{}
	for name, from := range first {
		if to, ok := last[name]; ok {
			seen[name] = Seen{time.UnixMilli(q.env.Period.WindowStart(from)).UTC(), time.UnixMilli(q.env.Period.WindowEnd(to)).UTC()}
		}
	}
	return seen, nil
}

// NewestUnsealed returns the time of the newest unsealed sample of a metric. It is zero if the metric has none.
func (q *Querier) NewestUnsealed(ctx context.Context, tenant, metric string) (time.Time, error) {
	if err := q.env.Ready(); err != nil {
		return time.Time{}, err
	}
	newest := int64(math.MinInt64)
	name := []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, metric)}
	for series := range q.env.Head.Select(ctx, tenant, name, -format.MaxTime, format.MaxTime, true) {
		newest = max(newest, q.env.Head.NewestUntil(series, format.MaxTime, 0))
	}
	if newest == math.MinInt64 {
		return time.Time{}, ctx.Err()
	}
	return time.UnixMilli(newest).UTC(), ctx.Err()
}

// firstWith returns of each metric the first of n windows that names it.
func (r catalogReader) firstWith(ctx context.Context, n int, window func(i int) sealedWindow, metrics []string) (map[string]int64, error) {
	found, names := map[string]int64{}, 0
	for i := 0; i < n && len(found) < len(metrics) && names < maxSeenNames/2; i++ {
		w := window(i)
		list, err := r.allMetrics(ctx, w)
		if err != nil {
			return nil, err
		}
		names += len(list)
		for _, name := range metrics {
			if _, ok := found[name]; ok {
				continue
			}
			if _, ok := list.find(name); ok {
				found[name] = w.window
			}
		}
	}
	return found, nil
}
