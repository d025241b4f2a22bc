package exporter

import (
	"context"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
)

// source is a series of a piece: its samples, and the buckets of times whose samples have expired.
type source struct {
	Labels labels.Labels
	kept   *storage.SelectedSeries // nil: it has none
	older  []older
}

// older are buckets of which the samples from one time to another count, both included, milliseconds.
type older struct {
	*storage.SelectedSeries
	from, to int64
}

// sources finds the series of a query.
func (r *run) sources(ctx context.Context, q storage.Query) ([]*source, error) {
	q.Sorted = false
	kept, err := r.store.Select(ctx, q)
	if err != nil {
		return nil, err
	}
	all := make([]*source, len(kept))
	for i, s := range kept {
		all[i] = &source{Labels: s.Labels, kept: s}
	}
	if r.LeaveRollups {
		return all, nil
	}
	horizons, err := r.store.HorizonsOf(ctx, q)
	if err != nil {
		return nil, err
	}
	var at map[string]*source
	var key []byte
	for _, query := range storage.OlderQueries(q, horizons, rollup.ExpandColumns) {
		if at == nil {
			at = make(map[string]*source, len(all))
			for _, s := range all {
				key = s.Labels.Bytes(key)
				at[string(key)] = s
			}
		}
		list, err := r.store.Select(ctx, query)
		if err != nil {
			return nil, err
		}
		for _, s := range list {
			key = s.Labels.Bytes(key)
			one := at[string(key)]
			if one == nil {
				one = &source{Labels: s.Labels}
				at[string(key)] = one
				all = append(all, one)
			}
			one.older = append(one.older, older{s, query.MinT, query.MaxT})
		}
	}
	return all, nil
}

// maker makes samples of buckets.
type maker struct {
	rollup.Expander
	buckets rollup.Buckets
	buffers storage.BucketBuffers
	samples chunk.Samples
}

// appendOlder appends the samples that buckets make, and brings all in order.
func (m *maker) appendOlder(into *chunk.Samples, list []older) error {
	for _, o := range list {
		if err := o.Buckets(&m.buckets, &m.buffers); err != nil {
			return err
		}
		m.samples.Reset()
		for i, end := range m.buckets.End {
			if end >= o.from && m.buckets.Start[i] < o.to {
				m.Expand(&m.samples, &m.buckets, i)
			}
		}
		m.samples.Clip(o.from, o.to)
		into.AppendAll(&m.samples)
	}
	into.Normalize()
	return nil
}
