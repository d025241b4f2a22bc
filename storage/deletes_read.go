package storage

import (
	"context"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/format"
)

// loadTombstones finds the deletes that the request applies, and brings the head up to date. It comes before anything is read.
func (r *request) loadTombstones(ctx context.Context) error {
	all, err := r.s.loadTombstones(ctx, r.tenant)
	if err != nil {
		return err
	}
	r.deletes = all.Where(func(d *format.Tombstone) bool {
		return d.Touches(r.minT-1-format.DayMS, r.maxT+format.DayMS) && !disjoint(d.Matchers, r.matchers)
	})
	return nil
}

// disjoint says that no series matches both, as far as the labels show that either demands to be equal to something.
func disjoint(a, b []*labels.Matcher) bool { return contradict(a, b) || contradict(b, a) }

// contradict says whether one of the first demands a value that one of the others refuses.
func contradict(demand, others []*labels.Matcher) bool {
	for _, m := range demand {
		if m.Type != labels.MatchEqual {
			continue
		}
		for _, o := range others {
			if o.Name == m.Name && !o.Matches(m.Value) {
				return true
			}
		}
	}
	return false
}
