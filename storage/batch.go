package storage

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
	"github.com/cassia-db/cassia/storage/retention"
)

// Series is a series in the head. A *Series may only be used with the batch that returned it.
type Series = head.Series

// Batch collects the samples of one request. A batch is used once, by one goroutine: NewBatch, then Lookup or Define
// for each series, followed by Float, Histogram or Exemplar, and finally Commit or Release.
type Batch struct {
	s      *Store
	tenant *head.Tenant
	last   *Series // the series that the last successful Lookup found
	missed head.AliasHash
	oldest retention.OldestTimes
	newest int64 // later samples are rejected
	// confirmed is true if a second clock has confirmed newest for this batch; see CheckedClock.ConfirmAhead.
	confirmed  bool
	entries    []head.Sample
	exemplars  []head.EncodedExemplar
	bytes      int64
	histograms int
	bounds     labelBounds
	// free exempts the batch from limits. It is set for held samples, because they were already acknowledged when they
	// arrived.
	free bool
	// space is the alias space, see UseAliases. The same alias in two spaces identifies two different series.
	space uint64
	done  chan error
}

// queuedBytes is the size charged to the queue per entry, excluding its payload.
const queuedBytes = 64

// NewBatch starts a batch for a tenant.
func (s *Store) NewBatch(tenant string) *Batch {
	b := s.batches.Get().(*Batch)
	earlier, now := s.clock.Bounds()
	b.tenant, b.bounds = s.head.TenantOrNone(tenant), s.opts.labelBounds(tenant)
	b.newest, b.confirmed = now.Add(MaxAhead).UnixMilli(), false
	s.retention.SetOldestTimes(&b.oldest, tenant, earlier)
	return b
}

// Lookup finds a series by its alias, which is how the sender identifies the series. The store treats an alias as
// opaque bytes. Lookup allocates nothing and doesn't retain alias.
func (b *Batch) Lookup(alias []byte) (*Series, bool) {
	hash := b.s.head.HashAlias(alias, b.space)
	s := b.tenant.Lookup(hash, b.last)
	if s == nil {
		b.missed = hash
		return nil, false // last is kept, because relabeling may drop this series in every request.
	}
	b.last = s
	return s, true
}

// AliasKey returns the store's key for an alias: a 128-bit hash with a secret seed. The key is valid until the store is
// closed. An alias has a different key in each alias space.
func (b *Batch) AliasKey(alias []byte) [2]uint64 { return b.s.head.HashAlias(alias, b.space) }

// MissedAlias returns the key of the alias in the last failed Lookup. It is the result of AliasKey, without hashing the
// alias again.
func (b *Batch) MissedAlias() [2]uint64 { return b.missed }

// UseAliases selects the alias space of Lookup and Define. In space 0, an alias stands for the labels as they were
// sent. A caller that changes labels before Define must use a separate space for each kind of change, because the
// changed labels identify another series. UseAliases must be called before the first Lookup.
func (b *Batch) UseAliases(space uint64) { b.space = space }

// Define finds or creates the series with these labels, and maps alias to it unless alias is nil. It returns a
// *LabelError for labels that can't name a series, ErrTooManySeries if the head is full, and a *tenant.LimitError if
// the tenant is at its limit of series or of new series. Define copies ls if it retains it.
func (b *Batch) Define(alias []byte, ls labels.Labels) (*Series, error) {
	ls = b.s.truncateLabels(b.tenant.Name(), ls, b.bounds)
	if err := checkLabels(ls, b.bounds); err != nil {
		b.countRejected(err)
		return nil, err
	}
	ls = ls.WithoutEmpty().Copy()
	mayEnter := b.s.checkSeriesLimits
	if b.free {
		mayEnter = nil
	}
	if b.tenant.IsUnknown() {
		if mayEnter != nil && b.s.head.RejectsSeries(b.tenant, b.s.opts.HeadBytes) {
			return nil, ErrTooManySeries
		}
		b.tenant = b.s.head.Tenant(b.tenant.Name())
	}
	s, err := b.s.head.Define(b.tenant, ls, mayEnter)
	if err != nil {
		return nil, err
	}
	b.tenant = s.TenantOfHead()
	if alias != nil {
		b.s.head.AddAlias(alias, b.space, s)
	}
	return s, nil
}

