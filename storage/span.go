package storage

import (
	"cmp"
	"context"
	"slices"

	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Span is a range of time, both ends included, milliseconds.
type Span struct{ MinT, MaxT int64 }

// Spans lists where a tenant may have raw samples between minT and maxT, milliseconds, both included: disjoint, in
// order, as wide as windows and slots are. With rollups it also lists where only these may be left. It reads no data.
func (s *Store) Spans(ctx context.Context, tenant string, minT, maxT int64, rollups bool) ([]Span, error) {
	if err := s.Ready(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx); err != nil {
		return nil, err
	}
	// Invariant I4: first the head, then the windows. What is sealed meanwhile is met twice.
	var spans []Span
	for partition := range s.period.Partitions() {
		for _, slot := range s.head.Slots(partition) {
			spans = append(spans, Span{s.period.SlotStart(slot) + 1, s.period.SlotEnd(slot)})
		}
	}
	windows, err := s.windowsOf(ctx, tenant, format.FirstWindow(rollup.Raw), format.LastWindow(rollup.Raw))
	if err != nil {
		return nil, err
	}
	for _, w := range windows {
		spans = append(spans, Span{s.period.RawWindowEnd(w) - s.period.OfRawWindow(w).RawWindowMS + 1, s.period.RawWindowEnd(w)})
	}
	if rollups {
		if spans, err = s.appendOlder(ctx, spans, tenant); err != nil {
			return nil, err
		}
	}
	return clipSpans(spans, minT, maxT), nil
}

// appendOlder appends the spans of which some class has only rollups left.
func (s *Store) appendOlder(ctx context.Context, spans []Span, tenant string) ([]Span, error) {
	for _, res := range rollup.Resolutions {
		windows, err := s.windowsOf(ctx, tenant, format.FirstWindow(res), format.LastWindow(res))
		if err != nil {
			return nil, err
		}
		for _, w := range windows {
			horizons, err := s.horizons(ctx, tenant, s.startOf(w)+1, s.period.WindowEnd(w))
			if err != nil {
				return nil, err
			}
			for _, h := range horizons {
				if sp := (Span{max(s.startOf(w), h.At[res]) + 1, min(s.period.WindowEnd(w), h.At[res-1])}); sp.MinT <= sp.MaxT {
					spans = append(spans, sp)
				}
			}
		}
	}
	return spans, nil
}

// clipSpans sorts spans, makes one of those that touch, and leaves what lies between minT and maxT.
func clipSpans(spans []Span, minT, maxT int64) []Span {
	slices.SortFunc(spans, func(a, b Span) int { return cmp.Compare(a.MinT, b.MinT) })
	var out []Span
	for _, sp := range spans {
		sp = Span{max(sp.MinT, minT), min(sp.MaxT, maxT)}
		switch last := len(out) - 1; {
		case sp.MinT > sp.MaxT:
		case last >= 0 && sp.MinT <= out[last].MaxT+1:
			out[last].MaxT = max(out[last].MaxT, sp.MaxT)
		default:
			out = append(out, sp)
		}
	}
	return out
}
