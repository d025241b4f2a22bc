package exporter

import (
	"context"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
)

// source is a series of a piece: its samples, and the buckets of times whose samples have expired.
type source struct {
	Labels    labels.Labels
	kept      []*query.SelectedSeries // by time
	fallbacks []fallback
}

// fallback are buckets of which the samples from one time to another count, both included, milliseconds.
type fallback struct {
	*query.SelectedSeries
	from, to int64
}

// sources finds the series of a query. The store reads the chunks of series that are neighbours in an answer together, so each answer has the order in
// which series are exported.
func (r *run) sources(ctx context.Context, q query.Query) ([]*source, error) {
	f := finding{at: map[string]*source{}}
	spans, err := r.store.BesideGaps(ctx, q.Tenant, query.Span{MinT: q.MinT, MaxT: q.MaxT})
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
			one := f.of(s.Labels, i == 0)
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

// findFallbacks finds the buckets of a query's times whose samples have expired.
func (r *run) findFallbacks(ctx context.Context, q query.Query, f *finding) error {
	horizons, err := r.store.HorizonsOf(ctx, q)
	if err != nil {
		return err
	}
	for _, older := range query.OlderQueries(q, horizons, rollup.ExpandColumns) {
		list, err := r.store.Select(ctx, older)
		if err != nil {
			return err
		}
		for _, s := range list {
			one := f.of(s.Labels, false)
			one.fallbacks = append(one.fallbacks, fallback{s, older.MinT, older.MaxT})
		}
	}
	return nil
}

// finding are the series that were found so far.
type finding struct {
	all []*source
	at  map[string]*source // by labels; those of all up to the first indexed of it
	// indexed is how many of all are in at, which most exports never ask for.
	indexed int
	key     []byte
}

// of returns the series with these labels. isNew: it can't have been found before.
func (f *finding) of(ls labels.Labels, isNew bool) *source {
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

// maker makes samples of buckets.
type maker struct {
	rollup.Expander
	buckets rollup.Buckets
	buffers query.BucketBuffers
	samples chunk.Samples
	// incomplete counts the buckets that may have had other samples as well, in the last call of appendFallback.
	incomplete int64
}

// appendFallback appends the samples that buckets make, and brings all in order.
func (m *maker) appendFallback(into *chunk.Samples, list []fallback) error {
	m.incomplete = 0
	for _, o := range list {
		if err := o.Buckets(&m.buckets, &m.buffers); err != nil {
			return err
		}
		m.samples.Reset()
		for i, end := range m.buckets.End {
			if end >= o.from && m.buckets.Start[i] < o.to {
				m.Expand(&m.samples, &m.buckets, i)
				if m.buckets.Flags[i]&rollup.NotSimple != 0 {
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
