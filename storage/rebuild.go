package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
)

// rebuildWorkers is how many partitions are read at once.
const rebuildWorkers = 2

// rebuild loads the stage into the head. Commits go on meanwhile, in generations of their own.
func (s *Store) rebuild(ctx context.Context) error {
	begin := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(rebuildWorkers)
	for p := range s.period.Partitions {
		g.Go(func() error { return s.rebuildPartition(ctx, p) })
	}
	if err := g.Wait(); err != nil {
		s.opts.Logger.Error("rebuilding the head from the stage stopped; queries can't be answered", "err", err)
		return fmt.Errorf("storage: rebuilding the head: %w", err)
	}
	s.metrics.rebuildSeconds.Set(time.Since(begin).Seconds())
	s.opts.Logger.Info("the head is rebuilt from the stage", "series", s.head.series.Load(), "bytes", s.head.bytes.Load(), "took", time.Since(begin).Round(time.Millisecond))
	return nil
}

func (s *Store) rebuildPartition(ctx context.Context, partition int) error {
	work, err := s.Waiting(ctx, partition)
	if err != nil {
		return err
	}
	p := &s.head.parts[partition]
	for _, w := range work {
		// What this process writes meanwhile is in the head already.
		gen, err := s.load(ctx, w, func(r stageRow) bool { return r.writer != s.writer })
		if err != nil {
			return err
		}
		if gen == nil {
			continue
		}
		var grew int64
		p.mu.Lock()
		c := p.cellOf(w.Slot, partition)
		gen.cell = c
		c.closed = append(c.closed, gen)
		for _, st := range gen.strands {
			st.series.strands = append(st.series.strands[:len(st.series.strands):len(st.series.strands)], st)
			grew += st.bytes()
		}
		p.mu.Unlock()
		s.head.bytes.Add(grew)
	}
	return nil
}

// load reads the stage rows of a slot that want asks for into a generation that belongs to no cell yet,
// or returns nil if there are none. A corrupt blob is named, counted, and left where it is, and so is one
// that can't be understood without it.
func (s *Store) load(ctx context.Context, w Work, want func(stageRow) bool) (*generation, error) {
	l := &loader{s: s, gen: &generation{cell: &cell{slot: w.Slot, partition: w.Partition}}}
	for row, err := range s.eng.Scan(ctx, engine.Range{Table: engine.Stage, Partition: stagePartition(w.Slot, w.Partition)}) {
		if err != nil {
			return nil, fmt.Errorf("storage: reading stage of slot %d, partition %d: %w", w.Slot, w.Partition, err)
		}
		r := stageRowOf(row)
		if !want(r) {
			continue
		}
		orphans := l.orphans
		err := l.blob(r, row.Value)
		if err == nil && l.orphans > orphans && l.damaged == r.writer {
			l.orphans, err = orphans, errLeansOnCorrupt
		}
		if err != nil {
			l.damaged = r.writer
			err = fmt.Errorf("storage: left out the stage row of slot %d, partition %d, writer %x, seq %d: %w", w.Slot, w.Partition, r.writer, r.seq, err)
			if s.damage.add(damagedRow{w.Slot, w.Partition, r}, err) {
				s.corrupt(engine.Stage, err)
			}
			continue
		}
		l.gen.rows = append(l.gen.rows, r)
	}
	if l.orphans > 0 {
		// Their blob leans on one that was never durable, so they were never acknowledged.
		s.metrics.orphans.Add(float64(l.orphans))
		s.opts.Logger.Warn("left out samples of writes that were never acknowledged", "samples", l.orphans, "slot", w.Slot, "partition", w.Partition)
	}
	if len(l.gen.rows) == 0 && !l.gen.partial() {
		return nil, nil
	}
	return l.gen, nil
}

// partial says whether the generation holds samples of rows of which others can't be read, and no others.
// These rows stay, so that sealing it is worth the effort only once.
func (g *generation) partial() bool {
	return len(g.rows) == 0 && slices.ContainsFunc(g.strands, func(st *strand) bool { return st.some })
}

// loader reads the streams of a slot and partition, writer by writer in the order of their blobs.
type loader struct {
	s       *Store
	gen     *generation
	reader  blobReader
	writer  string
	epoch   int64
	refs    []*strand // by number in the epoch, from 1
	known   map[*Series]*strand
	orphans int
	damaged string // the writer, if a blob of its stream is corrupt
}

var errLeansOnCorrupt = fmt.Errorf("%w: it has samples of series that a corrupt blob before it defines", errBadBlob)

func (l *loader) blob(r stageRow, b []byte) error {
	if err := l.reader.open(b); err != nil {
		return err
	}
	if l.writer != r.writer || l.epoch != l.reader.epoch {
		l.writer, l.epoch, l.refs = r.writer, l.reader.epoch, l.refs[:0]
	}
	return l.reader.walk(l)
}

func (l *loader) define(ref uint32, tenant string, ls labels.Labels) error {
	if uint64(ref) > uint64(len(l.refs))+maxStreamSeries {
		return fmt.Errorf("%w: series number %d", errBadBlob, ref)
	}
	s, err := l.s.head.define(l.s.head.tenant(tenant), ls, 0)
	if err != nil {
		return err
	}
	if s.partition != l.gen.cell.partition {
		return fmt.Errorf("%w: a series of partition %d", errBadBlob, s.partition)
	}
	if l.known == nil {
		l.known = map[*Series]*strand{}
	}
	st := l.known[s]
	if st == nil {
		st = newStrand(l.gen, s, l.s.period.slotStart(l.gen.cell.slot))
		l.known[s] = st
		l.gen.strands = append(l.gen.strands, st)
	}
	for uint64(len(l.refs)) <= uint64(ref) {
		l.refs = append(l.refs, nil)
	}
	l.refs[ref] = st
	return nil
}

func (l *loader) strand(ref uint32) *strand {
	if uint64(ref) >= uint64(len(l.refs)) || l.refs[ref] == nil {
		l.orphans++
		return nil
	}
	return l.refs[ref]
}

func (l *loader) float(ref uint32, t, st int64, v uint64) error {
	if err := l.checkTime(t); err != nil {
		return err
	}
	if s := l.strand(ref); s != nil {
		s.appendFloat(t, st, v)
	}
	return nil
}

func (l *loader) histogram(ref uint32, t int64, encoded []byte) error {
	if err := l.checkTime(t); err != nil {
		return err
	}
	// A strand takes what can be read back for granted.
	if _, err := chunk.ParseHistogram(encoded); err != nil {
		return err
	}
	if s := l.strand(ref); s != nil {
		s.appendHistogram(t, encoded)
	}
	return nil
}

func (l *loader) checkTime(t int64) error {
	if slot := l.s.period.slotOf(t); slot != l.gen.cell.slot {
		return fmt.Errorf("%w: a sample at %d, of slot %d", errBadBlob, t, slot)
	}
	return nil
}

// maxStreamSeries bounds how far the numbers of a stream's series may jump where blobs are missing.
const maxStreamSeries = 1 << 24

// corrupt counts and logs what had to be skipped.
func (s *Store) corrupt(t *engine.Table, err error) {
	s.metrics.corrupt.WithLabelValues(t.Name).Inc()
	s.opts.Logger.Error("skipped a corrupt row; run cassia check", "table", t.Name, "err", err)
}

// errNotRebuilt keeps sealing from running before the head is complete.
var errNotRebuilt = errors.New("storage: sealing waits until the head is rebuilt")
