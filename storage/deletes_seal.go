package storage

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/cassia-db/cassia/storage/engine"
)

// gathered is what a seal works off.
type gathered struct {
	// gens hold the samples of rows, the stage rows to delete afterwards. left are those that can't be read.
	gens []*generation
	rows []stageRow
	left map[stageRow]bool
	// deletes were read after all of that: of each tenant those that touch the slot.
	deletes map[string]deletions
}

// maxGathers is how often a seal begins anew because somebody deleted series meanwhile.
const maxGathers = 20

// gatherUndeleted gathers what is to be sealed without what is deleted. The stage has none of it: whoever deletes
// seals first. But what this process remembers of the stage may be older than the delete, so where one is about
// it, the stage is read again.
//
// Invariant: no delete that was durable before any of these samples were acknowledged is missing from the deletes
// that their chunk will name, for these are read after the samples; and no sample is older than one that it names,
// for the samples are read after it.
func (s *Store) gatherUndeleted(ctx context.Context, w Work, gens []*generation, upTo int64) (g gathered, err error) {
	before, err := s.allDeletes(ctx)
	if err != nil {
		return g, err
	}
	for range maxGathers {
		known := gens
		if s.concern(before, w.Slot, gens) {
			known = nil
		}
		var extra []*generation
		if extra, g.rows, g.left, err = s.gather(ctx, w, known, upTo); err != nil {
			return g, err
		}
		g.gens = slices.Concat(known, extra)
		after, err := s.allDeletes(ctx)
		if err != nil {
			return g, err
		}
		if sameDeletes(before, after) {
			g.deletes = map[string]deletions{}
			for tenant, ds := range after {
				g.deletes[tenant] = ds.inSlot(s.period, w.Slot)
			}
			return g, nil
		}
		before = after
	}
	return g, fmt.Errorf("%w: series are deleted faster than a slot can be read", engine.ErrUnavailable)
}

// concern says whether any of the deletes is about samples of these generations.
func (s *Store) concern(all map[string]deletions, slot int64, gens []*generation) bool {
	for tenant, ds := range all {
		ds = ds.inSlot(s.period, slot)
		if len(ds) == 0 {
			continue
		}
		for _, g := range gens {
			if slices.ContainsFunc(g.strands, func(st *strand) bool {
				return st.holds() && st.series.tenant.name == tenant && len(ds.of(st.series.labels)) > 0
			}) {
				return true
			}
		}
	}
	return false
}

func sameDeletes(a, b map[string]deletions) bool {
	return maps.EqualFunc(a, b, func(a, b deletions) bool {
		return slices.EqualFunc(a, b, func(a, b *deletion) bool { return a.id == b.id && a.announced == b.announced })
	})
}

// hasAny says whether any of the generation's rows is among these.
func (g *generation) hasAny(rows map[stageRow]bool) bool {
	return len(rows) > 0 && slices.ContainsFunc(g.rows, func(r stageRow) bool { return rows[r] })
}

// deletesOf returns the deletes that chunks of a series name.
func (x *sealer) deletesOf(s *Series) deletions { return x.deletes[s.tenant.name].of(s.labels) }
