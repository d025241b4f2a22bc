package storage

import (
	"errors"
	"math"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// leaveOutShared removes data that the stored buckets on the other side of an edge may already contain. A sample
// exactly at an edge belongs to the bucket that ends there. In aggregates of another system, it belongs to the bucket
// that begins there:
//
//	samples:     ...........x]   the bucket until the edge contains x
//	aggregates:             [x........)   so does the bucket that begins at the edge
//
// A sample at an edge is therefore left out if aggregates that begin there are stored. Aggregates are left out if a
// sample at the edge where they begin is stored, because the sample can't be subtracted from their min and max.
func (w *importWorker) leaveOutShared(c *importedDay) error {
	before := c.len()
	if w.source > rollup.Raw {
		stored, err := w.storedFrom(c, w.start-1)
		if err != nil {
			return err
		}
		atEnd := map[int64]bool{}
		for i, end := range stored.End {
			atEnd[end] = stored.Count[i] > 0 && stored.LastT[i] == end
		}
		c.buckets.Delete(0, func(end int64) bool { return atEnd[end-w.source.Width()] })
	} else if edges := edgeSamples(&c.samples, w.finest.Width()); len(edges.T) > 0 {
		stored, err := w.storedFrom(c, w.start+1)
		if err != nil {
			return err
		}
		begin := map[int64]bool{}
		for i, end := range stored.End {
			begin[end-w.finest.Width()] = stored.Flags[i]&rollup.Aggregated != 0
		}
		var shared chunk.Samples
		for i, t := range edges.T {
			if begin[t] {
				shared.AppendFloat(t, edges.ST[i], edges.V[i])
			}
		}
		c.samples.Subtract(&shared)
	}
	left := before - c.len()
	w.roller.leftOut.Add(int64(left))
	w.s.metrics.leftOut.Add(float64(left))
	return nil
}

// edgeSamples returns the float samples whose timestamps are multiples of width. It omits NaN, because other systems
// don't aggregate NaN.
func edgeSamples(s *chunk.Samples, width int64) (edges chunk.Samples) {
	for i, t := range s.T {
		if t%width != 0 || math.IsNaN(s.V[i]) {
			continue
		}
		st := int64(0)
		if len(s.ST) > 0 {
			st = s.ST[i]
		}
		edges.T, edges.ST, edges.V = append(edges.T, t), append(edges.ST, st), append(edges.V, s.V[i])
	}
	return edges
}

// storedFrom reads a series' stored buckets of the finest resolution in the chunks of the day and in the chunk before
// or after it. from is a timestamp in the first slot to read; the last slot is a day later. Unreadable chunks are
// omitted, because the roller reports them.
func (w *importWorker) storedFrom(c *importedDay, from int64) (*rollup.Buckets, error) {
	first := w.s.destinationsOf(w.s.period.SlotOf(from))[w.finest]
	last := w.s.destinationsOf(w.s.period.SlotOf(from + format.DayMS))[w.finest]
	all := &rollup.Buckets{}
	for _, at := range []destination{first, last} {
		shards, err := w.s.readShards(w.roller.ctx, at.window, w.tenant.Name(), c.series.Metric())
		if err != nil {
			return nil, err
		}
		found, _, err := w.s.rollups(
			w.roller.ctx, w.finest, at.window, c.series, shards, first.start, last.start,
		)
		if err != nil {
			return nil, err
		}
		for _, x := range found {
			err := rollup.Decode(x.data, rollup.ColumnCount|rollup.ColumnLast, all)
			if err != nil && !errors.Is(err, rollup.ErrCorrupt) {
				return nil, err
			}
		}
		if first.window == last.window {
			break
		}
	}
	return all, nil
}
