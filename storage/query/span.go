package query

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Span is a range of time in milliseconds. Both ends are included.
type Span struct{ MinT, MaxT int64 }

// Spans lists the ranges between minT and maxT in which a tenant may have raw samples. The ranges are disjoint and in
// order. They consist of whole windows and slots, limited to minT and maxT. If rollups is true, Spans also lists ranges
// that may have only rollups. Spans reads no samples.
func (q *Querier) Spans(ctx context.Context, tenant string, minT, maxT int64, rollups bool) ([]Span, error) {
	if err := q.env.Ready(); err != nil {
		return nil, err
	}
	if err := q.env.CatchUp(ctx); err != nil {
		return nil, err
	}
	// Invariant I4: the head is read first, then the windows. Samples that are being sealed are found twice.
	var spans []Span
	for partition := range q.env.Period.Partitions() {
		for _, slot := range q.env.Head.Slots(partition) {
			spans = append(spans, Span{q.env.Period.SlotStart(slot) + 1, q.env.Period.SlotEnd(slot)})
		}
	}
	windows, err := q.env.Windows(
		ctx, tenant, format.FirstWindow(rollup.Raw), format.LastWindow(rollup.Raw), q.env.Damage.Record,
	)
	if err != nil {
		return nil, err
	}
	for _, w := range windows {
		spans = append(spans, Span{
			q.env.Period.RawWindowEnd(w) - q.env.Period.OfRawWindow(w).RawWindowMS + 1, q.env.Period.RawWindowEnd(w),
		})
	}
	if rollups {
		if spans, err = q.appendOlder(ctx, spans, tenant); err != nil {
			return nil, err
		}
	}
	return clipSpans(spans, minT, maxT), nil
}

// appendOlder appends the spans in which at least one class has only rollups.
func (q *Querier) appendOlder(ctx context.Context, spans []Span, tenant string) ([]Span, error) {
	for _, res := range rollup.Resolutions {
		windows, err := q.env.Windows(ctx, tenant, format.FirstWindow(res), format.LastWindow(res), q.env.Damage.Record)
		if err != nil {
			return nil, err
		}
		for _, w := range windows {
			shown, err := q.env.Retention.VisibleRows(
				ctx, tenant, q.env.Period.WindowStart(w)+1, q.env.Period.WindowEnd(w), false,
			)
			if err != nil {
				return nil, err
			}
			for _, h := range shown.Hidden {
				sp := Span{max(q.env.Period.WindowStart(w), h.At[res]) + 1, min(q.env.Period.WindowEnd(w), h.At[res-1])}
				if sp.MinT <= sp.MaxT {
					spans = append(spans, sp)
				}
			}
		}
	}
	return spans, nil
}

// clipSpans sorts spans, merges adjacent ones, and clips them to [minT, maxT].
func clipSpans(spans []Span, minT, maxT int64) []Span {
	slices.SortFunc(spans, func(a, b Span) int { return cmp.Compare(a.MinT, b.MinT) })
	var out []Span
	for _, sp := range spans {
		sp = Span{max(sp.MinT, minT), min(sp.MaxT, maxT)}
		switch last := len(out) - 1; {
		case sp.MinT > sp.MaxT:
		case last >= 0 && sp.MinT <= out[last].MaxT+1:
			out[last].MaxT = max(out[last].MaxT, sp.MaxT)
		default:
			out = append(out, sp)
		}
	}
	return out
}

// SlotWidth returns the width of the slot that contains a timestamp.
func (q *Querier) SlotWidth(t int64) time.Duration {
	return time.Duration(q.env.Period.PeriodAt(t).SlotMS) * time.Millisecond
}

// RecentStart returns the start of the slot before the current slot, in milliseconds. Most samples after this time
// aren't sealed yet.
func (q *Querier) RecentStart() int64 {
	return q.env.Period.SlotStart(q.env.Period.SlotOf(q.env.Now().UnixMilli()) - 1)
}

