package storage

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/ha"
	"github.com/cassia-db/cassia/storage/membership"
)

// NewTracker reads the elected replica of each cluster and starts running elections. The caller must close the tracker
// before the store.
func NewTracker(ctx context.Context, s *Store, o ha.Options) (*ha.Tracker, error) {
	return ha.New(ctx, ha.Env{
		Engine: s.eng, Member: s.member, Writer: s.writer, Host: heldHost{s},
		Now: s.opts.Now, MaxAhead: MaxAhead, Corrupt: s.damage.RecordCorruptRow, Logger: s.opts.Logger,
	}, o)
}

// heldHost implements ha.Host for a tracker.
type heldHost struct{ s *Store }

func (h heldHost) HeldWriter(tenant string) ha.HeldWriter {
	return &heldWriter{s: h.s, tenant: tenant, ends: map[format.SeriesID]int64{}}
}

func (h heldHost) DeleteHeld(ctx context.Context, at ha.ClusterName, rows []ha.HeldID) error {
	return h.s.deleteHeld(ctx, at, rows)
}

// takeoverBytes is the size at which a batch of held samples is full.
const takeoverBytes = 4 << 20

// heldWriter implements ha.HeldWriter: it stores held samples during a takeover.
type heldWriter struct {
	s      *Store
	tenant string
	// deletes are the tenant's deletes. begun is the time at which they were read, before any held row.
	deletes format.Tombstones
	begun   time.Time
	// whole is true if the head contains all staged samples.
	whole bool
	// ends contains the results of findEnds, by series. It must contain a series before any of its held samples is
	// stored.
	ends  map[format.SeriesID]int64
	batch *Batch // nil if nothing was added
}

// Prepare reads the deletes and waits until the head is complete. No delete takes effect in this process until the
// caller calls release. Prepare returns an error if a delete is in progress, or if the head is still being rebuilt; the
// caller must retry later.
func (w *heldWriter) Prepare(ctx context.Context) (release func(), err error) {
	s := w.s
	if !s.deletes.taking.TryRLock() {
		return nil, errDeleting // The tracker retries later.
	}
	w.begun = s.opts.Now()
	if w.deletes, err = s.deletesToName(ctx, w.tenant); err == nil {
		err = w.catchUp(ctx)
	}
	if err != nil {
		s.deletes.taking.RUnlock()
		return nil, err
	}
	return s.deletes.taking.RUnlock, nil
}

// catchUp waits until the head contains all staged samples, and then sets whole. If this process answers no queries, or
// if its rebuild has failed, catchUp returns nil without setting whole.
func (w *heldWriter) catchUp(ctx context.Context) error {
	if err := w.s.Ready(); errors.Is(err, ErrNotReady) {
		return err // The tracker retries later.
	} else if err != nil {
		return nil
	}
	err := w.s.catchUp(ctx)
	if errors.Is(err, errNoQueries) {
		return nil
	}
	w.whole = err == nil
	return err
}

// deletesOf returns the deletes that apply to a held row. It returns errDeleting if one of these deletes may take
// effect at any moment. In this case the caller must retry later.
func (w *heldWriter) deletesOf(row *ha.HeldSamples) (format.Tombstones, error) {
	hiding := w.deletes.Filter(func(d *format.Tombstone) bool { return d.CoversHeld(row.Cluster, row.Writer, row.Seq) })
	for _, d := range hiding {
		if w.s.deletes.mayCome(d, w.begun) {
			return nil, errDeleting
		}
	}
	return hiding.InForce(), nil
}

// Add adds a held row's samples to the batch, except samples that aren't to be stored.
func (w *heldWriter) Add(ctx context.Context, row ha.HeldSamples) (added ha.Added, err error) {
	if w.batch == nil {
		w.batch = w.s.NewBatch(w.tenant)
		w.batch.free = true
		// Disable the check for samples too far ahead. These samples were accepted when they were held, possibly by a
		// process with a faster clock.
		w.batch.newest = math.MaxInt64
	}
	hiding, err := w.deletesOf(&row)
	if err != nil {
		return added, err
	}
	sink := heldSink{w: w, row: &row, hiding: hiding}
	var malformed error
	if w.whole && row.Value.MinT <= row.FromMS {
		find := endFinder{sink}
		if malformed = row.Value.Walk(&find); malformed == nil {
			if err := w.findEnds(ctx, find.series, &row); err != nil {
				return added, err
			}
		}
	}
	if malformed == nil {
		malformed = row.Value.Walk(&sink)
	}
	return ha.Added{Samples: sink.taken, Full: w.batch.bytes >= takeoverBytes, Malformed: malformed}, nil
}

