package query

import (
	"context"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// OlderQueries returns queries for buckets, for the times in q's range at which raw samples are hidden but rollups
// aren't. Each query requests the given columns of one class at one resolution. horizons contains the hidden times of
// each class.
func OlderQueries(q Query, horizons []retention.HiddenTimes, columns rollup.Columns) (list []Query) {
	for _, h := range horizons {
		for _, res := range []rollup.Resolution{rollup.OneHour, rollup.FiveMinutes} {
			older := q
			older.MinT, older.MaxT = max(q.MinT, h.At[res]+1), min(q.MaxT, h.At[res-1], h.At[rollup.Raw])
			older.Classes, older.Resolution, older.Columns, older.LabelsOnly = h.Class, res, columns, false
			if older.MinT <= older.MaxT {
				list = append(list, older)
			}
		}
	}
	return list
}

// BoundariesOf returns the retention boundaries of the classes that contain series matching the query in its range. It
// returns at least one boundary: if no series matches, the boundary of the default class. If every class keeps the
// whole range, or if there is only one class, it returns the boundaries of all classes without searching for series.
func (q *Querier) BoundariesOf(ctx context.Context, query Query) ([]retention.HiddenTimes, error) {
	shown, err := q.env.Retention.VisibleRows(ctx, query.Tenant, query.MinT, query.MaxT, false)
	if err != nil {
		return nil, err
	}
	all := shown.Hidden
	if len(all) == 1 ||
		!slices.ContainsFunc(all, func(h retention.HiddenTimes) bool { return query.MinT <= h.At[rollup.Raw] }) {
		return all, nil
	}
	query.LabelsOnly, query.Limit, query.Sorted, query.Resolution = true, 0, false, rollup.Raw
	found, err := q.classesOf(ctx, query, all)
	if err != nil {
		return nil, err
	}
	if found == 0 {
		return all[:1], nil
	}
	return slices.DeleteFunc(all, func(h retention.HiddenTimes) bool { return h.Class&found == 0 }), nil
}

// BoundariesBySeries returns a function that maps a series and a time t, in milliseconds, to the retention boundary of
// the series' class at that time. The boundaries are valid for queries between minT and maxT.
func (q *Querier) BoundariesBySeries(
	ctx context.Context, tenant string, minT, maxT int64,
) (func(ls labels.Labels, t int64) (retention.HiddenTimes, error), error) {
	shown, err := q.env.Retention.VisibleRows(ctx, tenant, minT, maxT, false)
	if err != nil {
		return nil, err
	}
	all := shown.Hidden
	days := q.env.Retention.NewDayLists(tenant)
	return func(ls labels.Labels, t int64) (retention.HiddenTimes, error) {
		list, err := days.ListAt(ctx, t)
		class := retention.DefaultClass
		if err == nil {
			class = int(list.ClassOfLabels(ls))
		}
		if class >= len(all) { // Another process has added the class concurrently.
			class = retention.DefaultClass
		}
		return all[class], err
	}, nil
}

// classesOf returns the bits of the classes that contain series matching the query. It searches unsealed series first.
// It searches sealed series only if the matching unsealed series don't already belong to all classes.
func (q *Querier) classesOf(ctx context.Context, query Query, all []retention.HiddenTimes) (found uint64, err error) {
	if err := q.env.Ready(); err != nil {
		return 0, err
	}
	r, err := q.newRequest(ctx, query)
	if err != nil {
		return 0, err
	}
	var wanted uint64
	for _, h := range all {
		wanted |= h.Class
	}
	if r.minT <= r.maxT {
		if found, err = r.unsealedClasses(ctx, wanted&r.classes); err != nil || found == wanted {
			return found, err
		}
	}
	query.part = inSealed
	series, err := q.Select(ctx, query)
	for _, x := range series {
		for _, p := range x.sel.parts[x.from:x.to] {
			found |= 1 << x.sel.sources[p.source].class
		}
	}
	return found, err
}

// SplitAtHoles splits a span at the edges of holes. Callers that read all samples need it, because a query whose
// range crosses a hole returns no samples from before the end of the hole (design/retention.md).
func (q *Querier) SplitAtHoles(ctx context.Context, tenant string, sp Span) (spans []Span, err error) {
	edges, err := q.env.Retention.HoleEdges(ctx, tenant)
	if err != nil {
		return nil, err
	}
	for _, edge := range edges {
		if edge >= sp.MinT && edge < sp.MaxT {
			spans = append(spans, Span{sp.MinT, edge})
			sp.MinT = edge + 1
		}
	}
	return append(spans, sp), nil
}
