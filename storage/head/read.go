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

// Snapshot holds the head chunks of a series at one time. Samples added to these chunks later may be visible. Samples
// that are sealed later stay readable.
type Snapshot struct {
	part   *guardedPartition
	chunks Chunks
}

// Read appends the samples that may be within [minT, maxT], unsorted.
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

// Prefetch reads the first bytes of each head chunk, which are immutable, into the processor's cache. It returns a byte
// that depends on them, so that the reads aren't optimized away.
func (v *Snapshot) Prefetch() (sum byte) {
	for st := range v.chunks.All() {
		if st.gen != nil {
			sum = 1
		}
	}
	return sum
}

// MinTimes yields the min timestamp of each head chunk that may have samples in [minT, maxT].
func (v *Snapshot) MinTimes(minT, maxT int64) iter.Seq[int64] {
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

// Numbers of series whose head chunks are read under one lock: few at first, for callers that stop early.
const (
	selectedFirst  = 16
	selectedAtOnce = 1024
)

// Select yields the matching series of a tenant that have samples in [minT, maxT], until ctx is canceled. If scan is
// set and no matcher selects by value, each series is tested, without building a list of the matching series. scan is
// for callers that keep few of the series.
func (h *Head) Select(
	ctx context.Context, tenant string, ms []*labels.Matcher, minT, maxT int64, scan bool,
) iter.Seq2[*Series, Snapshot] {
	return func(yield func(*Series, Snapshot) bool) {
		t := h.findTenant(tenant)
		if t == nil {
			return
		}
		var (
			list   []*Series
			chunks []Chunks
			size   = selectedFirst
		)
		flush := func() bool {
			chunks = h.appendOverlapping(list, minT, maxT, chunks[:0])
			for i, s := range list {
				if !chunks[i].IsEmpty() && !yield(s, Snapshot{part: &h.parts[s.part], chunks: chunks[i]}) {
					return false
				}
			}
			list, size = list[:0], min(2*size, selectedAtOnce)
			return true
		}
		more := true
		t.eachSeries(ctx, ms, scan, func(found *Series) bool {
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

// appendOverlapping appends the head chunks of each series, or an empty list for a series without samples in [minT,
// maxT]. If there are many series, each partition is locked once for all of them.
func (h *Head) appendOverlapping(list []*Series, minT, maxT int64, into []Chunks) []Chunks {
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

// chunksIn returns all head chunks, or an empty list if none of them has samples in [minT, maxT]. The partition's lock
// must be held.
func (s *Series) chunksIn(minT, maxT int64) Chunks {
	if chunks := s.chunks(); chunks.haveSamplesIn(minT, maxT) {
		return chunks
	}
	return Chunks{}
}

// Exemplars yields the matching series of a tenant that have exemplars, with the exemplars of the head chunks that may
// have some in (after, to], until ctx is canceled.
func (h *Head) Exemplars(
	ctx context.Context, tenant string, ms []*labels.Matcher, after, to int64,
) iter.Seq2[*Series, []format.Exemplar] {
	return func(yield func(*Series, []format.Exemplar) bool) {
		t := h.findTenant(tenant)
		if t == nil {
			return
		}
		t.eachSeries(ctx, ms, true, func(s *Series) bool {
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

// SlotPartitionsOf lists the slot partitions with samples that a delete applies to, and those in which a commit has
// failed, because they may also have such samples. It is sorted.
func (h *Head) SlotPartitionsOf(ctx context.Context, tenant string, d *format.Tombstone) ([]SlotPartition, error) {
	var matching []*Series
	if t := h.findTenant(tenant); t != nil {
		matching = t.matchSeries(ctx, d.Matchers)
	}
	found := map[SlotPartition]bool{}
	for _, series := range matching {
		p := &h.parts[series.part]
		p.mu.RLock()
		for st := range series.chunks().All() {
			x := st.exemplars()
			if st.hasSamplesIn(d.Start, d.End) || x != nil && x.maxT >= d.Start && x.minT <= d.End {
				found[st.gen.SlotPartition()] = true
			}
		}
		p.mu.RUnlock()
	}
	for i := range h.parts {
		p := &h.parts[i]
		p.mu.RLock()
		for at := range p.failed {
			found[at] = true
		}
		p.mu.RUnlock()
	}
	return slices.SortedFunc(maps.Keys(found), SlotPartition.Compare), ctx.Err()
}

// MaxTimeUntil returns the max timestamp ≤ at of a series' samples in the head, math.MinInt64 if there are none. It
// decodes only samples within margin before at.
func (h *Head) MaxTimeUntil(s *Series, at, margin int64) int64 {
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
				newest = at // unknown
			}
		}
	}
	p.mu.RUnlock()
	return max(newest, samples.MaxTimeUntil(at))
}

// matchSeries returns the tenant's matching series. The result is incomplete if ctx was canceled.
func (t *Tenant) matchSeries(ctx context.Context, ms []*labels.Matcher) (out []*Series) {
	t.eachSeries(ctx, ms, false, func(s *Series) bool {
		out = append(out, s)
		return true
	})
	return out
}

// eachSeries calls yield for the tenant's matching series, until it returns false or ctx is canceled. See Select for
// scan.
func (t *Tenant) eachSeries(ctx context.Context, ms []*labels.Matcher, scan bool, yield func(*Series) bool) {
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

// metricsOf returns the metrics with matching names. The result is incomplete if ctx was canceled. Names are matched
// without the lock, because regular expressions may be slow.
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

// visitor visits matching series.
type visitor struct {
	ctx      context.Context
	matching index.Matching
	matchers []*labels.Matcher
	prepared index.Prepared
	indexed  bool // use an index for metrics with many series
	yield    func(*Series) bool
	visited  int // since ctx was last checked
}

// visit visits the matching series of a metric. Few series are tested one by one. For many series, visit uses an index,
// and rebuilds it once a quarter of the series isn't in it.
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
		if n <= len(series) { // a reader with an older list of the metric's series tests them one by one
			for _, i := range set.MatchPrepared(v.ctx, &v.prepared) {
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

// isOver reports whether ctx was canceled. It checks at intervals.
func (v *visitor) isOver() bool {
	v.visited++
	return v.visited%cancelEach == 0 && v.ctx.Err() != nil
}

// cancelEach is the number of series between checks of the context.
const cancelEach = 1 << 12

// Stats counts unsealed data.
type Stats struct {
	Series, Chunks int64
	// MinT and MaxT are the min and max timestamp in milliseconds; 0 if there are no samples.
	MinT, MaxT int64
}

// countChunk adds the counts of a head chunk. The partition's lock must be held.
func (h *Stats) countChunk(st *Chunk) {
	if st.isEmpty() {
		return
	}
	h.Chunks += int64(st.pieces())
	first, last := st.bounds()
	h.MinT, h.MaxT = min(h.MinT, first), max(h.MaxT, last)
}

// Stats returns the counts of all tenants' data in the head.
func (h *Head) Stats() Stats {
	stats := Stats{Series: h.series.Load(), MinT: format.MaxTime, MaxT: -format.MaxTime}
	for i := range h.parts {
		p := &h.parts[i]
		p.mu.RLock()
		for _, c := range p.slots {
			c.eachGeneration(func(g *Generation) {
				for _, st := range g.chunks {
					stats.countChunk(st)
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

// MetricSeries yields the series of a tenant's metric, or of all its metrics if metric is "", metric by metric. Callers
// must not change the lists.
func (h *Head) MetricSeries(tenant, metric string) iter.Seq2[string, []*Series] {
	return func(yield func(string, []*Series) bool) {
		t := h.findTenant(tenant)
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

// AddChunks adds the chunks of a series to into.
func (h *Head) AddChunks(s *Series, into *Stats) {
	p := &h.parts[s.part]
	p.mu.RLock()
	defer p.mu.RUnlock()
	for st := range s.chunks().All() {
		into.countChunk(st)
	}
}
