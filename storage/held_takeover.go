package storage

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
)

// takeoverBytes is how many bytes of held samples go in one commit.
const takeoverBytes = 4 << 20

// heldAt names a held row of a cluster.
type heldAt struct {
	epoch           int64
	replica, writer string
	seq             int64
}

func (h *heldRow) where() heldAt { return heldAt{h.epoch, h.replica, h.writer, h.seq} }

// takeover stores held samples. Up to the watermark at which the replica was elected, a series' samples are stored where
// they are newer than what the store has of it: the one before may have been further with one series than with
// another. What it had is read once for each series, before anything is stored.
type takeover struct {
	c  *cluster
	ch *election
	// deletes are those that there were at begun, which was before any held row was read.
	deletes format.Tombstones
	begun   time.Time
	// settled is the election as it will be.
	settled election
	// whole says that this process knows all of what is stored of late.
	whole bool
	ends  map[*Series]int64

	batch *Batch
	done  []heldRow // whose samples the batch has, or that have none
	reach int64     // of what was stored
	// rows and samples were stored.
	rows, samples int
}

func newTakeover(c *cluster, ch *election) *takeover {
	t := &takeover{c: c, ch: ch, settled: *ch, ends: map[*Series]int64{}, reach: math.MinInt64}
	t.settled.Taking, t.settled.Leaving = "", false
	return t
}

// prepare reads the deletes, and waits until the head is whole. No delete comes in force in this process until release is
// called.
func (t *takeover) prepare(ctx context.Context) (release func(), err error) {
	s := t.c.r.s
	if !s.deletes.taking.TryRLock() {
		return nil, errDeleting // The next look tries again.
	}
	t.begun = s.opts.Now()
	if t.deletes, err = s.deletesToName(ctx, t.c.at.tenant); err == nil {
		err = t.catchUp(ctx)
	}
	if err != nil {
		s.deletes.taking.RUnlock()
		return nil, err
	}
	return s.deletes.taking.RUnlock, nil
}

// catchUp waits until the head is whole.
func (t *takeover) catchUp(ctx context.Context) error {
	s := t.c.r.s
	if err := s.Ready(); errors.Is(err, ErrNotReady) {
		return err // The next look tries again.
	} else if err != nil {
		return nil
	}
	err := s.catchUp(ctx)
	if errors.Is(err, ErrNoQueries) {
		return nil
	}
	t.whole = err == nil
	return err
}

// hiding returns the deletes that are about a held row. One that may come in force at any moment is waited for.
func (t *takeover) hiding(h *heldRow) (format.Tombstones, error) {
	s := t.c.r.s
	hiding := t.deletes.Where(func(d *format.Tombstone) bool { return d.CoversHeld(t.c.at.cluster, h.writer, h.seq) })
	for _, d := range hiding {
		if s.deletes.mayCome(d, s.opts.Now()) {
			return nil, errDeleting
		}
	}
	return hiding.InForce(), nil
}

// pass stores all held rows of the elected replica, whoever wrote them, and returns how many there were.
func (t *takeover) pass(ctx context.Context) (n int, err error) {
	release, err := t.prepare(ctx)
	if err != nil {
		return 0, err
	}
	defer release()
	replica := engine.Key{engine.Text(t.ch.elected())}
	current, _ := t.c.current()
	for era := t.ch.Low; current != nil && era <= current.heldEpoch(); era++ {
		for row, err := range t.c.r.s.eng.Scan(ctx, engine.Range{Table: engine.Held, Partition: format.HeldPartition(t.c.at.tenant, t.c.at.cluster, era), From: replica, To: replica}) {
			if err != nil {
				return n, fmt.Errorf("storage: reading held rows: %w", err)
			}
			h := heldRow{epoch: era, replica: t.ch.elected(), writer: strings.Clone(row.Clustering[1].Text), seq: row.Clustering[2].Int}
			ok, err := t.add(ctx, h, row.Value)
			if err != nil {
				return n, err
			}
			if ok {
				n++
			}
		}
	}
	return n, t.commit(ctx)
}

// store stores what is due of rows that this process looks after.
func (t *takeover) store(ctx context.Context, rows []heldRow) error {
	release, err := t.prepare(ctx)
	if err != nil {
		return err
	}
	defer release()
	for _, h := range rows {
		value, ok, err := t.c.r.s.readHeld(ctx, t.c.at, &h)
		if err != nil {
			return err
		}
		if !ok { // Another process has stored it.
			t.c.release([]heldRow{h})
			continue
		}
		if ok, err = t.add(ctx, h, value); err != nil {
			return err
		}
		if !ok {
			t.c.release([]heldRow{h})
		}
	}
	return t.commit(ctx)
}

// add adds a row's samples to the batch, and commits one that has grown large. It returns false for a row that is
// corrupt, which stays.
func (t *takeover) add(ctx context.Context, h heldRow, value []byte) (ok bool, err error) {
	s := t.c.r.s
	if t.batch == nil {
		t.batch = s.NewBatch(t.c.at.tenant)
		t.batch.free = true
		t.batch.newest = math.MaxInt64 // It was let in when it was held, by a clock that may have been ahead of this one.
	}
	hiding, err := t.hiding(&h)
	if err != nil {
		return false, err
	}
	sink := heldSink{t: t, replica: h.replica, hiding: hiding}
	about, err := format.ParseHeld(value)
	var blob []byte
	if err == nil {
		blob, err = about.Unpack()
	}
	var reader format.BlobReader
	if err == nil {
		err = reader.Open(blob)
	}
	if err == nil {
		err = reader.Walk(&sink)
	}
	if err != nil {
		s.corrupt(engine.Held, fmt.Errorf("a held row of cluster %q of tenant %q: era %d, replica %q, writer %x, seq %d: %w",
			t.c.at.cluster, t.c.at.tenant, h.epoch, h.replica, h.writer, h.seq, err))
		return false, nil
	}
	t.rows++
	t.samples += sink.taken
	if sink.taken > 0 {
		t.reach = max(t.reach, about.Reach)
	}
	t.done = append(t.done, h)
	if t.batch.bytes < takeoverBytes {
		return true, nil
	}
	return true, t.commit(ctx)
}

