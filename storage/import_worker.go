package storage

import (
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// importWorker seals pieces of a day. It has one sealer per slot; the sealers share a rowWriter.
type importWorker struct {
	*importDay
	roller *roller
	slots  map[int64]*slotSealer
	stats  ImportStats
	// brought is the number of samples in all pieces so far. bytes is the size of the series whose rollups haven't been
	// computed yet.
	brought, bytes int
}

// sealerOf returns the sealer of a slot.
func (w *importWorker) sealerOf(slot int64) *slotSealer {
	y := w.slots[slot]
	if y == nil {
		deletes := map[string]format.Tombstones{w.tenant.Name(): w.deletes.InSlot(w.s.period, slot)}
		y = &slotSealer{
			rowWriter: w.roller.rowWriter, rolledSlot: w.roller.slotOf(slot), stats: &SealStats{}, deletes: deletes,
		}
		w.slots[slot] = y
	}
	return y
}

// writeChunks writes the chunks of some series of a metric. It computes the rollups when enough series have
// accumulated.
func (w *importWorker) writeChunks(piece []*importedDay) error {
	there, err := w.listChunks(piece)
	if err != nil {
		return err
	}
	for _, c := range piece {
		w.brought += c.len()
		if w.onlyExtendsRollups() {
			if err := w.removeShared(c); err != nil {
				return err
			}
		}
		err := c.eachSlot(w.s.period, func(slot int64, part *importedSlot) error {
			y := w.sealerOf(slot)
			switch {
			case w.source > rollup.Raw:
				y.tasks = append(y.tasks, rollupTask{
					collectedSeries: &c.collectedSeries, chunk: appendRollup(&part.buckets, w.source, 1),
				})
			case w.onlyExtendsRollups():
				y.addRollupTask(&c.collectedSeries, &part.samples)
			default:
				return y.addSeries(
					&c.collectedSeries, &part.samples, there.contains(y.into[rollup.Raw].start, c.series.ID()),
				)
			}
			return nil
		})
		if err != nil {
			return err
		}
		w.roller.series = append(w.roller.series, &c.collectedSeries)
		if w.roller.bytes >= importWriteBytes {
			w.bytes += w.roller.bytes
			if err := w.roller.write(); err != nil {
				return err
			}
		}
	}
	if w.bytes+w.roller.bytes >= importWriteBytes || len(w.roller.series) >= maxPieceSeries {
		return w.writeRollups()
	}
	return nil
}

// addStats adds the counts of the sealers to stats.
func (w *importWorker) addStats() {
	if w.onlyExtendsRollups() {
		w.stats.RollupsOnly += w.brought
		leftOut := int(w.roller.leftOut.Load())
		w.stats.LeftOut += leftOut
		if w.finest == rollup.OneHour {
			w.stats.HoursOnly += w.brought - leftOut
		}
		return
	}
	written := 0
	for _, y := range w.slots {
		written += y.stats.Samples
		w.stats.Chunks += y.stats.Chunks
		w.stats.Bytes += y.stats.Bytes
	}
	w.stats.Samples += written
	w.stats.Known += w.brought - written
	w.s.metrics.sealedSamples.Add(float64(written))
	w.s.metrics.sealedChunks.Add(float64(w.stats.Chunks))
}

// writeRollups writes the remaining chunks, computes the rollups and writes them.
func (w *importWorker) writeRollups() error {
	w.bytes = 0
	return w.roller.writeAll()
}

// listChunks lists the day's chunks of some series of a metric. It returns nil if samples are only added to rollups.
func (w *importWorker) listChunks(piece []*importedDay) (chunkList, error) {
	if w.onlyExtendsRollups() {
		return nil, nil
	}
	metric, window := piece[0].series.Metric(), w.roller.day.into[rollup.Raw].window
	shards, err := w.s.readShards(w.roller.ctx, window, w.tenant.Name(), metric)
	if err != nil {
		return nil, err
	}
	series := make([]*Series, len(piece))
	for i, c := range piece {
		series[i] = c.series
	}
	found := chunkList{}
	err = w.s.listChunks(w.roller.ctx, []seriesChunks{
		{metricChunks{window, w.tenant.Name(), metric, shards, w.start, w.start + format.DayMS - 1}, series},
	}, found)
	return found, err
}