// OldestSlot returns a time in milliseconds before which a tenant has neither visible sealed rows at any resolution nor
// unsealed samples: the start of the first slot with either. Unsealed samples of other tenants may make it earlier. It
// returns math.MaxInt64 if there is no such slot.
func (q *Querier) OldestSlot(ctx context.Context, tenant string) (int64, error) {
	oldest := int64(math.MaxInt64)
	// Invariant I4: the head is read first. Its samples may pass the raw retention before they are sealed.
	if first, _, ok := q.env.Head.SlotBounds(); ok {
		oldest = q.env.Period.SlotStart(first)
	}
	for res := rollup.Raw; res <= rollup.OneHour; res++ {
		windows, err := q.KnownWindows(
			ctx, tenant, format.FirstWindow(res), format.LastWindow(res), q.env.Damage.Record,
		)
		if err != nil {
			return 0, err
		}
		for _, w := range windows {
			slot, ok, err := q.firstSlot(ctx, tenant, w)
			if err != nil {
				return 0, err
			}
			if ok {
				oldest = min(oldest, q.env.Period.SlotStart(slot))
				break
			}
		}
	}
	return oldest, nil
}

// firstSlot returns the first sealed slot of a window.
func (q *Querier) firstSlot(ctx context.Context, tenant string, window int64) (slot int64, ok bool, err error) {
	m, ok, err := q.readCachedCommits(ctx, tenant, window)
	if err != nil || ok && len(m.slots) == 0 {
		return 0, false, err
	}
	if ok {
		return m.slots[0], true, nil
	}
	for row, err := range q.env.Engine.Scan(ctx, engine.Range{
		Table: engine.Sealed, Partition: format.SealedPartition(window, tenant), KeysOnly: true, Limit: 1,
	}) {
		if err != nil {
			return 0, false, err
		}
		return row.Clustering[0].Int, true, nil
	}
	return 0, false, nil
}

// SeenRange is the time range in which series of a metric were seen: from the start of the first raw window with such
// series to the end of the last one. Windows between them may contain no series of the metric.
type SeenRange struct{ First, Last time.Time }

// maxSeenNames is the maximum number of names that one call of MetricsSeen reads.
const maxSeenNames = 500_000

// MetricsSeen returns the times at which metrics of a tenant were seen in visible raw windows. It reads the metric
// names window by window, from both ends, until it has found all metrics or read maxSeenNames names. It omits metrics
// that it didn't find or that have no sealed rows.
func (q *Querier) MetricsSeen(ctx context.Context, tenant string, metrics []string) (map[string]SeenRange, error) {
	r, err := q.newRequest(ctx, Query{
		Tenant: tenant, MinT: -format.MaxTime, MaxT: format.MaxTime, Warn: damage.Warnings(ctx), overGaps: true,
	})
	if err != nil {
		return nil, err
	}
	windows, err := windowFinder{r}.windows(ctx, rollup.Raw)
	if err != nil {
		return nil, err
	}
	first, err := r.firstWindows(ctx, len(windows), func(i int) sealedWindow { return windows[i] }, metrics)
	if err != nil {
		return nil, err
	}
	last, err := r.firstWindows(
		ctx, len(windows), func(i int) sealedWindow { return windows[len(windows)-1-i] }, metrics,
	)
	if err != nil {
		return nil, err
	}
	seen := map[string]SeenRange{}
	for name, from := range first {
		if to, ok := last[name]; ok {
			seen[name] = SeenRange{
				time.UnixMilli(q.env.Period.WindowStart(from)).UTC(), time.UnixMilli(q.env.Period.WindowEnd(to)).UTC(),
			}
		}
	}
	return seen, nil
}

// NewestUnsealed returns the time of the newest unsealed sample of a metric, or the zero time if the metric has none.
func (q *Querier) NewestUnsealed(ctx context.Context, tenant, metric string) (time.Time, error) {
	if err := q.env.Ready(); err != nil {
		return time.Time{}, err
	}
	newest := int64(math.MinInt64)
	name := []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, metric)}
	for series := range q.env.Head.Select(ctx, tenant, name, -format.MaxTime, format.MaxTime, true) {
		newest = max(newest, q.env.Head.MaxTimeUntil(series, format.MaxTime, 0))
	}
	if newest == math.MinInt64 {
		return time.Time{}, ctx.Err()
	}
	return time.UnixMilli(newest).UTC(), ctx.Err()
}

// firstWindows returns, for each metric, the first of n windows that contains the metric. It stops once it has read
// maxSeenNames/2 names, and omits metrics that it hasn't found by then. window must return the i-th window.
func (r *rowReader) firstWindows(
	ctx context.Context, n int, window func(i int) sealedWindow, metrics []string,
) (map[string]int64, error) {
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