// commit makes the batch durable and then deletes the rows that its samples were held in. If this process ends before
// that, they are stored once more, where they are already.
func (t *takeover) commit(ctx context.Context) error {
	if t.batch == nil {
		return nil
	}
	b, done := t.batch, t.done
	t.batch, t.done = nil, nil
	n := len(b.entries)
	if took := Elapsed(t.begun, t.c.r.now()); took > deleteRests/2 {
		b.Release()
		return fmt.Errorf("%w: it took %v to read held samples, deletes may be unknown", engine.ErrUnavailable, took.Round(time.Second))
	}
	if err := b.Commit(ctx); err != nil {
		return err
	}
	t.c.r.metrics.samples.WithLabelValues("taken").Add(float64(n))
	if err := t.c.r.s.deleteHeld(ctx, t.c.at, done); err != nil {
		return err
	}
	t.c.release(done)
	return t.renew(ctx)
}

// renew says that the taking goes on, where that is due.
func (t *takeover) renew(ctx context.Context) error {
	c, self := t.c, t.c.r.s.Writer()
	c.mu.Lock()
	due := t.ch.Taking == self && Elapsed(c.beatAt, c.r.now()) > c.r.fresh()/2
	c.mu.Unlock()
	if !due {
		return nil
	}
	_, done, err := c.update(ctx, func(now *election) *election {
		if now == nil || now.Epoch != t.ch.Epoch || now.Taking != self {
			return nil
		}
		next := *now
		next.Beat++
		return &next
	})
	if err == nil && !done {
		return errChosenAnew
	}
	return err
}

// heldSink puts the samples of a held row into the batch that are to be stored.
type heldSink struct {
	t       *takeover
	replica string
	hiding  format.Tombstones // that are about the row
	// series are those of the blob by number, from 1; nil: it can't be stored. hidden are the deletes of each.
	series []*Series
	hidden []format.Tombstones
	taken  int
}

func (k *heldSink) Define(_ uint32, _ string, ls labels.Labels) error {
	series, err := k.t.batch.Define(nil, ls)
	var bad *LabelError
	if errors.As(err, &bad) {
		series, err = nil, nil // Limits have become tighter.
	}
	k.series, k.hidden = append(k.series, series), append(k.hidden, k.hiding.OfSeries(ls))
	return err
}

func (k *heldSink) of(ref uint32) (*Series, error) {
	if ref == 0 || int(ref) > len(k.series) {
		return nil, fmt.Errorf("%w: series number %d", format.ErrMalformedHeld, ref)
	}
	return k.series[ref-1], nil
}

// wants says whether a sample is to be stored.
func (k *heldSink) wants(ref uint32, s *Series, at int64) bool {
	if s == nil || k.t.batch.checkTime(s, at) != nil || k.hidden[ref-1].Hides(at) {
		return false
	}
	t := k.t
	way := t.settled.disposition(k.replica, at, t.c.r.margin())
	stored := way == dispositionStore
	if way == dispositionHold && t.whole && k.replica == t.settled.elected() {
		stored = at > t.end(s)
	}
	if stored {
		k.taken++
	}
	return stored
}

func (k *heldSink) Float(ref uint32, at, st int64, v uint64) error {
	s, err := k.of(ref)
	if err == nil && k.wants(ref, s, at) {
		err = k.t.batch.Float(s, at, st, math.Float64frombits(v))
	}
	return err
}

func (k *heldSink) Histogram(ref uint32, at int64, encoded []byte) error {
	s, err := k.of(ref)
	if err == nil && k.wants(ref, s, at) {
		b := k.t.batch
		b.entries = append(b.entries, head.Sample{Series: s, T: at, Hist: slices.Clone(encoded)})
		b.bytes += queuedBytes + int64(len(encoded))
		b.histograms++
	}
	return err
}

// exemplar takes those that lie in a span of the replica: where it isn't known which series lack samples of the
// margin, exemplars are left out.
func (k *heldSink) Exemplar(ref uint32, at int64, encoded []byte) error {
	s, err := k.of(ref)
	if err != nil || s == nil || k.hidden[ref-1].Hides(at) || k.t.batch.checkTime(s, at) != nil || k.t.settled.disposition(k.replica, at, k.t.c.r.margin()) != dispositionStore {
		return err
	}
	b := k.t.batch
	b.exemplars = append(b.exemplars, head.EncodedExemplar{Series: s, T: at, Data: slices.Clone(encoded)})
	b.bytes += queuedBytes + int64(len(encoded))
	return nil
}

// end returns the newest timestamp before the span that the head had of a series when it was first asked.
func (t *takeover) end(s *Series) int64 {
	if end, ok := t.ends[s]; ok {
		return end
	}
	from := t.settled.last().FromMS
	end := t.c.r.s.head.NewestUntil(s, from, t.c.r.margin().Milliseconds())
	t.ends[s] = end
	return end
}
