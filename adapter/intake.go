package adapter

import (
	"context"
	"errors"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/tenant"
)

// Reasons to refuse a sample, beside those of storage.LabelError.
const (
	ReasonTooManySeries    = "too_many_series"
	ReasonTooOld           = "too_old"
	ReasonTooFarAhead      = "too_far_ahead"
	ReasonMaybeAhead       = "maybe_ahead"
	ReasonDroppedAhead     = "dropped_by_clock"
	ReasonInvalidHistogram = "invalid_histogram"
	ReasonInvalidExemplar  = "invalid_exemplar"
)

// Refused is the reason why a sample isn't taken. The others of its request are.
type Refused struct {
	// Reason is a short constant for counters.
	Reason string
	Err    error
}

func (r *Refused) Error() string { return r.Err.Error() }
func (r *Refused) Unwrap() error { return r.Err }

// ErrDropped means that a rule drops a sample or an exemplar (package relabeling). It is taken, but not stored: the sender
// isn't told.
var ErrDropped = errors.New("adapter: dropped by a relabeling rule")

// Shape puts a tenant's rules over a batch of its samples: they change the labels of series, and make methods that add to a
// series return ErrDropped. nil: there are no rules.
type Shape func(tenant string, b *storage.Batch) Batch

// Over returns the batch with rules over it.
func (s Shape) Over(tenant string, b *storage.Batch) Batch {
	if s == nil {
		return b
	}
	return s(tenant, b)
}

// Batch is what an Intake needs of a storage.Batch, whose contract it has. With rules, its methods may return ErrDropped.
type Batch interface {
	Lookup(alias []byte) (*storage.Series, bool)
	Define(alias []byte, ls labels.Labels) (*storage.Series, error)
	Float(ref *storage.Series, t, st int64, v float64) error
	Histogram(ref *storage.Series, t, st int64, h *histogram.Histogram, fh *histogram.FloatHistogram) error
	Exemplar(ref *storage.Series, e exemplar.Exemplar) error
	Commit(ctx context.Context) error
	Release()
}

// BatchBytes is when a batch is committed in the middle of a request, estimated bytes of its samples. It bounds what
// one request keeps in memory.
const BatchBytes = 8 << 20

// SampleBytes is what a sample counts of BatchBytes, bytes.
const SampleBytes = 64

// bucketBytes is what a bucket of a histogram counts besides.
const bucketBytes = 8

// Intake puts the samples of one request into batches. It is for one goroutine; Commit or Release ends it.
type Intake struct {
	ctx      context.Context
	tenant   string
	newBatch func(tenant string) Batch

	batch   Batch
	bytes   int
	pending int
	durable int
	alias   []byte
	// exemplars: some are pending.
	exemplars bool
}

// NewIntake starts an intake for a tenant. ctx ends the waiting for durability.
func NewIntake(ctx context.Context, tenant string, newBatch func(tenant string) Batch) *Intake {
	return &Intake{ctx: ctx, tenant: tenant, newBatch: newBatch}
}

// Float adds a sample of the series with these labels, which are sorted and copied where they must be kept; t and st
// (0: unknown) are milliseconds. It returns a *Refused, ErrDropped, or an error that ends the request.
func (in *Intake) Float(ls labels.Labels, t, st int64, v float64) error {
	series, err := in.resolve(ls)
	if err != nil {
		return err
	}
	if err := in.batch.Float(series, t, st, v); err != nil {
		return refusal(err)
	}
	return in.added(SampleBytes)
}

// Histogram adds a native histogram, as Float does; exactly one of h and fh is set, and belongs to the store from now on.
func (in *Intake) Histogram(ls labels.Labels, t, st int64, h *histogram.Histogram, fh *histogram.FloatHistogram) error {
	series, err := in.resolve(ls)
	if err != nil {
		return err
	}
	buckets := 0
	if h != nil {
		buckets = len(h.PositiveBuckets) + len(h.NegativeBuckets) + len(h.CustomValues)
	} else {
		buckets = len(fh.PositiveBuckets) + len(fh.NegativeBuckets) + len(fh.CustomValues)
	}
	if err := in.batch.Histogram(series, t, st, h, fh); err != nil {
		return refusal(err)
	}
	return in.added(SampleBytes + buckets*bucketBytes)
}

