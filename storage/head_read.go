package storage

import (
	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/index"
)

// openSeries is a series with unsealed samples, as it was when a query began. Later samples may show.
type openSeries struct {
	id     format.SeriesID
	labels labels.Labels
	class  int64
	hidden int64 // the newest timestamp that is no longer kept
	gaps   []classGap
	part   *headPartition
	chunks headChunks
}

// samples appends the series' unsealed samples that may lie in [minT, maxT], in no particular order.
func (o *openSeries) samples(minT, maxT int64, into *chunk.Samples) error {
	if o.hidden < minT && len(o.gaps) == 0 {
		return o.read(minT, maxT, into)
	}
	for _, span := range outsideGaps(o.gaps, o.class, max(minT, o.hidden+1), maxT) {
		var all chunk.Samples
		if err := o.read(span.MinT, span.MaxT, &all); err != nil {
			return err
		}
		all.Normalize()
		all.Clip(span.MinT, span.MaxT)
		into.AppendAll(&all)
	}
	return nil
}

func (o *openSeries) read(minT, maxT int64, into *chunk.Samples) error {
	o.part.mu.RLock()
	defer o.part.mu.RUnlock()
	for st := range o.chunks.all() {
		if err := st.read(minT, maxT, into); err != nil {
			return err
		}
	}
	return nil
}

// selectOpen returns the series that match and have unsealed samples in [minT, maxT]. What is sealed
// afterwards stays readable through it.
func (s *Store) selectOpen(tenant string, ms []*labels.Matcher, minT, maxT int64) (out []openSeries) {
	h := s.head
	h.mu.RLock()
	t := h.tenants[tenant]
	h.mu.RUnlock()
	if t == nil {
		return nil
	}
	for _, found := range t.match(ms) {
		p := &h.parts[found.part]
		p.mu.RLock()
		strands := found.chunks
		overlap := false
		for st := range strands.all() {
			overlap = overlap || st.hasSamplesIn(minT, maxT)
		}
		p.mu.RUnlock()
		if overlap {
			out = append(out, openSeries{id: found.id, labels: found.labels, class: int64(found.class), part: p, chunks: strands})
		}
	}
	return out
}

// match finds the tenant's series that match.
func (t *headTenant) match(ms []*labels.Matcher) (out []*Series) {
	type candidates struct {
		metric *headMetric
		series []*Series
	}
	var metrics []candidates
	t.mu.RLock()
	if name, ok := equalName(ms); ok {
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
func (m *headMetric) match(series []*Series, ms []*labels.Matcher) (out []*Series) {
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

// equalName returns the metric's name where a matcher asks for exactly one.
func equalName(ms []*labels.Matcher) (string, bool) {
	for _, m := range ms {
		if m.Name == labels.MetricName && m.Type == labels.MatchEqual {
			return m.Value, true
		}
	}
	return "", false
}

// HeadStats tells how much is not sealed yet.
type HeadStats struct {
	Series, Chunks int64
	// MinT and MaxT are the oldest and newest timestamp, milliseconds; 0 if there are no samples.
	MinT, MaxT int64
}

// count adds the chunks of a head chunk. The caller holds the part's lock.
func (h *HeadStats) count(st *headChunk) {
	if !st.nonEmpty {
		return
	}
	h.Chunks += int64(st.pieces())
	h.MinT, h.MaxT = min(h.MinT, st.minT), max(h.MaxT, st.maxT)
}

// HeadStats counts what the head holds, of all tenants.
func (s *Store) HeadStats() HeadStats {
	stats := HeadStats{Series: s.head.series.Load(), MinT: format.MaxTime, MaxT: -format.MaxTime}
	count := func(g *generation) {
		for _, st := range g.chunks {
			stats.count(st)
		}
	}
	for i := range s.head.parts {
		p := &s.head.parts[i]
		p.mu.RLock()
		for _, c := range p.slots {
			if c.open != nil {
				count(c.open)
			}
			if c.followed != nil {
				count(c.followed)
			}
			for _, g := range c.closed {
				count(g)
			}
		}
		p.mu.RUnlock()
	}
	if stats.Chunks == 0 {
		stats.MinT, stats.MaxT = 0, 0
	}
	return stats
}