// Commit makes the batch durable. It returns an error if so much time has passed since Prepare that deletes may have
// been missed.
func (w *heldWriter) Commit(ctx context.Context) (samples int, err error) {
	b := w.batch
	if b == nil {
		return 0, nil
	}
	w.batch = nil
	if took := membership.Elapsed(w.begun, w.s.opts.Now()); took > deleteRests/2 {
		b.Release()
		return 0, fmt.Errorf(
			"%w: reading held samples took %v, so deletes may have been missed", engine.ErrUnavailable,
			took.Round(time.Second),
		)
	}
	n := b.Len()
	return n, b.Commit(ctx)
}

// heldSink receives the samples of a held row while its blob is decoded, and adds the samples that are to be stored to
// the batch.
type heldSink struct {
	w      *heldWriter
	row    *ha.HeldSamples
	hiding format.Tombstones // the deletes that apply to the row
	// series are the blob's series. The series with number n in the blob is series[n-1]; it is nil if the series can't
	// be stored. hidden holds, by the same index, the deletes that apply to each series.
	series []*Series
	hidden []format.Tombstones
	taken  int
}

func (k *heldSink) Define(_ uint32, _ string, ls labels.Labels) error {
	series, err := k.w.batch.Define(nil, ls)
	var bad *LabelError
	if errors.As(err, &bad) {
		series, err = nil, nil // The series was valid before limits were lowered.
	}
	k.series, k.hidden = append(k.series, series), append(k.hidden, k.hiding.OfSeries(ls))
	return err
}

func (k *heldSink) seriesOf(ref uint32) (*Series, error) {
	if ref == 0 || int(ref) > len(k.series) {
		return nil, fmt.Errorf("%w: series number %d is out of range", format.ErrMalformedHeld, ref)
	}
	return k.series[ref-1], nil
}

// dispositionOf returns the disposition of a sample or an exemplar.
func (k *heldSink) dispositionOf(ref uint32, s *Series, at int64) ha.Disposition {
	if s == nil || k.hidden[ref-1].Hides(at) {
		return ha.DropSample
	}
	// If the class of the series can't be read, the sample is kept, and the seal reports the error.
	if old, _, err := k.w.batch.oldest.IsTooOld(k.w.batch.s.background, s, at); err == nil && old {
		return ha.DropSample
	}
	return k.row.Of(at)
}

// countIfStored reports whether a sample is to be stored. It counts the samples for which it returns true.
func (k *heldSink) countIfStored(ref uint32, s *Series, at int64) bool {
	disposition := k.dispositionOf(ref, s, at)
	stored := disposition == ha.StoreSample
	if disposition == ha.HoldSample {
		end, known := k.w.ends[s.ID()]
		stored = known && at > end
	}
	if stored {
		k.taken++
	}
	return stored
}

func (k *heldSink) Float(ref uint32, at, st int64, v uint64) error {
	s, err := k.seriesOf(ref)
	if err == nil && k.countIfStored(ref, s, at) {
		err = k.w.batch.Float(s, at, st, math.Float64frombits(v))
	}
	return err
}

func (k *heldSink) Histogram(ref uint32, at int64, encoded []byte) error {
	s, err := k.seriesOf(ref)
	if err == nil && k.countIfStored(ref, s, at) {
		k.w.batch.encodedHistogram(s, at, encoded)
	}
	return err
}

// Exemplar adds an exemplar if its disposition is ha.StoreSample. In the margin before a term, samples are held, but
// exemplars are dropped, because it isn't known which exemplars the previous replica missed.
func (k *heldSink) Exemplar(ref uint32, at int64, encoded []byte) error {
	s, err := k.seriesOf(ref)
	if err == nil && k.dispositionOf(ref, s, at) == ha.StoreSample {
		k.w.batch.encodedExemplar(s, at, encoded)
	}
	return err
}
