package storage

import (
	"context"
	"slices"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
)

// A hole is a range of windows of which rows may be missing, though older ones are there: rows that expired by themselves before the boundary hid them, as
// the retention was raised, or that were dropped before older ones were imported again. A query over a hole is answered as if all before the hole's end were
// lacking, for an answer has one instant from which on samples make it. A query beside it sees nothing of it.

// holes calls yield with the holes (from, to] of a class at a resolution, in order, until it returns false.
func (s *Store) holes(t *tenantHorizons, class int64, res rollup.Resolution, yield func(from, to int64) bool) {
	if t == nil {
		return
	}
	if !s.expiring {
		if h := t.of(class, res); h != nil {
			for _, o := range h.Holes {
				if !yield(o.FromMS, o.ToMS) {
					return
				}
			}
		}
		return
	}
	past := s.pastUntil()
	if t.firstExpiry == 0 || t.firstExpiry > past {
		return
	}
	var last hole
	for _, f := range t.fixed {
		if f.class != class || format.ResolutionOf(f.window) != res || f.expires == 0 || f.expires > past {
			continue
		}
		from, to := s.startOf(f.window), s.period.WindowEnd(f.window)
		if last.ToMS == from && last.FromMS < last.ToMS {
			last.ToMS = to
			continue
		}
		if last.FromMS < last.ToMS && !yield(last.FromMS, last.ToMS) {
			return
		}
		last = hole{from, to}
	}
	if last.FromMS < last.ToMS {
		yield(last.FromMS, last.ToMS)
	}
}

// holeEnd returns the end of the newest hole that holds any of the times from minT to maxT; never: none does.
func (s *Store) holeEnd(t *tenantHorizons, class int64, res rollup.Resolution, minT, maxT int64) int64 {
	end := int64(never)
	s.holes(t, class, res, func(from, to int64) bool {
		if minT <= to && maxT > from {
			end = max(end, to)
		}
		return true
	})
	return end
}

// appendGaps appends the holes of raw rows of a tenant's classes, and returns the end of the newest.
func (s *Store) appendGaps(gaps []query.ClassGap, t *tenantHorizons) ([]query.ClassGap, int64) {
	end := int64(never)
	for class := range s.retention.Classes() {
		s.holes(t, class, rollup.Raw, func(from, to int64) bool {
			gaps, end = append(gaps, query.ClassGap{Class: class, From: from, To: to}), max(end, to)
			return true
		})
	}
	return gaps, end
}

// rawGaps returns those of a tenant, for what goes by them slot by slot: hidden are no longer as they are for a query over a gap.
func (s *Store) rawGaps(ctx context.Context, tenant string, hidden []query.Horizons) ([]query.ClassGap, error) {
	t, err := s.horizonsOf(ctx, tenant)
	if err != nil {
		return nil, err
	}
	gaps, _ := s.appendGaps(nil, t)
	if len(gaps) == 0 {
		return nil, nil
	}
	now, _ := s.shownBy()
	for class := range hidden {
		hidden[class].At[rollup.Raw] = s.shownAfter(now, t, tenant, int64(class), rollup.Raw, format.MaxTime, format.MaxTime)
	}
	return gaps, nil
}

// BesideGaps cuts a span of time at the edges of holes, for callers that ask for all there is: a query over a
// hole is answered as if all before its end were lacking (decisions/061).
func (s *Store) BesideGaps(ctx context.Context, tenant string, sp query.Span) ([]query.Span, error) {
	t, err := s.horizonsOf(ctx, tenant)
	if err != nil {
		return nil, err
	}
	edges := []int64{sp.MaxT}
	for class := range s.retention.Classes() {
		for res := rollup.Raw; res <= rollup.OneHour; res++ {
			s.holes(t, class, res, func(from, to int64) bool {
				for _, edge := range []int64{from, to} {
					if edge >= sp.MinT && edge < sp.MaxT {
						edges = append(edges, edge)
					}
				}
				return true
			})
		}
	}
	slices.Sort(edges)
	var spans []query.Span
	for _, edge := range slices.Compact(edges) {
		spans = append(spans, query.Span{MinT: sp.MinT, MaxT: edge})
		sp.MinT = edge + 1
	}
	return spans, nil
}
