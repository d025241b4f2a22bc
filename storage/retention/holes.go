package retention

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// A hole is a range of windows whose rows may be missing although older rows exist. Either the rows expired in the
// engine before the boundary hid them, because the retention was raised too late, or they were dropped and older rows
// were imported again later. A query whose range overlaps a hole reads coarser rollups up to the end of the hole. At 1h
// there are no coarser rollups, so the answer omits the windows of the hole, with a warning. Other queries aren't
// affected.

// eachHole calls the function each with each hole (from, to] of a class at a resolution, in order.
func (k *Keeper) eachHole(b *Boundaries, class int64, res rollup.Resolution, each func(from, to int64)) {
	if !k.env.Expires {
		if h := b.get(class, res); h != nil {
			for _, o := range h.Holes {
				each(o.FromMS, o.ToMS)
			}
		}
		return
	}
	past := k.pastUntil()
	if b == nil || b.firstExpiry == 0 || b.firstExpiry > past {
		return
	}
	var last hole
	for _, f := range b.fixed {
		if f.class != class || format.ResolutionOf(f.window) != res || f.expires == 0 || f.expires > past {
			continue
		}
		from, to := k.env.Period.WindowStart(f.window), k.env.Period.WindowEnd(f.window)
		if last.ToMS == from && last.FromMS < last.ToMS {
			last.ToMS = to
			continue
		}
		if last.FromMS < last.ToMS {
			each(last.FromMS, last.ToMS)
		}
		last = hole{from, to}
	}
	if last.FromMS < last.ToMS {
		each(last.FromMS, last.ToMS)
	}
}

// holeEnd returns the end of the newest hole that overlaps the range from minT to maxT, or Never.
func (k *Keeper) holeEnd(b *Boundaries, class int64, res rollup.Resolution, minT, maxT int64) int64 {
	end := int64(Never)
	k.eachHole(b, class, res, func(from, to int64) {
		if minT <= to && maxT > from {
			end = max(end, to)
		}
	})
	return end
}

// HoleEdges returns the starts and ends of a tenant's holes, in order.
func (k *Keeper) HoleEdges(ctx context.Context, tenant string) (edges []int64, err error) {
	b, err := k.Boundaries(ctx, tenant)
	if err != nil {
		return nil, err
	}
	for class := range k.Classes() {
		for res := rollup.Raw; res <= rollup.OneHour; res++ {
			k.eachHole(b, class, res, func(from, to int64) { edges = append(edges, from, to) })
		}
	}
	slices.Sort(edges)
	return slices.Compact(edges), nil
}

// Gaps are ranges of time in which rows of a class may be missing at a resolution.
type Gaps []classGap

// classGap is the range of time (from, to] of a class at a resolution.
type classGap struct {
	res             rollup.Resolution
	class, from, to int64
}

// HoleError reports a range of rows that a query would have read if they hadn't expired.
type HoleError struct {
	// From and To are the bounds of the range (From, To], in milliseconds.
	From, To int64
}

func (e *HoleError) Error() string {
	return fmt.Sprintf(
		"storage: the data from %s to %s have expired: they were written before the retention was raised, and older "+
			"data were imported later",
		timeOf(e.From).UTC().Format(time.DateOnly), timeOf(e.To).UTC().Format(time.DateOnly),
	)
}

// appendGaps appends the holes of a tenant's classes at a resolution.
func (k *Keeper) appendGaps(gaps Gaps, b *Boundaries, res rollup.Resolution) Gaps {
	for class := range k.Classes() {
		k.eachHole(b, class, res, func(from, to int64) { gaps = append(gaps, classGap{res, class, from, to}) })
	}
	return gaps
}

// Contains reports whether a time is in one of the gaps of a class at a resolution.
func (l Gaps) Contains(class int64, res rollup.Resolution, t int64) bool {
	return slices.ContainsFunc(l, func(g classGap) bool {
		return g.class == class && g.res == res && t > g.from && t <= g.to
	})
}

// ContainsAny reports whether a time is in a gap of raw rows of any class.
func (l Gaps) ContainsAny(t int64) bool {
	return slices.ContainsFunc(l, func(g classGap) bool { return g.res == rollup.Raw && t > g.from && t <= g.to })
}

// Errors returns an error for each gap of 1h rollups that overlaps the range from minT to maxT. classes has a bit for
// each class.
func (l Gaps) Errors(classes uint64, minT, maxT int64) (list []*HoleError) {
	for _, g := range l {
		if g.res == rollup.OneHour && classes&(1<<g.class) != 0 && minT <= g.to && maxT > g.from {
			list = append(list, &HoleError{From: max(g.from, minT-1), To: min(g.to, maxT)})
		}
	}
	return list
}

// RangesOutside yields the ranges between minT and maxT that are outside all gaps of raw rows of a class.
func (l Gaps) RangesOutside(class, minT, maxT int64) iter.Seq2[int64, int64] {
	return func(yield func(minT, maxT int64) bool) {
		from := minT
		for _, g := range slices.SortedFunc(
			slices.Values(l), func(a, b classGap) int { return cmp.Compare(a.from, b.from) },
		) {
			if g.class != class || g.res != rollup.Raw || g.to < from {
				continue
			}
			if to := min(g.from, maxT); from <= to && !yield(from, to) {
				return
			}
			from = g.to + 1
		}
		if from <= maxT {
			yield(from, maxT)
		}
	}
}
