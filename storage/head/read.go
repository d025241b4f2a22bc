package head

import (
	"context"
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/index"
)

// Snapshot holds the head chunks of a series at an instant. Later samples may show. Samples sealed afterwards stay readable through it.
type Snapshot struct {
	part   *guardedPartition
	chunks Chunks
}

// Read appends the samples that may lie in [minT, maxT], in no particular order.
func (v *Snapshot) Read(minT, maxT int64, into *chunk.Samples) error {
	v.part.mu.RLock()
	defer v.part.mu.RUnlock()
	for st := range v.chunks.All() {
		if err := st.read(minT, maxT, into); err != nil {
			return err
		}
	}
	return nil
}

// First yields the oldest timestamp of each head chunk that may have samples in [minT, maxT].
func (v *Snapshot) First(minT, maxT int64) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		v.part.mu.RLock()
		defer v.part.mu.RUnlock()
		for st := range v.chunks.All() {
			if first, _ := st.bounds(); st.hasSamplesIn(minT, maxT) && !yield(first) {
				return
			}
		}
	}
}

// Select yields the series of a tenant that match and have samples in [minT, maxT].
func (h *Head) Select(tenant string, ms []*labels.Matcher, minT, maxT int64) iter.Seq2[*Series, Snapshot] {
	return h.SelectMetered(tenant, ms, minT, maxT, func(int) bool { return true })
}

// SelectMetered is Select for a caller that holds what it yields: before it yields any, mayHold is called with the number of series
// that match. If that returns false, none is yielded.
func (h *Head) SelectMetered(tenant string, ms []*labels.Matcher, minT, maxT int64, mayHold func(n int) bool) iter.Seq2[*Series, Snapshot] {
	return func(yield func(*Series, Snapshot) bool) {
		t := h.find(tenant)
		if t == nil {
			return
		}
		matching := t.match(ms)
		if !mayHold(len(matching)) {
			return
		}
		for _, found := range matching {
			p := &h.parts[found.part]
			p.mu.RLock()
			chunks := found.chunks()
			overlap := false
			for st := range chunks.All() {
				overlap = overlap || st.hasSamplesIn(minT, maxT)
			}
			p.mu.RUnlock()
			if overlap && !yield(found, Snapshot{part: p, chunks: chunks}) {
				return
			}
		}
	}
}

// Exemplars yields the series of a tenant that match, with the exemplars of those head chunks that may have some after one instant and
// up to another.
func (h *Head) Exemplars(tenant string, ms []*labels.Matcher, after, to int64) iter.Seq2[*Series, []format.Exemplar] {
	return func(yield func(*Series, []format.Exemplar) bool) {
		t := h.find(tenant)
		if t == nil {
			return
		}
		for _, s := range t.match(ms) {
			var list []format.Exemplar
			p := &h.parts[s.part]
			p.mu.RLock()
			for st := range s.chunks().All() {
				if x := st.exemplars(); x != nil && x.maxT > after && x.minT <= to {
					list = append(list, x.list...)
				}
			}
			p.mu.RUnlock()
			if !yield(s, list) {
				return
			}
		}
	}
}

// SlotPartitionsOf lists the slot partitions that hold samples which a delete is about, in order.
func (h *Head) SlotPartitionsOf(tenant string, d *format.Tombstone) []SlotPartition {
	t := h.find(tenant)
	if t == nil {
		return nil
	}
	found := map[SlotPartition]bool{}
	for _, series := range t.match(d.Matchers) {
		p := &h.parts[series.part]
		p.mu.RLock()
		for st := range series.chunks().All() {
			x := st.exemplars()
			if st.hasSamplesIn(d.Start, d.End) || x != nil && x.maxT >= d.Start && x.minT <= d.End {
				found[st.gen.At()] = true
			}
		}
		p.mu.RUnlock()
	}
	return slices.SortedFunc(maps.Keys(found), SlotPartition.Compare)
}

// NewestUntil returns the newest timestamp up to at of the samples that the head has of a series, of which those are decoded that lie
// within margin before it; math.MinInt64: there are none.
func (h *Head) NewestUntil(s *Series, at, margin int64) int64 {
	newest := int64(math.MinInt64)
	var samples chunk.Samples
	p := &h.parts[s.part]
	p.mu.RLock()
	for st := range s.chunks().All() {
		switch first, last := st.bounds(); {
		case st.isEmpty() || first > at:
		case last <= at:
			newest = max(newest, last)
		default:
			if err := st.read(at-margin, at, &samples); err != nil {
				newest = at // It can't be known.
			}
		}
	}
	p.mu.RUnlock()
	for _, t := range samples.T {
		if t <= at {
			newest = max(newest, t)
		}
	}
	for _, x := range samples.H {
		if x.T <= at {
			newest = max(newest, x.T)
		}
	}
	return newest
}

// match finds the tenant's series that match.
func (t *Tenant) match(ms []*labels.Matcher) (out []*Series) {
	type candidates struct {
		metric *metricMembers
		series []*Series
	}
	var metrics []candidates
	t.mu.RLock()
	if name, ok := format.EqualName(ms); ok {
		if m := t.metrics[name]; m != nil {
			metrics = append(metrics, candidates{m, m.series})
		}
	} else {
		for name, m := range t.metrics {
			if format.MatchesName(ms, name) {
				metrics = append(metrics, candidates{m, m.series})
			}
		}
	}
	t.mu.RUnlock()
	for _, c := range metrics {
		out = append(out, c.metric.match(c.series, ms)...)
	}
	return out
}

// match finds those of series, the metric's at some instant, that match. Few are tested one by one; of
// many an index is kept, which is built anew once a quarter isn't in it.
func (m *metricMembers) match(series []*Series, ms []*labels.Matcher) (out []*Series) {
	const few = 64
	from := 0
	if len(series) > few {
		m.mu.Lock()
		if m.set == nil || m.inSet < len(series)-len(series)/4 {
			all := make([]labels.Labels, len(series))
			for i, s := range series {
				all[i] = s.labels
			}
			m.set, m.inSet = index.New(all), len(series)
		}
		set, n := m.set, m.inSet
		m.mu.Unlock()
		if n <= len(series) { // A reader with an older view of the metric tests its series one by one.
			for _, i := range set.Match(ms) {
				out = append(out, series[i])
			}
			from = n
		}
	}
	for _, s := range series[from:] {
		if format.MatchesAll(s.labels, ms) {
			out = append(out, s)
		}
	}
	return out
}

// Stats counts what isn't sealed yet.
type Stats struct {
	Series, Chunks int64
	// MinT and MaxT are the oldest and newest timestamp, milliseconds; 0 if there are no samples.
	MinT, MaxT int64
}

// count adds the chunks of a head chunk. The caller holds the part's lock.
func (h *Stats) count(st *Chunk) {
	if st.isEmpty() {
		return
	}
	h.Chunks += int64(st.pieces())
	first, last := st.bounds()
	h.MinT, h.MaxT = min(h.MinT, first), max(h.MaxT, last)
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
		for st := range s.chunks().All() {
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
