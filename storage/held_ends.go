package storage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/ha"
	"github.com/cassia-db/cassia/storage/rollup"
)

// endFinder receives the samples of a held row before heldSink does. It collects the series with samples that precede
// the term and may be stored. findEnds must be called for these series.
type endFinder struct {
	heldSink
	found map[format.SeriesID]*Series
}

func (f *endFinder) add(ref uint32, at int64) error {
	s, err := f.seriesOf(ref)
	if err != nil || f.dispositionOf(ref, s, at) != ha.HoldSample {
		return err
	}
	if f.found == nil {
		f.found = map[format.SeriesID]*Series{}
	}
	f.found[s.ID()] = s
	return nil
}

func (f *endFinder) Float(ref uint32, at, _ int64, _ uint64) error  { return f.add(ref, at) }
func (f *endFinder) Histogram(ref uint32, at int64, _ []byte) error { return f.add(ref, at) }
func (f *endFinder) Exemplar(uint32, int64, []byte) error           { return nil }

// findEnds adds the ends of series to w.ends: the max timestamp of the series' samples, sealed or not, up to
// row.FromMS. It omits samples that are older than the margin, because no held sample is compared with them. If some of
// the samples can't be read, the end is row.FromMS. Ends that are already known are kept, so that they don't include
// held samples that were stored since.
//
// A sample that was deleted also counts: it was stored, so a held sample with an earlier timestamp is covered.
//
// Invariant I4: the head is read first, then the commit records, then the rows. So samples that are sealed concurrently
// are found.
func (w *heldWriter) findEnds(ctx context.Context, found map[format.SeriesID]*Series, row *ha.HeldSamples) error {
	ends := map[format.SeriesID]int64{}
	var series []*Series
	for id, s := range found {
		if _, known := w.ends[id]; !known {
			ends[id] = w.s.head.MaxTimeUntil(s, row.FromMS, row.MarginMS)
			series = append(series, s)
		}
	}
	if len(series) == 0 {
		return nil
	}
	for slot := w.s.period.SlotOf(row.FromMS - row.MarginMS + 1); slot <= w.s.period.SlotOf(row.FromMS); slot++ {
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
			end := ends[key.series]
			if chunks.unread {
				end = row.FromMS
			}
			for _, value := range chunks.values {
				end = max(end, chunkEnd(value, row.FromMS, row.MarginMS))
			}
			ends[key.series] = end
		}
	}
	return nil
}

// chunkEnd returns the max timestamp ≤ at of a raw chunk's samples, or a timestamp ≤ at-margin if there are none within
// margin before at. It returns at if the chunk is corrupt.
func chunkEnd(value []byte, at, margin int64) int64 {
	raw, err := format.ParseRawChunk(value)
	if err != nil {
		return at
	}
	if len(raw.Data) == 0 { // Its samples were removed.
		return at - margin
	}
	info, err := chunk.Header(raw.Data)
	switch {
	case err != nil:
		return at
	case info.MinT > at:
		return at - margin
	case info.MaxT <= at:
		return info.MaxT
	}
	var samples chunk.Samples
	if err := chunk.Decode(raw.Data, &samples); err != nil {
		return at
	}
	return max(at-margin, samples.MaxTimeUntil(at))
}
