package storage

import (
	"context"
	"slices"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// SurveyedWindow is a window of a tenant, as an operator looks at it.
type SurveyedWindow struct {
	WindowInfo
	// Slots is how many slots of it are sealed, of Of; Seals is how often, counted once a partition, and Again how many of
	// those sealed a slot that was sealed before: what came late.
	Slots, Of, Seals, Again int
	// Bytes are about what its rows take; -1: the engine can't tell.
	Bytes int64
}

// maxSurveyed bounds the windows of a resolution that Survey looks at: the newest.
const maxSurveyed = 800

// measurer is implemented by engines that can tell about how many bytes the rows take of which the partition keys begin
// with prefix.
type measurer interface {
	Usage(ctx context.Context, t *engine.Table, prefix engine.Key) (uint64, error)
}

// Survey lists a tenant's windows, of each resolution the newest; cut says that there are more. It reads the marks, and no data.
func (s *Store) Survey(ctx context.Context, tenant string) (list []SurveyedWindow, cut bool, err error) {
	all, err := s.windowInfosOf(ctx, tenant)
	if err != nil {
		return nil, false, err
	}
	deleted, err := s.deletesOf(ctx, tenant)
	if err != nil {
		return nil, false, err
	}
	ofResolution := map[int]int{}
	for _, k := range slices.Backward(all) {
		if ofResolution[int(k.Resolution)]++; ofResolution[int(k.Resolution)] > maxSurveyed {
			cut = true
			continue
		}
		w := SurveyedWindow{WindowInfo: k, Of: int((k.End.UnixMilli() - k.Start.UnixMilli()) / s.period.OfRawWindow(s.period.RawWindowAt(k.End.UnixMilli())).SlotMS)}
		if err := s.countSeals(ctx, tenant, deleted, &w); err != nil {
			return nil, false, err
		}
		if w.Bytes, err = s.bytesOf(ctx, tenant, k.Window); err != nil {
			return nil, false, err
		}
		list = append(list, w)
	}
	slices.Reverse(list)
	return list, cut, nil
}

// countSeals counts the marks of a window, but for those that say that a delete was applied.
func (s *Store) countSeals(ctx context.Context, tenant string, deleted format.Tombstones, w *SurveyedWindow) error {
	marks, err := s.marksIn(ctx, tenant, w.Window)
	if err != nil {
		return err
	}
	type place struct {
		slot      int64
		partition int
	}
	slots, places := map[int64]bool{}, map[place]bool{}
	for m := range marks {
		slots[m.slot] = true
		if deleted.Has(m.id) {
			continue
		}
		w.Seals++
		places[place{m.slot, m.partition}] = true
	}
	w.Slots, w.Again = len(slots), w.Seals-len(places)
	return nil
}

// bytesOf returns about what a tenant's rows of a window take.
func (s *Store) bytesOf(ctx context.Context, tenant string, window int64) (total int64, err error) {
	m, ok := engine.As[measurer](s.eng)
	if !ok {
		return -1, nil
	}
	for class := range s.classes.count() {
		n, err := m.Usage(ctx, format.TableOf(format.ResolutionOf(window)), engine.Key{engine.Int(window), engine.Int(class), engine.Text(tenant)})
		if err != nil {
			return 0, err
		}
		total += int64(n)
	}
	n, err := m.Usage(ctx, engine.Catalog, engine.Key{engine.Int(window), engine.Int(int64(format.ResolutionOf(window))), engine.Text(tenant)})
	return total + int64(n), err
}

// SpaceOf returns what an engine's directory takes on the disk, as du counts it, by what it is: the rows of a table, by its name, and what
// the engine itself has besides. nil: it has no directory.
func SpaceOf(ctx context.Context, eng engine.Engine) (map[string]int64, error) {
	e, ok := engine.As[interface {
		Space(ctx context.Context) (map[string]uint64, error)
	}](eng)
	if !ok {
		return nil, nil
	}
	space, err := e.Space(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[string]int64, len(space))
	for of, n := range space {
		out[of] = int64(n)
	}
	return out, nil
}

// Space is SpaceOf the store's engine.
func (s *Store) Space(ctx context.Context) (map[string]int64, error) { return SpaceOf(ctx, s.eng) }

// RetentionOf is how long a tenant's series are kept: those in no class, and those in one that is kept the longest.
func (s *Store) RetentionOf(tenant string) (usual, longest Keep) {
	return s.classes.keep(tenant, classDefault), s.classes.longest(tenant)
}
