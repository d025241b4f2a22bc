package storage

import (
	"fmt"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// assertSealed panics if the sealed rows don't contain all samples of the staged rows that are about to be deleted. It
// skips the check if rows can't be read.
func (p *sealPass) assertSealed() {
	if !invariants {
		return
	}
	sealers := map[*sealedWork]*slotSealer{}
	for _, w := range p.works {
		sealers[w] = &slotSealer{
			rowWriter: newRowWriter(p.ctx, p.s, w.Work), rolledSlot: newRolledSlot(p.ctx, p.s, w.Slot),
			deletes: p.deletesIn(w.Slot),
		}
	}
	for tenant, metrics := range p.stagedByTenant() {
		byFinest, _, err := p.groupByFinest(tenant, metrics)
		if err != nil {
			return
		}
		for _, m := range byFinest[rollup.Raw] {
			for _, c := range p.seriesOf(m.chunks) {
				if !sealers[c.work].assertSealed(&c.collectedSeries) {
					return
				}
			}
		}
	}
}

// assertSealed panics if the sealed samples of a series don't contain all samples in c. It returns false if rows can't
// be read.
func (x *slotSealer) assertSealed(c *collectedSeries) bool {
	var samples, sealed chunk.Samples
	for st := range c.chunks.All() {
		if err := st.Read(&samples); err != nil {
			return false
		}
	}
	if x.readSealed(c.series, &sealed, new(format.TombstoneIDs)) != nil {
		return false
	}
	sealed.Normalize()
	// Normalize keeps one of several samples with the same timestamp. Adding the staged samples must not change which
	// one it keeps.
	var both chunk.Samples
	both.AppendAll(&sealed)
	both.AppendAll(&samples)
	both.Normalize()
	if !sealed.Covers(&both) {
		panic(fmt.Sprintf("invariant: slot %d of %s of tenant %q was sealed and isn't whole",
			x.work.Slot, c.series.Labels(), c.series.Tenant()))
	}
	return true
}
