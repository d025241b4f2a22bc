package storage

import (
	"cmp"
	"slices"
	"strings"

	"github.com/cassia-db/cassia/storage/head"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// A pass may contain half a million head chunks. It therefore stores only one pointer per head chunk, grouped by
// metric. All other state exists only for the metric that is being sealed.

// stagedMetric holds the head chunks of one metric of a tenant that a pass seals.
type stagedMetric struct {
	name   string
	chunks []*head.Chunk
}

// stagedSeries holds the head chunks of a series in a slot that a pass seals.
type stagedSeries struct {
	collectedSeries
	work *sealedWork
}

// stagedByTenant returns the head chunks to seal by tenant, sorted by metric.
func (p *sealPass) stagedByTenant() map[string][]stagedMetric {
	found := map[*head.TenantMetric]*stagedMetric{}
	var of *head.TenantMetric
	var m *stagedMetric
	for _, w := range p.works {
		if len(w.rows) == 0 && !slices.ContainsFunc(w.gens, (*head.Generation).IsPartial) { // nothing to seal
			continue
		}
		for _, g := range w.gens {
			for _, st := range g.Chunks() {
				if !st.HasData() {
					continue
				}
				if s := st.Series(); s.TenantMetric != of {
					of = s.TenantMetric
					if m = found[of]; m == nil {
						m = &stagedMetric{name: s.Metric()}
						found[of] = m
					}
				}
				m.chunks = append(m.chunks, st)
			}
		}
	}
	byTenant := map[string][]stagedMetric{}
	for _, m := range found {
		tenant := m.chunks[0].Series().Tenant()
		byTenant[tenant] = append(byTenant[tenant], *m)
	}
	for tenant, metrics := range byTenant {
		byTenant[tenant] = mergeMetrics(metrics)
	}
	return byTenant
}

// mergeMetrics sorts metrics by name and merges metrics with the same name. The same name occurs twice if the head has
// evicted a metric and created it again.
func mergeMetrics(metrics []stagedMetric) []stagedMetric {
	slices.SortFunc(metrics, func(a, b stagedMetric) int { return strings.Compare(a.name, b.name) })
	merged := metrics[:1]
	for _, m := range metrics[1:] {
		if last := &merged[len(merged)-1]; last.name == m.name {
			last.chunks = append(last.chunks, m.chunks...)
		} else {
			merged = append(merged, m)
		}
	}
	return merged
}

// workOf returns the work for the slot and partition of a head chunk.
func (p *sealPass) workOf(st *head.Chunk) *sealedWork {
	at := st.SlotPartition()
	return p.works[slices.IndexFunc(p.works, func(w *sealedWork) bool { return w.slotPartition() == at })]
}

// classOf returns the class of a head chunk's rows.
func (p *sealPass) classOf(st *head.Chunk) int64 { return p.classes.ClassOf(st.Series()) }

// groupByFinest groups head chunks by the finest resolution whose window isn't past its retention. gone contains the
// head chunks that are past the retention of all resolutions. groupByFinest reuses the memory of metrics.
func (p *sealPass) groupByFinest(tenant string, metrics []stagedMetric) (
	byFinest [resolutions][]stagedMetric, gone []stagedMetric, err error,
) {
	placements := map[[2]int64]retention.Placement{} // by class and slot
	for _, m := range metrics {
		for _, st := range m.chunks {
			at := [2]int64{p.classOf(st), st.SlotPartition().Slot}
			if _, known := placements[at]; !known {
				if placements[at], err = p.s.retention.Placement(p.ctx, tenant, at[0], at[1]); err != nil {
					return byFinest, nil, err
				}
			}
		}
	}
	for _, m := range metrics {
		parts := [resolutions][]*head.Chunk{rollup.Raw: m.chunks[:0]}
		var lost []*head.Chunk
		for _, st := range m.chunks {
			if at := placements[[2]int64{p.classOf(st), st.SlotPartition().Slot}]; at.Stored {
				parts[at.Finest] = append(parts[at.Finest], st)
			} else {
				lost = append(lost, st)
			}
		}
		for finest, chunks := range parts {
			byFinest[finest] = addMetric(byFinest[finest], m.name, chunks)
		}
		gone = addMetric(gone, m.name, lost)
	}
	return byFinest, gone, nil
}

func addMetric(list []stagedMetric, name string, chunks []*head.Chunk) []stagedMetric {
	if len(chunks) == 0 {
		return list
	}
	return append(list, stagedMetric{name, chunks})
}

// countLate counts and logs samples that arrived after their window had expired.
func (p *sealPass) countLate(metrics []stagedMetric, what string) {
	byWork := map[*sealedWork][]*head.Chunk{}
	for _, m := range metrics {
		for _, st := range m.chunks {
			w := p.workOf(st)
			byWork[w] = append(byWork[w], st)
		}
	}
	for _, w := range p.works {
		p.s.countLate(w.Work, byWork[w], what)
	}
}

// seriesOf returns a metric's head chunks by series and slot, ordered by id and slot.
func (p *sealPass) seriesOf(chunks []*head.Chunk) []stagedSeries {
	list := make([]stagedSeries, 0, len(chunks))
	var w *sealedWork
	for _, st := range chunks {
		if w == nil || w.slotPartition() != st.SlotPartition() {
			w = p.workOf(st)
		}
		list = append(
			list, stagedSeries{
				collectedSeries{series: st.Series(), class: p.classOf(st), chunks: head.Chunks{}.WithChunk(st)}, w,
			},
		)
	}
	order := func(a, b *stagedSeries) int {
		return cmp.Or(a.series.CompareID(b.series), cmp.Compare(a.work.Slot, b.work.Slot))
	}
	slices.SortFunc(list, func(a, b stagedSeries) int { return order(&a, &b) })
	merged := list[:0]
	for i := range list {
		c := &list[i]
		if n := len(merged); n > 0 && order(&merged[n-1], c) == 0 { // The same series in another generation.
			for st := range c.chunks.All() {
				merged[n-1].chunks = merged[n-1].chunks.WithChunk(st)
			}
			continue
		}
		merged = append(merged, *c)
	}
	return merged
}
