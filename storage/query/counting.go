package query

import (
	"context"
	"strings"

	"github.com/cassia-db/cassia/storage/counts"
	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// NewCountingReader returns the reader that package counts uses for a tenant's windows.
func (q *Querier) NewCountingReader(ctx context.Context, tenant string, warn func(error)) (counts.WindowReader, error) {
	r, err := q.newRequest(ctx, Query{
		Tenant: tenant, MinT: -format.MaxTime, MaxT: format.MaxTime, Warn: warn, overGaps: true,
	})
	return &countedRequest{request: r}, err
}

// ShownRawWindows lists a tenant's raw windows up to last that aren't hidden by retention.
func (q *Querier) ShownRawWindows(ctx context.Context, tenant string, last int64) ([]int64, error) {
	all, err := q.env.Retention.VisibleRows(ctx, tenant, -format.MaxTime, format.MaxTime, false)
	if err != nil {
		return nil, err
	}
	shown := (&request{hidden: all.Hidden}).minHidden(rollup.Raw)
	return q.KnownWindows(
		ctx, tenant, q.env.Period.WindowAt(rollup.Raw, max(shown, -format.MaxTime)+1), last, q.env.Damage.Record,
	)
}

// countedRequest implements counts.WindowReader.
type countedRequest struct {
	*request

	lost int // number of unreadable labels rows
}

func (r *countedRequest) Windows(ctx context.Context) ([]counts.WindowVersion, error) {
	found, err := windowFinder{r.request}.windows(ctx, rollup.Raw)
	list := make([]counts.WindowVersion, len(found))
	for i := range found {
		list[i] = counts.WindowVersion{Window: found[i].window, Version: found[i].version}
	}
	return list, err
}

func (r *countedRequest) Window(ctx context.Context, window int64) (w counts.WindowVersion, err error) {
	if r.env.Period.WindowEnd(window) <= r.minT {
		return w, nil
	}
	found, err := windowFinder{r.request}.readCommitRecords(ctx, window, 0, 0)
	return counts.WindowVersion{Window: window, Version: found.version}, err
}

func (r *countedRequest) Metrics(ctx context.Context, w counts.WindowVersion) ([]counts.MetricShards, error) {
	names, err := r.allMetrics(ctx, sealedWindow{window: w.Window, version: w.Version})
	list := make([]counts.MetricShards, len(names))
	for i, m := range names {
		list[i] = counts.MetricShards{Name: m.name, Shards: m.shards}
	}
	return list, err
}

func (r *countedRequest) CorruptLabels(window int64, metric, series string, err error) {
	bad := &damage.CorruptRowError{
		Table: engine.Raw, Window: window, Tenant: r.tenant, Metric: metric, Series: strings.Clone(series), Err: err,
	}
	r.env.Damage.RecordOnce(engine.Raw, bad)
	if r.lost++; r.lost <= maxReportedGaps {
		r.reportWarning(bad)
	}
}
