package exporter

import (
	"context"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/rollup/expand"
)

// source is a series in a piece, with its samples, and with buckets for the times at which its samples have expired.
type source struct {
	Labels    labels.Labels
	kept      []*query.SelectedSeries // by time
	fallbacks []fallback
}

// fallback holds the buckets that replace the samples in [from, to], in milliseconds.
type fallback struct {
	*query.SelectedSeries
	from, to int64
}

// sources finds the series of a query. The result keeps the order of the store's answers, because the store reads the
// chunks of neighboring series together.
func (r *run) sources(ctx context.Context, q query.Query) ([]*source, error) {
	f := finding{at: map[string]*source{}}
	spans, err := r.store.SplitAtHoles(ctx, q.Tenant, query.Span{MinT: q.MinT, MaxT: q.MaxT})
	if err != nil {
		return nil, err
	}
	for i, sp := range spans {
		q.MinT, q.MaxT = sp.MinT, sp.MaxT
		kept, err := r.store.Select(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, s := range kept {
			one := f.sourceOf(s.Labels, i == 0)
			one.kept = append(one.kept, s)
		}
		if r.LeaveRollups {
			continue
		}
		if err := r.findFallbacks(ctx, q, &f); err != nil {
			return nil, err
		}
	}
	return f.all, nil
}

// findFallbacks finds buckets for those times of a query at which samples have expired.
func (r *run) findFallbacks(ctx context.Context, q query.Query, f *finding) error {
	horizons, err := r.store.BoundariesOf(ctx, q)
	if err != nil {
		return err
	}
	for _, older := range query.OlderQueries(q, horizons, expand.Columns) {
		list, err := r.store.Select(ctx, older)
		if err != nil {
			return err
		}
		for _, s := range list {
			one := f.sourceOf(s.Labels, false)
			one.fallbacks = append(one.fallbacks, fallback{s, older.MinT, older.MaxT})
		}
	}
	return nil
}

// finding holds the series found so far.
type finding struct {
	all []*source
	at  map[string]*source // by labels; contains the first indexed series of all
	// indexed is the number of series of all that are in at. Most exports never need the index.
	indexed int
	key     []byte
}

// sourceOf returns the source of a series and adds it if necessary. isNew means that the series can't have been added
// before.
func (f *finding) sourceOf(ls labels.Labels, isNew bool) *source {
	if !isNew {
		for ; f.indexed < len(f.all); f.indexed++ {
			f.key = f.all[f.indexed].Labels.Bytes(f.key)
			f.at[string(f.key)] = f.all[f.indexed]
		}
		f.key = ls.Bytes(f.key)
		if one := f.at[string(f.key)]; one != nil {
			return one
		}
	}
	one := &source{Labels: ls}
	f.all = append(f.all, one)
	return one
}

// maker computes samples from buckets.
type maker struct {
	expand.Expander
	buckets rollup.Buckets
	buffers query.BucketBuffers
	samples chunk.Samples
	// incomplete is the number of buckets in the last call of appendFallback that may stand for more samples than were
	// computed. estimated is the number of samples computed in that call from imported aggregates.
	incomplete, estimated int64
}

// appendFallback appends the samples computed from buckets and sorts all samples.
func (m *maker) appendFallback(into *chunk.Samples, list []fallback) error {
	m.incomplete, m.estimated = 0, 0
	for _, o := range list {
		if err := o.Buckets(&m.buckets, &m.buffers); err != nil {
			return err
		}
		m.samples.Reset()
		for i, end := range m.buckets.End {
			if end >= o.from && m.buckets.Start[i] < o.to {
				before := m.samples.Len()
				m.Expand(&m.samples, &m.buckets, i)
				if m.buckets.Flags[i]&rollup.Aggregated != 0 {
					m.estimated += within(m.samples.T[before:], o.from, o.to)
				}
				if m.buckets.Flags[i]&(rollup.NotSimple|rollup.Large) != 0 {
					m.incomplete++
				}
			}
		}
		m.samples.Clip(o.from, o.to)
		into.AppendAll(&m.samples)
	}
	into.Normalize()
	return nil
}

// within returns the number of timestamps in [from, to].
func within(times []int64, from, to int64) (n int64) {
	for _, t := range times {
		if t >= from && t <= to {
			n++
		}
	}
	return n
}
