package storage

import (
	"errors"
	"math"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// removeShared removes data that stored buckets on the other side of a bucket edge may already contain. A sample
// exactly at an edge belongs to the bucket that ends there. In aggregates of another system, it belongs to the bucket
// that begins there:
//
//	samples:     ...........x]   the bucket until the edge contains x
//	aggregates:             [x........)   the bucket that begins at the edge also contains x
//
// A sample at an edge is therefore left out if stored aggregates begin there. Aggregates are left out if a sample is
// stored at the edge where they begin, because the sample can't be subtracted from their min and max.
func (w *importWorker) removeShared(c *importedDay) error {
	if w.source == rollup.Raw {
		return w.roller.leaveOutAggregated(c.series, &c.samples)
	}
	stored, err := w.roller.readStoredBuckets(c.series, w.start-1, w.start-1+format.DayMS)
	if err != nil {
		return err
	}
	atEnd := map[int64]bool{}
	for i, end := range stored.End {
		atEnd[end] = stored.Count[i] > 0 && stored.LastT[i] == end
	}
	before := c.len()
	c.buckets.Delete(0, func(end int64) bool { return atEnd[end-w.source.Width()] })
	w.roller.leaveOut(before - c.len())
	return nil
}

// leaveOut counts n samples as left out.
func (x *roller) leaveOut(n int) {
	x.leftOut.Add(int64(n))
	x.s.metrics.leftOut.Add(float64(n))
}

// leaveOutAggregated removes samples at edges where stored aggregates begin. The samples are imported or late.
func (x *roller) leaveOutAggregated(series *Series, samples *chunk.Samples) error {
	edges := edgeSamples(samples, x.finest.Width())
	if len(edges.T) == 0 {
		return nil
	}
	stored, err := x.readStoredBuckets(series, edges.T[0]+1, edges.T[len(edges.T)-1]+1)
	if err != nil {
		return err
	}
	begin := map[int64]bool{}
	for i, end := range stored.End {
		begin[end-x.finest.Width()] = stored.Flags[i]&rollup.Aggregated != 0
	}
	var shared chunk.Samples
	for i, t := range edges.T {
		if begin[t] {
			shared.AppendFloat(t, edges.ST[i], edges.V[i])
		}
	}
	before := samples.Len()
	samples.Subtract(&shared)
	x.leaveOut(before - samples.Len())
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

// readStoredBuckets reads a series' stored buckets of resolution x.finest, from the slot that contains from to the slot
// that contains to. The two timestamps differ by at most a day. Unreadable chunks are omitted, because the roller
// reports them.
func (x *roller) readStoredBuckets(series *Series, from, to int64) (*rollup.Buckets, error) {
	first := x.s.destinationsOf(x.s.period.SlotOf(from))[x.finest]
	last := x.s.destinationsOf(x.s.period.SlotOf(to))[x.finest]
	all := &rollup.Buckets{}
	for _, at := range []destination{first, last} {
		shards, err := x.s.readShards(x.ctx, at.window, x.tenant, series.Metric())
		if err != nil {
			return nil, err
		}
		found, _, err := x.s.readRollups(x.ctx, x.finest, at.window, series, shards, first.start, last.start)
		if err != nil {
			return nil, err
		}
		for _, c := range found {
			err := rollup.Decode(c.data, rollup.ColumnCount|rollup.ColumnLast, all)
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
