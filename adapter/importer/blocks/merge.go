package blocks

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/index"
	"github.com/prometheus/prometheus/tsdb/tombstones"

	"github.com/cassia-db/cassia/adapter/importer"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
)

// merge iterates over the series of blocks in the order of their labels.
type merge struct {
	cursors []*cursor
	// at are the cursors at the current series.
	at []*cursor
}

// cursor is a position in the series of a block.
type cursor struct {
	b        *block
	postings index.Postings
	labels   labels.Labels
	ref      promstorage.SeriesRef
	metas    []chunks.Meta
	builder  labels.ScratchBuilder
	it       chunkenc.Iterator
	done     bool
}

func newMerge(ctx context.Context, list []*block, matchers [][]*labels.Matcher) (*merge, error) {
	m := &merge{}
	for _, b := range list {
		if err := b.open(); err != nil {
			return nil, err
		}
		c := &cursor{b: b}
		var err error
		if c.postings, err = postings(ctx, b.index, matchers); err != nil {
			return nil, b.damaged(err)
		}
		if err := c.next(); err != nil {
			return nil, err
		}
		m.cursors = append(m.cursors, c)
	}
	return m, nil
}

// postings lists the series that match all matchers of one of the lists, in the order of their labels.
func postings(ctx context.Context, ir tsdb.IndexReader, matchers [][]*labels.Matcher) (index.Postings, error) {
	if len(matchers) == 0 {
		return tsdb.AllSortedPostings(ctx, ir), nil
	}
	var lists []index.Postings
	for _, ms := range matchers {
		p, err := tsdb.PostingsForMatchers(ctx, ir, ms...)
		if err != nil {
			return nil, err
		}
		lists = append(lists, p)
	}
	return ir.SortedPostings(index.Merge(ctx, lists...)), nil
}

// next advances to the block's next series.
func (c *cursor) next() error {
	if !c.postings.Next() {
		c.done = true
		if err := c.postings.Err(); err != nil {
			return c.b.damaged(err)
		}
		return nil
	}
	c.ref, c.metas = c.postings.At(), c.metas[:0]
	if err := c.b.index.Series(c.ref, &c.builder, &c.metas); err != nil {
		return c.b.damaged(err)
	}
	c.labels = c.builder.Labels()
	return nil
}

// next advances to the next series and returns its labels.
func (m *merge) next() (ls labels.Labels, ok bool, err error) {
	for _, c := range m.at {
		if err := c.next(); err != nil {
			return ls, false, err
		}
	}
	m.at = m.at[:0]
	for _, c := range m.cursors {
		if c.done {
			continue
		}
		order := -1
		if len(m.at) > 0 {
			order = labels.Compare(c.labels, m.at[0].labels)
		}
		if order < 0 {
			m.at = m.at[:0]
		}
		if order <= 0 {
			m.at = append(m.at, c)
		}
	}
	if len(m.at) == 0 {
		return ls, false, nil
	}
	return m.at[0].labels, true, nil
}

// read returns the current series' samples of all blocks with minT <= t <= maxT, sorted, and the damaged chunks. If
// first is false, it omits damaged chunks that start before minT, because the read of an earlier range has reported
// them. A chunk of aggregates isn't a damaged chunk but an error: all chunks of its block are aggregates.
func (m *merge) read(minT, maxT int64, first bool) (*chunk.Samples, []importer.Skip, error) {
	samples := &chunk.Samples{}
	var skipped []importer.Skip
	for _, c := range m.at {
		deleted, err := c.b.tombstones.Get(c.ref)
		if err != nil {
			return nil, nil, c.b.damaged(err)
		}
		for _, meta := range c.metas {
			if meta.MaxTime < minT || meta.MinTime > maxT {
				continue
			}
			err := c.readChunk(meta, minT, maxT, deleted, samples)
			if errors.Is(err, errUndeclared) {
				return nil, nil, fmt.Errorf("%w: %s", err, c.b.dir)
			}
			if err != nil && (first || meta.MinTime >= minT) {
				skipped = append(skipped, c.skip(meta, err))
			}
		}
	}
	samples.Normalize()
	return samples, skipped, nil
}