// Float adds a sample with timestamp t and start timestamp st, both in milliseconds. st is 0 if it is unknown. Float
// returns ErrTooOld or ErrTooFarAhead if the sample is permanently rejected. After any other error the sender should
// retry: ErrMaybeAhead, ErrDroppedAhead, or a failure to read the clock of the cluster.
func (b *Batch) Float(ref *Series, t, st int64, v float64) error {
	if err := b.checkTime(ref, t); err != nil {
		return err
	}
	b.entries = append(b.entries, head.Sample{Series: ref, T: t, ST: st, V: math.Float64bits(v)})
	b.bytes += queuedBytes
	return nil
}

// Histogram adds a native histogram sample. Exactly one of h and fh must be set, and the caller must not use it
// afterwards. Histogram returns an *InvalidHistogramError or the errors of Float.
func (b *Batch) Histogram(ref *Series, t, st int64, h *histogram.Histogram, fh *histogram.FloatHistogram) error {
	if err := b.checkTime(ref, t); err != nil {
		return err
	}
	canonical, err := chunk.CanonicalHistogram(chunk.Histogram{T: t, ST: st, Int: h, Float: fh})
	if err != nil {
		return &InvalidHistogramError{Err: err}
	}
	encoded, err := encodeHistogram(canonical)
	if err != nil {
		return err
	}
	b.entries = append(b.entries, head.Sample{Series: ref, T: t, ST: st, Hist: encoded})
	b.bytes += queuedBytes + int64(len(encoded))
	b.histograms++
	return nil
}

func (b *Batch) checkTime(ref *Series, t int64) error {
	if old, class, err := b.oldest.IsTooOld(b.s.background, ref, t); err != nil {
		return err
	} else if old {
		return b.checkTooOld(class, t)
	}
	if t > b.newest {
		return b.checkTooFarAhead(t)
	}
	return nil
}

// checkTooOld returns the error for a sample that is too old to be stored in its class: ErrTooOld if the sample is past
// the retention. Otherwise it returns ErrDroppedAhead, because raw rows of the sample's time were deleted while a clock
// was fast.
func (b *Batch) checkTooOld(class, t int64) error {
	now, _ := b.s.clock.Bounds()
	tenant := b.tenant.Name()
	to, ok := b.oldest.DroppedAhead(class, t, now)
	if !ok {
		return ErrTooOld
	}
	until := time.UnixMilli(to).UTC().Format(time.RFC3339)
	if !b.s.toldDropped.Swap(true) {
		b.s.opts.Logger.Error(
			"raw samples up to a time within the last week were deleted, because a clock was fast; new samples up to "+
				"that time are rejected, and their senders retry. To store them, restore a backup from before the "+
				"deletion, or start with an empty directory",
			"tenant", tenant, "up to", until, "clock", now.UTC(),
		)
	}
	return fmt.Errorf("%w, up to %s", ErrDroppedAhead, until)
}

// checkTooFarAhead returns the error for a sample with a timestamp after newest, or nil if a second clock shows that
// the sample is acceptable. It returns ErrTooFarAhead only if this process's clock can't be slow, so a slow clock never
// causes a permanent rejection.
func (b *Batch) checkTooFarAhead(t int64) error {
	if b.confirmed || !b.s.clock.MayBeSlow(t-b.newest) {
		return ErrTooFarAhead
	}
	wait, err := b.s.clock.ConfirmAhead()
	switch {
	case err != nil:
		return err
	case wait > 0:
		return fmt.Errorf(
			"%w: retry; after %v the sample is rejected unless the clock is corrected", ErrMaybeAhead,
			wait.Round(time.Second),
		)
	}
	_, now := b.s.clock.Bounds()
	b.newest, b.confirmed = now.Add(MaxAhead).UnixMilli(), true
	if t > b.newest {
		return ErrTooFarAhead
	}
	return nil
}

