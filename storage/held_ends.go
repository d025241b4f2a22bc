package storage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/ha"
	"github.com/cassia-db/cassia/storage/rollup"
)

// endFinder receives a held row before heldSink does. It collects the row's series, for findEnds.
type endFinder struct{ heldSink }

func (f *endFinder) Float(uint32, int64, int64, uint64) error { return nil }
func (f *endFinder) Histogram(uint32, int64, []byte) error    { return nil }
func (f *endFinder) Exemplar(uint32, int64, []byte) error     { return nil }

// findEnds adds the ends of series to w.ends. The end of a series is the max timestamp of its samples, sealed or not, up
// to row.FromMS. Samples that are older than the margin may be omitted, because no held sample is compared with them. If
// some of the samples can't be read, the end is row.FromMS. Ends that are already known are kept, so that they don't
// include held samples that were stored since. findEnds changes the slice, and ignores nil.
//
// A sample that was deleted also counts: it was stored, so a held sample with an earlier timestamp is covered.
//
// Invariant I4: the head is read first, then the commit records, then the rows. So samples that are sealed concurrently
// are found.
func (w *heldWriter) findEnds(ctx context.Context, series []*Series, row *ha.HeldSamples) error {
	ends := map[format.SeriesID]int64{}
	series = slices.DeleteFunc(series, func(s *Series) bool {
		if s == nil {
			return true
		}
		_, known := w.ends[s.ID()]
		if !known {
			ends[s.ID()] = w.s.head.MaxTimeUntil(s, row.FromMS, row.MarginMS)
		}
		return known
	})
	first, last := w.s.period.SlotOf(row.FromMS-row.MarginMS+1), w.s.period.SlotOf(row.FromMS)
	for slot := first; slot <= last && len(series) > 0; slot++ {
		err := w.findSealedEnds(ctx, slot, series, row, ends)
		if errors.Is(err, engine.ErrCorrupt) {
			w.s.opts.Logger.Warn("can't read which samples were stored before another replica was elected; its samples "+
				"from before that time aren't stored", "tenant", w.tenant, "cluster", row.Cluster, "err", err)
			for id := range ends {
				ends[id] = row.FromMS
			}
			break
		}
		if err != nil {
			return fmt.Errorf("storage: comparing held samples with sealed samples: %w", err)
		}
	}
	maps.Copy(w.ends, ends)
	return nil
}

// findSealedEnds raises the ends of series to the ends of their sealed samples in a slot.
func (w *heldWriter) findSealedEnds(
	ctx context.Context, slot int64, series []*Series, row *ha.HeldSamples, ends map[format.SeriesID]int64,
) error {
	x, key := newSealedSlot(ctx, w.s, slot), engine.Key{engine.Int(slot)}
	into := x.into[rollup.Raw]
	sealed, err := w.s.commitRecordsBetween(ctx, w.tenant, into.window, key, key)
	if err != nil || len(sealed) == 0 {
		return err
	}
	shards, err := w.s.shardsIn(ctx, into.window, w.tenant)
	if err != nil {
		return err
	}
	for piece := range slices.Chunk(series, maxReadSeries) {
		metrics, found := map[string][]*Series{}, sealedChunks{}
		for _, s := range piece {
			metrics[s.Metric()] = append(metrics[s.Metric()], s)
		}
		if err := x.readChunks(ctx, metrics, shards, found); err != nil {
			return err
		}
		for key, chunks := range found {
			if chunks.unread {
				ends[key.series] = row.FromMS
			}
			for _, value := range chunks.values {
				ends[key.series] = max(ends[key.series], format.RawChunkEnd(value, row.FromMS, row.MarginMS))
			}
		}
	}
	return nil
}
