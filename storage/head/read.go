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

// Warm reads the beginning of each head chunk, which doesn't change, into the processor's cache, and returns a byte that depends on it.
func (v *Snapshot) Warm() (sum byte) {
	for st := range v.chunks.All() {
		if st.gen != nil {
			sum = 1
		}
	}
	return sum
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

// Numbers of series whose head chunks are looked at together: few at first, for callers that want few.
const (
	selectedFirst  = 16
	selectedAtOnce = 1024
)

// Select yields the series of a tenant that match and have samples in [minT, maxT], until the context ends. scan is for callers that
// keep few of the series: unless some label is looked up by its value, each series is tested, and no memory is taken for all of them.
func (h *Head) Select(ctx context.Context, tenant string, ms []*labels.Matcher, minT, maxT int64, scan bool) iter.Seq2[*Series, Snapshot] {
	return func(yield func(*Series, Snapshot) bool) {
		t := h.find(tenant)
		if t == nil {
			return
		}
		var (
			list   []*Series
			chunks []Chunks
			size   = selectedFirst
		)
		flush := func() bool {
			chunks = h.overlapping(list, minT, maxT, chunks[:0])
			for i, s := range list {
				if !chunks[i].IsEmpty() && !yield(s, Snapshot{part: &h.parts[s.part], chunks: chunks[i]}) {
					return false
				}
			}
			list, size = list[:0], min(2*size, selectedAtOnce)
			return true
		}
		more := true
		t.each(ctx, ms, scan, func(found *Series) bool {
			if list = append(list, found); len(list) == size {
				more = flush()
			}
			return more
		})
		if more {
			flush()
		}
	}
}

// overlapping appends the head chunks of each of the series, or none of those that have no samples in [minT, maxT]. Where the series are
// many, each partition is locked once for all of them.
func (h *Head) overlapping(list []*Series, minT, maxT int64, into []Chunks) []Chunks {
	if len(list) < len(h.parts) {
		for _, s := range list {
			p := &h.parts[s.part]
			p.mu.RLock()
			into = append(into, s.chunksIn(minT, maxT))
			p.mu.RUnlock()
		}
		return into
	}
	into = slices.Grow(into, len(list))[:len(list)]
	for part := range h.parts {
		p := &h.parts[part]
		p.mu.RLock()
		for i, s := range list {
			if int(s.part) == part {
				into[i] = s.chunksIn(minT, maxT)
			}
		}
		p.mu.RUnlock()
	}
	return into
}

// chunksIn returns the head chunks, or none if they have no samples in [minT, maxT]. The caller holds the part's lock.
func (s *Series) chunksIn(minT, maxT int64) Chunks {
	if chunks := s.chunks(); chunks.haveSamplesIn(minT, maxT) {
		return chunks
	}
	return Chunks{}
}

// Exemplars yields the series of a tenant that match and have exemplars, with those of the head chunks that may have some after one
// instant and up to another, until the context ends.
func (h *Head) Exemplars(ctx context.Context, tenant string, ms []*labels.Matcher, after, to int64) iter.Seq2[*Series, []format.Exemplar] {
	return func(yield func(*Series, []format.Exemplar) bool) {
		t := h.find(tenant)
		if t == nil {
			return
		}
		t.each(ctx, ms, true, func(s *Series) bool {
			var list []format.Exemplar
			p := &h.parts[s.part]
			p.mu.RLock()
			for st := range s.chunks().All() {
				if x := st.exemplars(); x != nil && x.maxT > after && x.minT <= to {
					list = append(list, x.list...)
				}
			}
			p.mu.RUnlock()
			return len(list) == 0 || yield(s, list)
		})
	}
}

// SlotPartitionsOf lists the slot partitions that hold samples which a delete is about, in order.
func (h *Head) SlotPartitionsOf(ctx context.Context, tenant string, d *format.Tombstone) ([]SlotPartition, error) {
	t := h.find(tenant)
	if t == nil {
		return nil, nil
	}
	found := map[SlotPartition]bool{}
	for _, series := range t.match(ctx, d.Matchers) {
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
	return slices.SortedFunc(maps.Keys(found), SlotPartition.Compare), ctx.Err()
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

// match finds the tenant's series that match, of which some are missing if the context has ended.
func (t *Tenant) match(ctx context.Context, ms []*labels.Matcher) (out []*Series) {
	t.each(ctx, ms, false, func(s *Series) bool {
		out = append(out, s)
		return true
	})
	return out
}

// each calls yield with the tenant's series that match, until it returns false or the context ends. See Select about scan.
func (t *Tenant) each(ctx context.Context, ms []*labels.Matcher, scan bool, yield func(*Series) bool) {
	v := visitor{ctx: ctx, matching: index.NewMatching(ctx), matchers: ms, prepared: index.Prepare(ms), yield: yield}
	v.indexed = v.prepared.IsLookup() || !scan && !v.prepared.IsEmpty()
	for _, m := range t.metricsOf(ctx, ms) {
		t.mu.RLock()
		series := m.series
		t.mu.RUnlock()
		if !v.visit(m, series) {
			return
		}
	}
}

// metricsOf lists the metrics whose names match, of which some are missing if the context has ended. No name is matched under the lock:
// regular expressions may take long.
func (t *Tenant) metricsOf(ctx context.Context, ms []*labels.Matcher) (list []*metricMembers) {
	t.mu.RLock()
	if name, ok := format.EqualName(ms); ok {
		if m := t.metrics[name]; m != nil {
			list = append(list, m)
		}
	} else {
		list = slices.AppendSeq(make([]*metricMembers, 0, len(t.metrics)), maps.Values(t.metrics))
	}
	t.mu.RUnlock()
	x := index.NewMatching(ctx)
	return slices.DeleteFunc(list, func(m *metricMembers) bool { return !x.MatchesName(ms, m.of.metric) })
}

// visitor visits the series that match.
type visitor struct {
	ctx      context.Context
	matching index.Matching
	matchers []*labels.Matcher
	prepared index.Prepared
	indexed  bool // an index is used for metrics of many series
	yield    func(*Series) bool
	visited  int // since the context was checked
}

// visit visits those of series, the metric's at some instant, that match. Few are tested one by one; of
// many an index is kept, which is rebuilt once a quarter isn't in it.
func (v *visitor) visit(m *metricMembers, series []*Series) (more bool) {
	const few = 64
	from := 0
	if v.indexed && len(series) > few {
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
			for _, i := range set.Answer(v.ctx, &v.prepared) {
				if v.isOver() || !v.yield(series[i]) {
					return false
				}
			}
			from = n
		}
	}
	for _, s := range series[from:] {
		if v.isOver() || v.matching.MatchesAll(s.labels, v.matchers) && !v.yield(s) {
			return false
		}
	}
	return true
}

// isOver reports, checking now and then, whether the context has ended.
func (v *visitor) isOver() bool {
	v.visited++
	return v.visited%cancelEach == 0 && v.ctx.Err() != nil
}

// cancelEach is after how many series the context is checked.
const cancelEach = 1 << 12

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

// MetricSeries yields the series of a tenant's metric, or of all its metrics if metric is "", metric by metric. Callers don't change the
// lists.
func (h *Head) MetricSeries(tenant, metric string) iter.Seq2[string, []*Series] {
	return func(yield func(string, []*Series) bool) {
		t := h.find(tenant)
		if t == nil {
			return
		}
		var ms []*labels.Matcher
		if metric != "" {
			ms = append(ms, &labels.Matcher{Type: labels.MatchEqual, Name: labels.MetricName, Value: metric})
		}
		for _, m := range t.metricsOf(context.Background(), ms) {
			t.mu.RLock()
			series := m.series
			t.mu.RUnlock()
			if !yield(m.of.metric, series) {
				return
			}
		}
	}
}

// AddChunks adds the chunks of a series.
func (h *Head) AddChunks(s *Series, into *Stats) {
	p := &h.parts[s.part]
	p.mu.RLock()
	defer p.mu.RUnlock()
	for st := range s.chunks().All() {
		into.count(st)
	}
}