// Exemplar adds an exemplar; e.Ts is in milliseconds. At most 1,024 exemplars are kept per series and slot. Exemplar
// returns an *InvalidExemplarError, a *tenant.LimitError or the errors of Float. The caller keeps ownership of e.
func (b *Batch) Exemplar(ref *Series, e exemplar.Exemplar) error {
	if err := b.checkTime(ref, e.Ts); err != nil {
		return err
	}
	if err := checkExemplar(e.Labels); err != nil {
		return err
	}
	if err := b.s.opts.Limiter.ChargeExemplar(b.tenant.Name()); err != nil {
		return err
	}
	data := format.AppendExemplar(make([]byte, 0, 16+e.Labels.ByteSize()), e.Value, e.Labels)
	b.exemplars = append(b.exemplars, head.EncodedExemplar{Series: ref, T: e.Ts, Data: data})
	b.bytes += queuedBytes + int64(len(data))
	return nil
}

// Len returns the number of samples in the batch.
func (b *Batch) Len() int { return len(b.entries) }

// Commit returns nil once every sample is durable and visible to queries. It rejects the whole batch with ErrOverloaded
// if the queue or the head is full, with ErrHeadShare if this tenant's unsealed samples exceed its share, and with a
// *tenant.LimitError if the tenant is over its ingestion limit. After any other error, including engine.ErrUnavailable,
// the samples may or may not be durable, and the sender must retry. Commit always releases the batch.
func (b *Batch) Commit(ctx context.Context) error {
	if len(b.entries)+len(b.exemplars) == 0 {
		b.Release()
		return nil
	}
	begin := time.Now()
	n, histograms, exemplars := len(b.entries), b.histograms, len(b.exemplars)
	name, limiter := b.tenant.Name(), b.s.opts.Limiter
	if b.free {
		limiter = nil
	}
	if err := limiter.ChargeSamples(name, n); err != nil {
		b.Release()
		return err
	}
	if err := b.s.committer.enqueue(b); err != nil {
		limiter.RefundSamples(name, n)
		if errors.Is(err, ErrOverloaded) || errors.Is(err, ErrHeadShare) {
			b.s.metrics.overloaded.Inc()
		}
		b.Release()
		return err
	}
	select {
	case err := <-b.done:
		s := b.s
		b.Release()
		if err == nil {
			s.metrics.samples.WithLabelValues("float").Add(float64(n - histograms))
			s.metrics.samples.WithLabelValues("histogram").Add(float64(histograms))
			if exemplars > 0 {
				s.metrics.exemplars.Add(float64(exemplars))
			}
			s.metrics.ackSeconds.Observe(time.Since(begin).Seconds())
		} else {
			limiter.RefundSamples(name, n)
		}
		return err
	case <-ctx.Done():
		// The batch isn't returned to the pool, because the committer still uses it.
		return ctx.Err()
	}
}

// finish sends the result of the commit to Commit.
func (b *Batch) finish(err error) { b.done <- err }

// Release discards a batch without committing it.
func (b *Batch) Release() {
	clear(b.entries)
	clear(b.exemplars)
	b.exemplars, b.free, b.space = b.exemplars[:0], false, 0
	b.entries, b.bytes, b.histograms, b.tenant, b.last = b.entries[:0], 0, 0, nil, nil
	b.s.batches.Put(b)
}

// encodeHistogram returns the canonical bytes of a histogram, or an *InvalidHistogramError if it is too large.
func encodeHistogram(h chunk.Histogram) ([]byte, error) {
	b := chunk.AppendHistogramBytes(nil, h)
	if len(b) > format.MaxHistogramBytes {
		return nil, &InvalidHistogramError{
			Err: fmt.Errorf("it has %d bytes; the maximum is %d", len(b), format.MaxHistogramBytes),
		}
	}
	return b, nil
}
