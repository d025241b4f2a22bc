package storage

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Over an engine whose rows vanish by themselves, rows keep the time to live that they were written with when the retention is
// raised. So a horizon remembers which windows had rows then, and up to where these have vanished:
//
//	 written later, whole      had rows when the retention was raised      written later
//	|..........................|xxxxxxxxxxxxxxxxxx|........................|..............► time
//	                           from               vanished up to here      to
//
// Rows written into other windows stay shown: a gap isn't a horizon. A query over a gap is answered as if all before the gap's end were
// lacking, for an answer has one instant from which on samples make it. A query beside it sees nothing of it.

// wroteUnder is a retention with which rows of windows that end after FromMS, up to ToMS, were written: they vanish when it is
// over. FromMS is 0 where the windows couldn't be listed: then it is all windows up to ToMS.
type wroteUnder struct {
	FromMS int64 `json:"from_ms,omitempty"`
	ToMS   int64 `json:"to_ms"`
	KeptMS int64 `json:"kept_ms"`
}

func (w *wroteUnder) from() int64 {
	if w.FromMS == 0 {
		return never
	}
	return w.FromMS
}

// longerKept reports whether one retention in milliseconds is longer than another; 0 is for ever.
func longerKept(ms, than int64) bool { return than != 0 && (ms == 0 || ms > than) }

// keep notes that it goes by another retention from now on. Where rows vanish by themselves (written returns the windows that have any),
// those of a shorter one go on doing so. A lowered one that was in force for less than a week doesn't count, but the one before it does:
// what a flag that was wrong for a moment has written doesn't make all before it vanish.
func (h *horizon) keep(keptMS, seenMS int64, written func() []wroteUnder) {
	if h.KeptMS == keptMS {
		return
	}
	was := h.BeforeMS
	if h.Raised || h.SinceMS == 0 || seenMS-h.SinceMS >= expireGrace.Milliseconds() {
		was = h.KeptMS
	}
	h.Raised, h.BeforeMS = false, 0
	switch {
	case written == nil:
	case longerKept(keptMS, was):
		for _, w := range written() {
			w.KeptMS = was
			h.Wrote = append(h.Wrote, w)
		}
		h.boundWrote()
		h.Raised = true
	default:
		h.BeforeMS = was
	}
	h.KeptMS, h.SinceMS = keptMS, max(seenMS, 1)
}

// living returns how long rows live that are written now, by a retention of keptMS: as long as by the one that the horizon goes by, which
// may not have been lowered yet, and for a week of seen time after it was lowered as long as by the one before. seen returns the seen time.
func (h *horizon) living(keptMS int64, seen func() int64) int64 {
	if longerKept(h.KeptMS, keptMS) {
		keptMS = h.KeptMS
	}
	if !h.Raised && h.SinceMS > 0 && longerKept(h.BeforeMS, keptMS) && seen()-h.SinceMS < expireGrace.Milliseconds() {
		keptMS = h.BeforeMS
	}
	return keptMS
}

// boundWrote makes one of ranges that are near to each other where there are too many: what lies between counts as written so, too.
func (h *horizon) boundWrote() {
	slices.SortFunc(h.Wrote, func(a, b wroteUnder) int { return cmp.Or(cmp.Compare(a.ToMS, b.ToMS), cmp.Compare(a.from(), b.from())) })
	for len(h.Wrote) > maxWrote {
		nearest := 1
		for i := range h.Wrote[1:] {
			if h.Wrote[i+1].from()-h.Wrote[i].ToMS < h.Wrote[nearest].from()-h.Wrote[nearest-1].ToMS {
				nearest = i + 1
			}
		}
		a, b := h.Wrote[nearest-1], &h.Wrote[nearest]
		if b.from() > a.from() {
			b.FromMS = a.FromMS
		}
		b.KeptMS = min(a.KeptMS, b.KeptMS)
		h.Wrote = slices.Delete(h.Wrote, nearest-1, nearest)
	}
}

// gaps calls yield with the ranges of time (from, to] of which rows may have vanished by themselves, until it returns false: outlived
// returns up to where rows have that were kept so long.
func (h *horizon) gaps(outlived func(keptMS int64) int64, yield func(from, to int64) bool) {
	for i := range h.Wrote {
		w := &h.Wrote[i]
		if to := min(w.ToMS, outlived(w.KeptMS)); to > w.from() && to > h.LackingMS && !yield(w.from(), to) {
			return
		}
	}
}

