package storage

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
)

// maxGathers is how often a seal begins anew because somebody deleted series meanwhile.
const maxGathers = 20

// gatherUndeleted gathers the samples to be sealed without deleted ones. The stage has none of these: whoever deletes
// seals first. But what this process remembers of the stage may be older than the delete, so where one is about
// it, the stage is read again.
//
// Invariant: no delete that was durable before any of these samples were acknowledged is missing from the deletes
// that their chunk will name, for these are read after the samples; and no sample is older than one that it names,
// for the samples are read after it.
func (p *sealPass) gatherUndeleted() error {
	before, err := p.s.allDeletes(p.ctx)
	if err != nil {
		return err
	}
	for range maxGathers {
		for _, w := range p.works {
			if err := p.gather(w, before); err != nil {
				return err
			}
		}
		after, err := p.s.allDeletes(p.ctx)
		if err != nil {
			return err
		}
		if sameDeletes(before, after) {
			p.deletes = after
			return nil
		}
		before = after
	}
	return fmt.Errorf("%w: series are deleted faster than a slot can be read; send fewer deletes, and try again", engine.ErrUnavailable)
}

func (p *sealPass) gather(w *sealedWork, deletes map[string]format.Tombstones) error {
	known := w.own
	if p.s.concern(deletes, w.Slot, w.own) {
		known = nil
	}
	extra, rows, left, err := p.s.listStagedRows(p.ctx, w.Work, known, w.upTo)
	if err != nil {
		return err
	}
	w.gens, w.rows, w.left = slices.Concat(known, extra), rows, left
	return nil
}

// sameDeletesNow returns an error if series of a tenant were deleted since the pass gathered its samples. Such a delete
// may have been applied to the rollups already: samples that are added to these afterwards would come back.
func (p *sealPass) sameDeletesNow(tenant string) error {
	now, err := p.s.deletesToName(p.ctx, tenant)
	if err != nil {
		return err
	}
	if !slices.EqualFunc(p.deletes[tenant], now, sameDelete) {
		return fmt.Errorf("%w: series were deleted before the seal started; it restarts", engine.ErrUnavailable)
	}
	return nil
}

// deletesIn returns those deletes, by tenant, that touch a slot.
func (p *sealPass) deletesIn(slot int64) map[string]format.Tombstones {
	in := map[string]format.Tombstones{}
	for tenant, ds := range p.deletes {
		if ds = ds.InSlot(p.s.period, slot); len(ds) > 0 {
			in[tenant] = ds
		}
	}
	return in
}

// concern reports whether any of the deletes is about samples of these generations.
func (s *Store) concern(all map[string]format.Tombstones, slot int64, gens []*head.Generation) bool {
	for tenant, ds := range all {
		ds = ds.InSlot(s.period, slot)
		if len(ds) == 0 {
			continue
		}
		if slices.ContainsFunc(gens, func(g *head.Generation) bool { return g.IsTouched(tenant, ds) }) {
			return true
		}
	}
	return false
}

func sameDeletes(a, b map[string]format.Tombstones) bool {
	return maps.EqualFunc(a, b, func(a, b format.Tombstones) bool { return slices.EqualFunc(a, b, sameDelete) })
}

func sameDelete(a, b *format.Tombstone) bool { return a.ID == b.ID && a.Announced == b.Announced }

// deletesOf returns the deletes that chunks of a series name.
func (x *slotSealer) deletesOf(s *Series) format.Tombstones {
	return x.deletes[s.Tenant()].OfSeries(s.Labels())
}
