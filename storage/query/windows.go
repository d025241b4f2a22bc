package query

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// windowFinder finds the windows that a request must read.
type windowFinder struct{ *request }

// foundWindows holds windows, each with the slots to read.
type foundWindows struct {
	list []sealedWindow
	// uncleaned maps slots to the deletes that weren't applied to their rollups. It is set in queries for buckets.
	uncleaned map[int64]format.Tombstones
}

// findWindows finds the windows that may contain samples or buckets for a query.
func (r windowFinder) findWindows(ctx context.Context, q Query, open []unsealedSeries) (found foundWindows, err error) {
	switch {
	case q.Resolution != rollup.Raw:
		return r.bucketWindows(ctx, q, open)
	case q.LabelsOnly:
		found.list, err = r.windowsOfNames(ctx)
	default:
		found.list, err = r.windows(ctx, rollup.Raw)
	}
	found.list = withSlots(found.list)
	return found, err
}

func withSlots(windows []sealedWindow) []sealedWindow {
	return slices.DeleteFunc(windows, func(w sealedWindow) bool { return len(w.slots) == 0 })
}

// windowsOfNames finds the windows that list the series of the range: raw windows, and rollup windows for times at
// which finer rows are hidden.
func (r windowFinder) windowsOfNames(ctx context.Context) ([]sealedWindow, error) {
	var all []sealedWindow
	for res := rollup.Raw; res <= rollup.OneHour; res++ {
		if res > rollup.Raw && r.minT > r.maxHidden(res-1) {
			break
		}
		found, err := r.windows(ctx, res)
		if err != nil {
			return nil, err
		}
		if res > rollup.Raw { // These windows are needed only for times before the finer windows.
			last := r.env.Period.WindowAt(res, r.maxHidden(res-1))
			found = slices.DeleteFunc(found, func(w sealedWindow) bool { return w.window > last })
		}
		all = append(all, found...)
	}
	return all, nil
}

// bucketWindows finds the windows for a query for buckets. The buckets of a slot are read from rollups if the rollups
// include all sealed samples of the slot, the head contains no samples of the slot, and no edge is inside one of its
// buckets. Otherwise the buckets of the slot are computed from samples.
func (r windowFinder) bucketWindows(
	ctx context.Context, q Query, open []unsealedSeries,
) (found foundWindows, err error) {
	// The raw commit records are read before the rollups' commit records. A seal writes the rollups' records first, so
	// they include every seal whose raw record was read.
	raw, err := r.windows(ctx, rollup.Raw)
	if err != nil {
		return found, err
	}
	rolled, err := r.windows(ctx, q.Resolution)
	if err != nil {
		return found, err
	}
	sums := map[int64]uint64{} // of raw commit records
	for _, w := range raw {
		for i, slot := range w.slots {
			sums[slot] = w.sums[i]
		}
	}
	unfit, err := r.unfitSlots(ctx, rolled, sums)
	if err != nil {
		return found, err
	}
	for slot := range r.edgeSlots(q, open) {
		if r.hasSamples(sums, slot) || !isRolled(rolled, slot) {
			unfit[slot] = true
		}
	}
	found.uncleaned = r.findUncleaned(rolled, unfit)
	fromRollups := map[int64]bool{}
	for i := range rolled {
		w := &rolled[i]
		w.slots = slices.DeleteFunc(w.slots, func(slot int64) bool {
			if unfit[slot] {
				if !r.mayMissRaw(slot) {
					return true
				}
				w.left = append(w.left, slot) // Raw samples of some class may have expired.
				return false
			}
			fromRollups[slot] = true
			return false
		})
		w.sums = nil
	}
	for i := range raw {
		w := &raw[i]
		w.slots = slices.DeleteFunc(w.slots, func(slot int64) bool {
			return fromRollups[slot] && found.uncleaned[slot] == nil
		})
		w.sums = nil
	}
	found.list = withSlots(append(rolled, raw...))
	return found, nil
}

// findUncleaned finds the slots whose rollups include all sealed samples but to which some delete wasn't applied.
// Buckets that the delete touches are computed from samples. All other buckets are read from rollups, because a commit
// record doesn't prove that samples of every series exist: raw rows with a shorter TTL may have expired before it.
func (r windowFinder) findUncleaned(
	rolled []sealedWindow, unfit map[int64]bool,
) (uncleaned map[int64]format.Tombstones) {
	for _, w := range rolled {
		for _, slot := range w.slots {
			if unfit[slot] {
				continue
			}
			ds := r.deletes.Filter(func(d *format.Tombstone) bool {
				return d.TouchesSlot(r.env.Period, slot) && !w.cleared[d.CommitKey(slot)]
			})
			if len(ds) == 0 {
				continue
			}
			if uncleaned == nil {
				uncleaned = map[int64]format.Tombstones{}
			}
			uncleaned[slot] = ds
		}
	}
	return uncleaned
}

func isRolled(rolled []sealedWindow, slot int64) bool {
	return slices.ContainsFunc(rolled, func(w sealedWindow) bool {
		_, ok := slices.BinarySearch(w.slots, slot)
		return ok
	})
}

// unfitSlots finds the slots whose rollups don't include all sealed samples.
func (r windowFinder) unfitSlots(
	ctx context.Context, rolled []sealedWindow, sums map[int64]uint64,
) (map[int64]bool, error) {
	unfit := map[int64]bool{}
	for _, w := range rolled {
		for i, slot := range w.slots {
			if sum, ok := sums[slot]; ok && sum != w.sums[i] {
				unfit[slot] = true
			}
		}
	}
	if len(unfit) == 0 {
		return unfit, nil
	}
	// Rollups may have commit records that are missing in the raw window, because a seal is in progress or was
	// interrupted. The rollups of these slots may still be used.
	byWindow := map[int64]bool{}
	for slot := range unfit {
		byWindow[r.env.Period.RawWindowOfSlot(slot)] = true
	}
	missing := map[int64]bool{}
	for window := range byWindow {
		// Deletes are omitted, because findUncleaned handles rollups to which a delete wasn't applied for each bucket.
		marks, err := r.env.Unrolled(ctx, r.tenant, window, nil)
		if errors.Is(err, engine.ErrCorrupt) {
			return unfit, nil // The records are unknown, so the slots are read from samples. A warning was reported.
		}
		if err != nil {
			return nil, err
		}
		for _, m := range marks {
			missing[m.Slot] = true
		}
	}
	maps.DeleteFunc(unfit, func(slot int64, _ bool) bool { return !missing[slot] })
	return unfit, nil
}

// edgeSlots returns the slots in which an edge of the query is inside a bucket, and the slots in which a series in open
// has unsealed samples.
func (r windowFinder) edgeSlots(q Query, open []unsealedSeries) map[int64]bool {
	slots := map[int64]bool{}
	for _, e := range q.Edges {
		if e%q.Resolution.Width() != 0 && e >= r.minT-1 && e <= r.maxT {
			slots[r.env.Period.SlotOf(e)] = true
		}
	}
	for i := range open {
		for first := range open[i].unsealed.MinTimes(r.minT, r.maxT) {
			slots[r.env.Period.SlotOf(first)] = true
		}
	}
	return slots
}