// vanished returns the end of the newest gap that holds any of the times from minT to maxT.
func (h *horizon) vanished(outlived func(keptMS int64) int64, minT, maxT int64) int64 {
	end := int64(never)
	h.gaps(outlived, func(from, to int64) bool {
		if minT <= to && maxT > from {
			end = max(end, to)
		}
		return true
	})
	return end
}

// lackVanished raises LackingMS to the end of each gap that begins at or before it.
func (h *horizon) lackVanished(outlived func(keptMS int64) int64) {
	for at := int64(never) - 1; at != h.LackingMS; {
		at = h.LackingMS
		to := at
		h.gaps(outlived, func(from, end int64) bool {
			if from <= at {
				to = max(to, end)
			}
			return true
		})
		h.lack(to)
	}
}

// outlived returns up to where rows have vanished that were kept so long. They vanish by the engine's clock, also for a process whose
// own differs from it.
func (s *Store) outlived(res rollup.Resolution) func(keptMS int64) int64 {
	var now time.Time // Mostly nobody asks.
	return func(keptMS int64) int64 {
		if keptMS == 0 {
			return s.startOf(s.period.WindowAt(res, never+1))
		}
		if now.IsZero() {
			now = s.clock.EngineTime()
		}
		at := now.Add(-time.Duration(keptMS)*time.Millisecond - expireGrace).UnixMilli()
		return s.startOf(s.period.WindowAt(res, at+1))
	}
}

// hasVanished reports whether rows of a class may have vanished by themselves from a window.
func (s *Store) hasVanished(t *tenantHorizons, class, window int64) bool {
	if t == nil {
		return false
	}
	h := t.of(class, format.ResolutionOf(window))
	if h == nil || len(h.Wrote) == 0 {
		return false
	}
	end := s.period.WindowEnd(window)
	return h.vanished(s.outlived(h.Resolution), end, end) != never
}

// classGap is a range of time (from, to] of a class, of which raw rows may have vanished by themselves.
type classGap struct{ class, from, to int64 }

// appendGaps appends those of a tenant's classes, and returns the end of the newest.
func (s *Store) appendGaps(gaps []classGap, t *tenantHorizons) ([]classGap, int64) {
	end := int64(never)
	if t == nil {
		return gaps, end
	}
	for i := range t.Horizons {
		h := &t.Horizons[i]
		if h.Resolution != rollup.Raw || len(h.Wrote) == 0 {
			continue
		}
		h.gaps(s.outlived(rollup.Raw), func(from, to int64) bool {
			gaps, end = append(gaps, classGap{h.Class, from, to}), max(end, to)
			return true
		})
	}
	return gaps, end
}

// rawGaps returns those of a tenant, for what goes by them slot by slot: hidden are no longer as they are for a query over a gap.
func (s *Store) rawGaps(ctx context.Context, tenant string, hidden []Horizons) ([]classGap, error) {
	t, err := s.horizonsOf(ctx, tenant)
	if err != nil {
		return nil, err
	}
	gaps, _ := s.appendGaps(nil, t)
	if len(gaps) == 0 {
		return nil, nil
	}
	now, _ := s.clock.Times()
	for class := range hidden {
		hidden[class].At[rollup.Raw] = s.shownAfter(now, t, tenant, int64(class), rollup.Raw, format.MaxTime, format.MaxTime)
	}
	return gaps, nil
}

// inGap reports whether a time of a class is in one of the gaps.
func inGap(gaps []classGap, class, t int64) bool {
	return slices.ContainsFunc(gaps, func(g classGap) bool { return g.class == class && t > g.from && t <= g.to })
}

// outsideGaps returns what of the times from minT to maxT is in none of the gaps of a class.
func outsideGaps(gaps []classGap, class, minT, maxT int64) (spans []Span) {
	gaps = slices.SortedFunc(slices.Values(gaps), func(a, b classGap) int { return cmp.Compare(a.from, b.from) })
	for _, g := range gaps {
		if g.class != class || g.to < minT {
			continue
		}
		if to := min(g.from, maxT); minT <= to {
			spans = append(spans, Span{minT, to})
		}
		minT = g.to + 1
	}
	if minT <= maxT {
		spans = append(spans, Span{minT, maxT})
	}
	return spans
}

