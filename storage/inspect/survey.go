package inspect

import (
	"context"
	"fmt"
	"slices"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// SurveyedWindow describes a window of a tenant for operators.
type SurveyedWindow struct {
	storage.WindowInfo
	// Slots is the number of slots with data, out of Of. Seals is the number of seals of staged samples, counted per
	// slot and partition. Again is the number of seals that sealed a slot again because of late samples. Imported is
	// the number of slots with imports. Again and Imported are known only for raw windows.
	Slots, Of, Seals, Again, Imported int
	// Bytes is the approximate size of the window's rows, or -1 if the engine can't measure it.
	Bytes int64
}

// maxSurveyed is the max number of windows per resolution that ListWindows lists: the newest.
const maxSurveyed = 800

// ListWindows lists the newest windows of a tenant for each resolution. cut is true if there are more. It reads the
// commit records and no data.
func ListWindows(ctx context.Context, v storage.View, tenant string) (list []SurveyedWindow, cut bool, err error) {
	all, err := v.WindowInfos(ctx, tenant)
	if err != nil {
		return nil, false, err
	}
	deleted, err := v.Deletes(ctx, tenant)
	if err != nil {
		return nil, false, err
	}
	ofResolution, of := map[int]int{}, []tableBytes{}
	for _, k := range slices.Backward(all) {
		if ofResolution[int(k.Resolution)]++; ofResolution[int(k.Resolution)] > maxSurveyed {
			cut = true
			continue
		}
		period := v.Period().OfRawWindow(v.Period().RawWindowAt(k.End.UnixMilli()))
		w := SurveyedWindow{WindowInfo: k, Of: int((k.End.UnixMilli() - k.Start.UnixMilli()) / period.SlotMS)}
		if err := w.countSeals(ctx, v.Engine(), deleted); err != nil {
			return nil, false, err
		}
		bytes := tableBytes{}
		known, err := bytes.bytesOf(ctx, v, tenant, k.Window)
		if err != nil {
			return nil, false, err
		}
		if !known {
			w.Bytes = -1
		}
		list, of = append(list, w), append(of, bytes)
	}
	if err := setBytes(ctx, v.Engine(), list, of); err != nil {
		return nil, false, err
	}
	slices.Reverse(list)
	return list, cut, nil
}

// countSeals counts the commit records of a window by their reason. Rollup windows have copies of the records, whose
// reasons aren't meaningful.
func (w *SurveyedWindow) countSeals(ctx context.Context, eng engine.Engine, deleted format.Tombstones) error {
	raw := w.Resolution == rollup.Raw
	type sealed struct{ slot, partition int64 }
	slots, imported, places := map[int64]bool{}, map[int64]bool{}, map[sealed]bool{}
	for row, err := range eng.Scan(ctx, engine.Range{Table: engine.Sealed,
		Partition: format.SealedPartition(w.Window, w.Tenant), KeysOnly: !raw}) {
		if err != nil {
			return fmt.Errorf("inspect: reading the seal records of window %d of tenant %q: %w",
				w.Window, w.Tenant, err)
		}
		slot, partition, id := row.Clustering[0].Int, row.Clustering[1].Int, row.Clustering[2].Text
		slots[slot] = true
		if !raw || deleted.Has(id) {
			continue
		}
		switch format.CommitReasonOf(row) {
		case format.CommitSeal:
			w.Seals++
			places[sealed{slot, partition}] = true
		case format.CommitImport:
			imported[slot] = true
		}
	}
	w.Slots, w.Again, w.Imported = len(slots), w.Seals-len(places), len(imported)
	return nil
}

// tableBytes is a size in bytes by table.
type tableBytes map[*engine.Table]uint64

// bytesOf adds the approximate sizes of a tenant's rows in a window. known is false if the engine can't measure them.
func (b tableBytes) bytesOf(ctx context.Context, v storage.View, tenant string, window int64) (known bool, err error) {
	m, ok := engine.As[engine.Measured](v.Engine())
	if !ok {
		return false, nil
	}
	res := format.ResolutionOf(window)
	add := func(t *engine.Table, prefix engine.Key) error {
		n, err := m.Usage(ctx, t, prefix)
		b[t] += n
		return err
	}
	for class := range v.Retention().Classes() {
		for _, t := range []*engine.Table{format.TableOf(res), format.PagesOf(res)} {
			if err := add(t, engine.Key{engine.Int(window), engine.Int(class), engine.Text(tenant)}); err != nil {
				return false, err
			}
		}
	}
	return true, add(engine.Catalog, engine.Key{engine.Int(window), engine.Int(int64(res)), engine.Text(tenant)})
}

// setBytes sets the sizes of windows from the sizes in their tables. The size of a window is an estimate in whole
// blocks. Neighboring windows share blocks, so the sum of the estimates may be larger than a table. In that case the
// estimates are scaled down.
func setBytes(ctx context.Context, eng engine.Engine, list []SurveyedWindow, of []tableBytes) error {
	m, ok := engine.As[engine.Measured](eng)
	if !ok {
		return nil
	}
	sums := tableBytes{}
	for _, b := range of {
		for t, n := range b {
			sums[t] += n
		}
	}
	for t, sum := range sums {
		if sum == 0 {
			continue
		}
		all, err := m.Usage(ctx, t, nil)
		if err != nil {
			return err
		}
		share := min(1, float64(all)/float64(sum))
		for i, b := range of {
			list[i].Bytes += int64(share * float64(b[t]))
		}
	}
	return nil
}

// SpaceByKind returns the disk usage of an engine's directory, as du counts it, by kind: the rows of a table, by its
// name, and other parts of the engine. It returns nil if the engine has no directory.
func SpaceByKind(ctx context.Context, eng engine.Engine) (map[string]int64, error) {
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
