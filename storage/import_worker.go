package storage

import (
	"context"
	"maps"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// importWorker seals pieces of a day, with a sealer a slot; these write together.
type importWorker struct {
	*importDay
	ctx   context.Context
	rows  *sealedRows
	base  *sealer // for what concerns the day
	slots map[int64]*sealer
	stats ImportStats
	// brought are the samples of all pieces; done are the series whose rollups are to be made, bytes what these weigh.
	brought int
	done    []*importedDay
	bytes   int
}

func newImportWorker(ctx context.Context, d *importDay) *importWorker {
	w := &importWorker{importDay: d, ctx: ctx, rows: &sealedRows{}, slots: map[int64]*sealer{}}
	w.base = w.sealer(d.s.period.SlotOf(d.start + 1))
	return w
}

func (w *importWorker) sealer(slot int64) *sealer {
	y := w.importDay.sealer(slot, w.rows)
	y.ctx = w.ctx
	return y
}

// slot returns the sealer of a slot.
func (w *importWorker) slot(slot int64) *sealer {
	y := w.slots[slot]
	if y == nil {
		y = w.sealer(slot)
		w.slots[slot] = y
	}
	return y
}

// seal writes the chunks of some series of a metric, and the rollups when there are enough of them.
func (w *importWorker) seal(piece []*importedDay) error {
	there, err := w.list(piece)
	if err != nil {
		return err
	}
	for _, c := range piece {
		w.brought += c.samples.Len()
		for rest := c.samples; rest.Len() > 0; {
			t, _ := format.TimeBounds(&rest)
			y := w.slot(w.s.period.SlotOf(t))
			var part chunk.Samples
			part, rest = cutSamples(rest, w.s.period.SlotEnd(y.work.Slot))
			if err := y.series(&c.collected, &part, there.has(y.into[rollup.Raw].start, c.series.ID())); err != nil {
				return err
			}
		}
		w.done = append(w.done, c)
		if w.rows.bytes >= importBytes {
			w.bytes += w.rows.bytes
			if err := w.base.write(); err != nil {
				return err
			}
		}
	}
	if w.bytes+w.rows.bytes >= importBytes || len(w.done) >= importPiece {
		return w.roll()
	}
	return nil
}

// count adds up what the sealers of slots did.
func (w *importWorker) count() {
	if w.late {
		w.stats.RollupsOnly += w.brought
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

// roll writes the chunks that are left, then the 5m rollups of all slots, and then the 1h rollups of the day, which
// are made once.
func (w *importWorker) roll() error {
	if err := w.base.write(); err != nil {
		return err
	}
	if len(w.done) == 0 {
		return nil
	}
	listed, err := w.listDone()
	if err != nil {
		return err
	}
	hiding, raw, err := w.base.beforeFine(w.tenant.Name())
	if err != nil {
		return err
	}
	for _, y := range w.slots {
		y.listed = listed
	}
	if err := make5mOfDay(w.slots, hiding, raw); err != nil {
		return err
	}
	if err := w.base.write(); err != nil {
		return err
	}
	for _, c := range w.done {
		w.base.tasks = append(w.base.tasks, rollupTask{collected: &c.collected})
	}
	err = w.base.makeAll1h()
	clear(w.base.tasks)
	clear(w.done)
	w.base.tasks, w.done, w.bytes = w.base.tasks[:0], w.done[:0], 0
	return err
}

// listDone lists the chunks of the series whose rollups are to be made.
func (w *importWorker) listDone() (chunkList, error) {
	all := chunkList{}
	for from := 0; from < len(w.done); {
		to := from + 1
		for to < len(w.done) && w.done[to].series.Metric() == w.done[from].series.Metric() {
			to++
		}
		l, err := w.list(w.done[from:to])
		if l == nil || err != nil {
			return nil, err
		}
		maps.Copy(all, l)
		from = to
	}
	return all, nil
}

// list lists the day's chunks of some series of a metric.
func (w *importWorker) list(piece []*importedDay) (chunkList, error) {
	if w.late {
		return nil, nil
	}
	metric, window := piece[0].series.Metric(), w.base.into[rollup.Raw].window
	shards, err := w.s.readShards(w.ctx, window, w.tenant.Name(), metric)
	if err != nil {
		return nil, err
	}
	series := make([]*Series, len(piece))
	for i, c := range piece {
		series[i] = c.series
	}
	found := chunkList{}
	err = w.s.listChunks(w.ctx, metricChunks{window, w.tenant.Name(), metric, shards, w.start, w.start + format.DayMS - 1}, series, found)
	return found, err
}
