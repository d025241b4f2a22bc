package storage

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
	"github.com/cassia-db/cassia/storage/panics"
)

// maxGroupedSpans decides whether one scan reads multiple spans. Such a scan also reads rows that are already in the
// head. maxGroupedSpans is the max number of these rows per separate scan that is saved.
const maxGroupedSpans = 32

// streamPosition is the last number of a writer's stream in a slot partition.
type streamPosition struct {
	writer string
	seq    int64
}

// readPositions reads the stream positions of all writers, by slot partition.
func (f *follower) readPositions(ctx context.Context) (map[head.SlotPartition][]streamPosition, error) {
	var mu sync.Mutex
	positions := map[head.SlotPartition][]streamPosition{}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(f.s.opts.seams.workers(followWorkers))
	for _, writer := range f.writers {
		g.Go(panics.WrapError("following", func() error {
			for row, err := range f.s.eng.Scan(
				ctx, engine.Range{Table: engine.Tails, Partition: engine.Key{engine.Text(writer)}},
			) {
				if err != nil {
					return fmt.Errorf("storage: reading the stream positions of writer %x: %w", writer, err)
				}
				seq, n := binary.Varint(row.Value)
				partition := row.Clustering[1].Int
				if n <= 0 || partition < 0 || partition >= int64(len(f.parts)) {
					f.s.damage.RecordCorruptRow(
						engine.Tails, fmt.Errorf("storage: invalid stream position of writer %x", writer),
					)
					continue
				}
				at := head.SlotPartition{Slot: row.Clustering[0].Int, Partition: int(partition)}
				mu.Lock()
				positions[at] = append(positions[at], streamPosition{writer, seq})
				mu.Unlock()
			}
			return nil
		}))
	}
	return positions, g.Wait()
}

// readNewRows reads the new stage rows of all slot partitions.
func (f *follower) readNewRows(
	ctx context.Context, positions map[head.SlotPartition][]streamPosition, awaited bool, begun time.Time,
) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(f.s.opts.seams.workers(followWorkers))
	for at, list := range positions {
		g.Go(panics.WrapError("following", func() error {
			c := f.slot(at.Slot, at.Partition)
			c.mu.Lock()
			defer c.mu.Unlock()
			return f.readStreams(ctx, c, list, awaited, begun)
		}))
	}
	return g.Wait()
}

// seqSpan is a range of a stream's numbers to read.
type seqSpan struct {
	writer   string
	from, to int64
}

// readStreams reads the new rows of a slot partition's streams, including rows beyond the stream positions. It also
// reads the gaps if a query waits or if gapInterval has passed.
func (f *follower) readStreams(
	ctx context.Context, c *followedSlot, positions []streamPosition, awaited bool, begun time.Time,
) error {
	slices.SortFunc(positions, func(a, b streamPosition) int { return strings.Compare(a.writer, b.writer) })
	var spans []seqSpan
	for _, t := range positions {
		st := c.stream(t.writer)
		at := len(spans)
		if awaited || begun.Sub(st.looked) >= gapInterval {
			st.looked = begun
			for _, g := range st.progress.Gaps {
				spans = append(spans, seqSpan{t.writer, g.From, g.To})
			}
		}
		slices.SortFunc(spans[at:], func(a, b seqSpan) int { return cmp.Compare(a.from, b.from) })
		if t.seq >= st.progress.Next {
			c.touched = begun
			spans = append(spans, seqSpan{t.writer, st.progress.Next, format.MaxTime})
		}
	}
	for _, together := range f.groupSpans(c, spans) {
		if err := f.readSpans(ctx, c, together, begun); err != nil {
			return err
		}
	}
	for _, t := range positions {
		st := c.stream(t.writer)
		if t.seq >= st.progress.Next {
			st.progress.AddGap(t.seq+1, begun)
		}
		// A gap is removed only after it was read, so that each gap is read at least once even after a long pause.
		if st.looked.Equal(begun) {
			st.progress.RemoveGaps(begun.Add(-gapTTL))
		}
		st.PruneEpochs()
	}
	return nil
}

// groupSpans groups the spans so that each group is read with one scan. The rows of killed processes are mostly sealed,
// but their stream positions remain for an hour. If few rows of the slot partition are staged, one scan over all spans
// suffices to find that these rows are missing.
func (f *follower) groupSpans(c *followedSlot, spans []seqSpan) [][]seqSpan {
	if len(spans) == 0 {
		return nil
	}
	if f.s.head.CountRows(c.decoder.SlotPartition()) <= maxGroupedSpans*(len(spans)-1) {
		return [][]seqSpan{spans}
	}
	each := make([][]seqSpan, len(spans))
	for i := range spans {
		each[i] = spans[i : i+1]
	}
	return each
}

// readSpans reads the rows of spans with one scan, and adds them to the head. spans must be sorted.
func (f *follower) readSpans(ctx context.Context, c *followedSlot, spans []seqSpan, begun time.Time) error {
	last, at := len(spans)-1, c.decoder.SlotPartition()
	for row, err := range f.s.eng.Scan(ctx, engine.Range{
		Table: engine.Stage, Partition: format.StagePartition(at.Slot, at.Partition),
		From: engine.Key{engine.Text(spans[0].writer), engine.Int(spans[0].from)},
		To:   engine.Key{engine.Text(spans[last].writer), engine.Int(spans[last].to)},
	}) {
		if err != nil {
			return fmt.Errorf(
				"storage: following the staging log of slot %d, partition %d: %w", at.Slot, at.Partition, err,
			)
		}
		writer, seq := row.Clustering[0].Text, row.Clustering[1].Int
		i, within := slices.BinarySearchFunc(spans, seqSpan{writer: writer, from: seq}, func(s, at seqSpan) int {
			return cmp.Or(strings.Compare(s.writer, at.writer), cmp.Compare(s.from, at.from))
		})
		if !within {
			i-- // The last span that begins before seq.
		}
		if i < 0 || spans[i].writer != writer || seq > spans[i].to {
			continue
		}
		if err := f.addRow(
			ctx, c, c.stream(spans[i].writer), format.StageRowOf(row), row.Value, begun, false,
		); err != nil {
			return err
		}
	}
	return nil
}