// BesideGaps cuts a span of time at the edges of the ranges of which rows have vanished, for who asks for all there is: a query over such a
// range is answered as if all before its end were lacking (decisions/035).
func (s *Store) BesideGaps(ctx context.Context, tenant string, sp Span) ([]Span, error) {
	t, err := s.horizonsOf(ctx, tenant)
	if err != nil {
		return nil, err
	}
	edges := []int64{sp.MaxT}
	for i := range t.Horizons {
		h := &t.Horizons[i]
		h.gaps(s.outlived(h.Resolution), func(from, to int64) bool {
			for _, edge := range []int64{from, to} {
				if edge >= sp.MinT && edge < sp.MaxT {
					edges = append(edges, edge)
				}
			}
			return true
		})
	}
	slices.Sort(edges)
	var spans []Span
	for _, edge := range slices.Compact(edges) {
		spans = append(spans, Span{sp.MinT, edge})
		sp.MinT = edge + 1
	}
	return spans, nil
}

// writtenUntilNow returns what finds the windows that may have rows of a tenant now at a horizon's resolution, in ranges; nil where no
// rows vanish by themselves. What can't be read counts as having rows, and so does the window that is passing.
func (s *Store) writtenUntilNow(ctx context.Context, tenant string, h *horizon) func() []wroteUnder {
	if !s.expiring {
		return nil
	}
	return func() (list []wroteUnder) {
		newest := s.period.WindowAt(h.Resolution, s.opts.Now().UnixMilli())
		windows, err := s.everyWindow(ctx, tenant, s.period.WindowAt(h.Resolution, h.LackingMS+1), format.LastWindow(h.Resolution))
		if err != nil {
			return []wroteUnder{{ToMS: s.period.WindowEnd(newest)}}
		}
		if at, is := slices.BinarySearch(windows, newest); !is {
			windows = slices.Insert(windows, at, newest)
		}
		for _, w := range windows {
			from, to := s.startOf(w), s.period.WindowEnd(w)
			if n := len(list); n > 0 && list[n-1].ToMS == from {
				list[n-1].ToMS = to
			} else {
				list = append(list, wroteUnder{FromMS: from, ToMS: to})
			}
		}
		return list
	}
}

// noteKept returns the horizons of a tenant, in which it is noted what retention rows were written with until now. It comes before rows
// are written: a window that has none yet is whole.
func (s *Store) noteKept(ctx context.Context, tenant string) (*tenantHorizons, error) {
	for try := 1; ; try++ {
		before, err := s.horizonsOf(ctx, tenant)
		switch {
		case err != nil || before.broken:
			return before, err
		case before.value == nil:
			return s.advance(ctx, tenant, &expiry{rolled: map[tenantWindow]bool{}})
		case !s.expiring:
			return before, nil
		}
		if !slices.ContainsFunc(before.Horizons, func(h horizon) bool { return longerKept(s.keptMS(tenant, &h), h.KeptMS) }) {
			return before, nil
		}
		next := before.clone()
		for i := range next.Horizons {
			if h := &next.Horizons[i]; longerKept(s.keptMS(tenant, h), h.KeptMS) {
				h.keep(s.keptMS(tenant, h), s.clock.SeenMS(), s.writtenUntilNow(ctx, tenant, h))
			}
		}
		switch after, err := s.changeHorizons(ctx, tenant, before, next); {
		case err == nil:
			s.tellChanged(ctx, tenant, &before.horizonRow, &next, &s.noted)
			return after, nil
		case !errors.Is(err, errHorizonsChanged) || try == advanceTries:
			return before, err
		}
	}
}

// knowKept is noteKept for a seal: where no rows vanish it only reads the horizons.
func (s *Store) knowKept(ctx context.Context, tenant string) (err error) {
	if s.expiring {
		_, err = s.noteKept(ctx, tenant)
	} else {
		_, err = s.horizonsOf(ctx, tenant)
	}
	return err
}

// keptMS returns how long rows of a horizon's class and resolution are to be kept, milliseconds; 0: for ever.
func (s *Store) keptMS(tenant string, h *horizon) int64 {
	return s.classes.keep(tenant, h.Class).Of(h.Resolution).Milliseconds()
}