func (c *cursor) readChunk(
	meta chunks.Meta, minT, maxT int64, deleted tombstones.Intervals, into *chunk.Samples,
) error {
	ch, iterable, err := c.b.chunks.ChunkOrIterable(meta)
	if err != nil {
		return err
	}
	if _, ok := ch.(*aggregateChunk); ok {
		return errUndeclared
	}
	if iterable != nil {
		c.it = iterable.Iterator(c.it)
	} else {
		c.it = ch.Iterator(c.it)
	}
	return decode(c.it, minT, maxT, deleted, into)
}

// readWindows returns the current series' windows that start in [from, to), by block and time, and the damaged chunks.
// As in read, first selects the damaged chunks. If multiple blocks have the same window, the store keeps the first one
// and counts the others. A chunk of samples is an error, not a damaged chunk, because then all chunks of the block are
// chunks of samples.
func (m *merge) readWindows(from, to, width int64, first bool) (all [][]window, skipped []importer.Skip, err error) {
	isCounter := rollup.IsCounterName(m.at[0].labels.Get(labels.MetricName))
	for _, c := range m.at {
		deleted, err := c.b.tombstones.Get(c.ref)
		if err != nil {
			return nil, nil, c.b.damaged(err)
		}
		var own []window
		for _, meta := range c.metas {
			if meta.MaxTime < from || meta.MinTime >= to {
				continue
			}
			windows, err := c.readWindows(meta, width, isCounter)
			if errors.Is(err, errDeclared) {
				return nil, nil, fmt.Errorf("%w: %s", err, c.b.dir)
			}
			if err != nil {
				if first || meta.MinTime >= from {
					skipped = append(skipped, c.skip(meta, err))
				}
				continue
			}
			own = appendWindows(own, windows)
		}
		all = append(all, slices.DeleteFunc(own, func(x window) bool {
			return x.start < from || x.start >= to || isDeleted(deleted, x.stamp)
		}))
	}
	return all, skipped, nil
}

// readWindows returns the windows of a chunk. Thanos may leave empty chunks of samples among chunks of aggregates.
func (c *cursor) readWindows(meta chunks.Meta, width int64, isCounter bool) ([]window, error) {
	ch, _, err := c.b.chunks.ChunkOrIterable(meta)
	if err != nil {
		return nil, err
	}
	of, ok := ch.(*aggregateChunk)
	switch {
	case ok:
	case ch != nil && ch.NumSamples() == 0:
		return nil, nil
	default:
		return nil, errDeclared
	}
	w, err := windowsOf(of, width)
	if err != nil {
		return nil, err
	}
	w.estimate(isCounter)
	return w.list, nil
}

// outside returns the chunks of the current series that have selected samples outside of the days on which their block
// is read. Each chunk is returned once, on the first of these days.
func (m *merge) outside(day int64, s *Source) (list []importer.Skip) {
	for _, c := range m.at {
		first, last := c.b.daysRead()
		if day != max(first, dayOf(s.minT)) {
			continue
		}
		if c.b.resolution > rollup.Raw { // Windows are left-closed.
			first, last = first-1, last-1
		}
		for _, meta := range c.metas {
			from, to := max(meta.MinTime, s.opts.Selection.MinMS), min(meta.MaxTime, s.opts.Selection.MaxMS)
			if from <= to && (from <= first || to > last) {
				list = append(list, c.skip(meta, errOutside))
			}
		}
	}
	return list
}

// skip describes a damaged chunk of the current series.
func (c *cursor) skip(meta chunks.Meta, why error) importer.Skip {
	return importer.Skip{
		What: fmt.Sprintf("block %s, series %s, a chunk of %d – %d ms", c.b.dir, c.labels, meta.MinTime, meta.MaxTime),
		Why:  why.Error(), Damaged: true,
	}
}
