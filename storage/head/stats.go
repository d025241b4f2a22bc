package head

import (
	"context"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/format"
)

// Stats tells how much is not sealed yet.
type Stats struct {
	Series, Chunks int64
	// MinT and MaxT are the oldest and newest timestamp, milliseconds; 0 if there are no samples.
	MinT, MaxT int64
}

// count adds the chunks of a head chunk. The caller holds the part's lock.
func (h *Stats) count(st *Chunk) {
	if !st.nonEmpty {
		return
	}
	h.Chunks += int64(st.pieces())
	h.MinT, h.MaxT = min(h.MinT, st.minT), max(h.MaxT, st.maxT)
}

// Stats counts what the head holds, of all tenants.
func (h *Head) Stats() Stats {
	stats := Stats{Series: h.series.Load(), MinT: format.MaxTime, MaxT: -format.MaxTime}
	for i := range h.parts {
		p := &h.parts[i]
		p.mu.RLock()
		for _, c := range p.slots {
			c.each(func(g *Generation) {
				for _, st := range g.chunks {
					stats.count(st)
				}
			})
		}
		p.mu.RUnlock()
	}
	if stats.Chunks == 0 {
		stats.MinT, stats.MaxT = 0, 0
	}
	return stats
}

// cancelEach is after how many series it is looked whether the caller has gone.
const cancelEach = 1 << 13

// SeriesOf returns the labels of a tenant's series, and how many chunks they have from when to when. The error is the context's.
func (h *Head) SeriesOf(ctx context.Context, tenant string) ([]labels.Labels, Stats, error) {
	var out Stats
	t := h.find(tenant)
	if t == nil {
		return nil, out, ctx.Err()
	}
	t.mu.RLock()
	series := slices.AppendSeq(make([]*Series, 0, t.byID.len()), t.byID.all())
	t.mu.RUnlock()
	all := make([]labels.Labels, 0, len(series))
	out.MinT, out.MaxT = format.MaxTime, -format.MaxTime
	for i, s := range series {
		if i%cancelEach == 0 && ctx.Err() != nil {
			return nil, Stats{}, ctx.Err()
		}
		all = append(all, s.labels)
		p := &h.parts[s.part]
		p.mu.RLock()
		for st := range s.chunks.All() {
			out.count(st)
		}
		p.mu.RUnlock()
	}
	if out.MinT > out.MaxT {
		out.MinT, out.MaxT = 0, 0
	}
	out.Series = int64(len(all))
	return all, out, nil
}
