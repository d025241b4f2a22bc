package storage

import (
	"context"
	"fmt"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// maxCounted is the approximate max number of chunks that estimateSamples reads.
const maxCounted = 10_000

// estimateSamples estimates the number of raw samples of a class in some windows. It counts the samples in the first
// chunks of the newest window, and extrapolates by the number of metrics and the number of sealed slots. It returns -1
// if no estimate is possible.
func (s *Store) estimateSamples(ctx context.Context, tenant string, class int64, windows []int64) (int64, error) {
	newest := windows[len(windows)-1]
	samples, err := s.estimateSamplesIn(ctx, tenant, class, newest)
	if err != nil || samples == 0 {
		return -1, err
	}
	of, err := s.countSealedSlots(ctx, tenant, newest)
	if err != nil || of == 0 {
		return -1, err
	}
	total := int64(0)
	const asked = 400 // max number of windows whose slots are counted
	for _, w := range windows[max(0, len(windows)-asked):] {
		n, err := s.countSealedSlots(ctx, tenant, w)
		if err != nil {
			return 0, err
		}
		total += n
	}
	total = total * int64(len(windows)) / int64(min(len(windows), asked))
	return int64(float64(samples) / float64(of) * float64(total)), nil
}

// countSealedSlots counts the sealed slots of a window.
func (s *Store) countSealedSlots(ctx context.Context, tenant string, window int64) (int64, error) {
	marks, err := s.commitRecordsIn(ctx, tenant, window)
	slots := map[int64]bool{}
	for m := range marks {
		slots[m.Slot] = true
	}
	return int64(len(slots)), err
}

// estimateSamplesIn estimates the number of raw samples of a class in a window.
func (s *Store) estimateSamplesIn(ctx context.Context, tenant string, class, window int64) (samples int64, err error) {
	metrics, err := s.metricsIn(ctx, tenant, window)
	if err != nil {
		return 0, err
	}
	shards, err := s.shardsIn(ctx, window, tenant)
	if err != nil {
		return 0, err
	}
	chunks := 0
	for i, metric := range metrics {
		for at := range format.ClassShards(s.retention.Classes(), shards.count(metric)) {
			if at.Class() != class {
				continue
			}
			for row, err := range s.rows.ScanReadable(ctx, engine.Range{
				Table: engine.Raw, Partition: format.SeriesPartition(window, tenant, metric, at),
				From: engine.Key{engine.Int(format.KindChunk)}, To: engine.Key{engine.Int(format.KindChunk)},
			}, ignoreUnreadable) {
				if err != nil {
					return 0, fmt.Errorf("storage: counting samples of metric %q: %w", metric, err)
				}
				chunks++
				if c, err := format.ParseRawChunk(row.Value); err == nil && c.Data != nil {
					if info, err := chunk.Header(c.Data); err == nil {
						samples += int64(info.Count)
					}
				}
			}
		}
		if chunks >= maxCounted {
			return samples * int64(len(metrics)) / int64(i+1), nil
		}
	}
	return samples, nil
}