// Exemplar adds an exemplar of a series, as Float does. e stays the caller's.
func (in *Intake) Exemplar(ls labels.Labels, e exemplar.Exemplar) error {
	series, err := in.resolve(ls)
	if err != nil {
		return err
	}
	if err := in.batch.Exemplar(series, e); err != nil {
		return refusal(err)
	}
	in.exemplars = true
	return in.grown(SampleBytes + int(e.Labels.ByteSize()))
}

// added counts a sample.
func (in *Intake) added(bytes int) error {
	in.pending++
	return in.grown(bytes)
}

// grown commits a batch that has grown large.
func (in *Intake) grown(bytes int) error {
	if in.bytes += bytes; in.bytes < BatchBytes {
		return nil
	}
	return in.Commit()
}

// Commit returns nil once all samples added so far are durable. More may be added after it.
func (in *Intake) Commit() error {
	b := in.batch
	if b == nil {
		return nil
	}
	in.batch = nil
	if in.pending == 0 && !in.exemplars {
		b.Release()
		return nil
	}
	if err := b.Commit(in.ctx); err != nil {
		var limit *tenant.LimitError
		if errors.As(err, &limit) { // There may have been batches before this one.
			return limit.Of(in.durable + in.pending)
		}
		return err
	}
	in.durable += in.pending
	in.pending, in.bytes, in.exemplars = 0, 0, false
	return nil
}

// Durable returns how many samples were committed.
func (in *Intake) Durable() int { return in.durable }

// Release gives up what isn't committed.
func (in *Intake) Release() {
	if in.batch != nil {
		in.batch.Release()
		in.batch = nil
	}
}

// resolve finds or creates a series. The batch stays open, which is where the series belongs.
func (in *Intake) resolve(ls labels.Labels) (*storage.Series, error) {
	if in.batch == nil {
		in.batch = in.newBatch(in.tenant)
	}
	// What can't name a series has no alias: leaving out its empty labels may have mended it.
	alias := []byte(nil)
	if _, twice := ls.HasDuplicateLabelNames(); !twice {
		in.alias = AppendAlias(in.alias[:0], ls)
		if series, ok := in.batch.Lookup(in.alias); ok {
			return series, nil
		}
		alias = in.alias
	}
	series, err := in.batch.Define(alias, ls)
	if err != nil {
		return nil, refusal(err)
	}
	return series, nil
}

// timeReasons are the store's errors about the time of one sample.
var timeReasons = []struct {
	err    error
	reason string
}{
	{storage.ErrTooOld, ReasonTooOld}, {storage.ErrTooFarAhead, ReasonTooFarAhead},
	{storage.ErrMaybeAhead, ReasonMaybeAhead}, {storage.ErrDroppedAhead, ReasonDroppedAhead},
}

// RetriedReasons are the reasons for which a sender should retry a sample: it may be accepted later.
var RetriedReasons = []string{ReasonMaybeAhead, ReasonDroppedAhead}

// TimeReason returns the reason of an error of the store that is about the time of one sample; "": it is about something else.
func TimeReason(err error) string {
	for _, t := range timeReasons {
		if errors.Is(err, t.err) {
			return t.reason
		}
	}
	return ""
}

// refusal makes a *Refused of the store's error for one sample. Other errors end the request and stay.
func refusal(err error) error {
	var bad *storage.LabelError
	var invalid *storage.InvalidHistogramError
	var exemplar *storage.InvalidExemplarError
	var limit *tenant.LimitError
	switch {
	case errors.As(err, &limit):
		return &Refused{limit.Limit, err}
	case errors.As(err, &bad):
		return &Refused{bad.Reason, err}
	case errors.Is(err, storage.ErrTooManySeries):
		return &Refused{ReasonTooManySeries, err}
	case TimeReason(err) != "":
		return &Refused{TimeReason(err), err}
	case errors.As(err, &invalid):
		return &Refused{ReasonInvalidHistogram, err}
	case errors.As(err, &exemplar):
		return &Refused{ReasonInvalidExemplar, err}
	}
	return err
}
