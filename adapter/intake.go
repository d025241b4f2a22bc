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

// Reasons to reject a sample. storage.LabelError has further reasons.
const (
	ReasonTooManySeries    = "too_many_series"
	ReasonTooOld           = "too_old"
	ReasonTooFarAhead      = "too_far_ahead"
	ReasonMaybeAhead       = "maybe_ahead"
	ReasonDroppedAhead     = "dropped_by_clock"
	ReasonInvalidHistogram = "invalid_histogram"
	ReasonInvalidExemplar  = "invalid_exemplar"
)

// RejectedError is the error of a sample that is rejected while the other samples of its request are accepted.
type RejectedError struct {
	// Reason is a short constant, used as a label of counters.
	Reason string
	Err    error
}

func (r *RejectedError) Error() string { return r.Err.Error() }
func (r *RejectedError) Unwrap() error { return r.Err }

// ErrDropped means that a relabeling rule drops the sample or exemplar (package relabeling). It counts as accepted: the
// sender gets no error.
var ErrDropped = errors.New("adapter: dropped by a relabeling rule")

// Shape applies a tenant's relabeling rules to a batch. The rules may change the labels of series, and methods that add
// samples may return ErrDropped. nil means no rules.
type Shape func(tenant string, b *storage.Batch) Batch

// WrapBatch returns b with the tenant's rules applied.
func (s Shape) WrapBatch(tenant string, b *storage.Batch) Batch {
	if s == nil {
		return b
	}
	return s(tenant, b)
}

// Batch is the part of storage.Batch that an Intake uses, with the same contract. With rules, its methods may also
// return ErrDropped.
type Batch interface {
	Lookup(alias []byte) (*storage.Series, bool)
	Define(alias []byte, ls labels.Labels) (*storage.Series, error)
	Float(ref *storage.Series, t, st int64, v float64) error
	Histogram(ref *storage.Series, t, st int64, h *histogram.Histogram, fh *histogram.FloatHistogram) error
	Exemplar(ref *storage.Series, e exemplar.Exemplar) error
	Commit(ctx context.Context) error
	Release()
}

// BatchBytes is the estimated size of samples, in bytes, at which a batch is committed before its request has ended. It
// bounds the memory of one request.
const BatchBytes = 8 << 20

// SampleBytes is the estimated size of a sample in bytes.
const SampleBytes = 64

// bucketBytes is the estimated size of one bucket of a histogram, in addition to SampleBytes.
const bucketBytes = 8

// Intake adds the samples of one request to batches. It must be used by one goroutine and ended by Commit or Release.
type Intake struct {
	ctx      context.Context
	tenant   string
	newBatch func(tenant string) Batch

	batch   Batch
	bytes   int
	pending int
	durable int
	alias   []byte
	// hasExemplars is true if the batch has exemplars that aren't committed.
	hasExemplars bool
}

// NewIntake returns an intake for a tenant. Canceling ctx ends the wait for durability.
func NewIntake(ctx context.Context, tenant string, newBatch func(tenant string) Batch) *Intake {
	return &Intake{ctx: ctx, tenant: tenant, newBatch: newBatch}
}

// Float adds a sample to the series with the given labels, which must be sorted. The store copies labels that it keeps.
// t and st are in milliseconds; a start timestamp st of 0 means unknown. Float returns a *RejectedError, ErrDropped, or
// an error that fails the whole request.
func (in *Intake) Float(ls labels.Labels, t, st int64, v float64) error {
	series, err := in.resolveSeries(ls)
	if err != nil {
		return err
	}
	if err := in.batch.Float(series, t, st, v); err != nil {
		return asRejected(err)
	}
	return in.countSample(SampleBytes)
}

// Histogram adds a native histogram, with the same errors as Float. Exactly one of h and fh must be set; the store
// takes ownership of it.
func (in *Intake) Histogram(ls labels.Labels, t, st int64, h *histogram.Histogram, fh *histogram.FloatHistogram) error {
	series, err := in.resolveSeries(ls)
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
		return asRejected(err)
	}
	return in.countSample(SampleBytes + buckets*bucketBytes)
}

// Exemplar adds an exemplar to a series, with the same errors as Float. The caller keeps ownership of e.
func (in *Intake) Exemplar(ls labels.Labels, e exemplar.Exemplar) error {
	series, err := in.resolveSeries(ls)
	if err != nil {
		return err
	}
	if err := in.batch.Exemplar(series, e); err != nil {
		return asRejected(err)
	}
	in.hasExemplars = true
	return in.growBatch(SampleBytes + int(e.Labels.ByteSize()))
}

// countSample counts one sample of the given bytes. It commits the batch if the batch is large enough.
func (in *Intake) countSample(bytes int) error {
	in.pending++
	return in.growBatch(bytes)
}

// growBatch adds bytes to the size of the batch and commits it at BatchBytes.
func (in *Intake) growBatch(bytes int) error {
	if in.bytes += bytes; in.bytes < BatchBytes {
		return nil
	}
	return in.Commit()
}

// Commit returns nil once all samples added so far are durable. More samples may be added afterwards.
func (in *Intake) Commit() error {
	b := in.batch
	if b == nil {
		return nil
	}
	in.batch = nil
	if in.pending == 0 && !in.hasExemplars {
		b.Release()
		return nil
	}
	if err := b.Commit(in.ctx); err != nil {
		var limit *tenant.LimitError
		if errors.As(err, &limit) { // The limit applies to the samples of all batches of the request.
			return limit.ForRequest(in.durable + in.pending)
		}
		return err
	}
	in.durable += in.pending
	in.pending, in.bytes, in.hasExemplars = 0, 0, false
	return nil
}

// DurableSamples returns the number of committed samples.
func (in *Intake) DurableSamples() int { return in.durable }

// Release discards samples that aren't committed.
func (in *Intake) Release() {
	if in.batch != nil {
		in.batch.Release()
		in.batch = nil
	}
}

// resolveSeries finds or creates a series in the open batch, and opens a batch if there is none.
func (in *Intake) resolveSeries(ls labels.Labels) (*storage.Series, error) {
	if in.batch == nil {
		in.batch = in.newBatch(in.tenant)
	}
	// Labels with a duplicate name get no alias: removing empty labels could hide the duplicate.
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
		return nil, asRejected(err)
	}
	return series, nil
}

// timeReasons maps the store's errors about the time of one sample to reasons.
var timeReasons = []struct {
	err    error
	reason string
}{
	{storage.ErrTooOld, ReasonTooOld}, {storage.ErrTooFarAhead, ReasonTooFarAhead},
	{storage.ErrMaybeAhead, ReasonMaybeAhead}, {storage.ErrDroppedAhead, ReasonDroppedAhead},
}

// RetriedReasons are the reasons for which a sender should retry a sample, because it may be accepted later.
var RetriedReasons = []string{ReasonMaybeAhead, ReasonDroppedAhead}

// TimeReason returns the reason if err is the store's error about the time of one sample, otherwise "".
func TimeReason(err error) string {
	for _, t := range timeReasons {
		if errors.Is(err, t.err) {
			return t.reason
		}
	}
	return ""
}

// asRejected converts the store's error about one sample to a *RejectedError. It returns other errors, which fail the
// request, unchanged.
func asRejected(err error) error {
	var bad *storage.LabelError
	var invalid *storage.InvalidHistogramError
	var exemplar *storage.InvalidExemplarError
	var limit *tenant.LimitError
	switch {
	case errors.As(err, &limit):
		return &RejectedError{limit.Limit, err}
	case errors.As(err, &bad):
		return &RejectedError{bad.Reason, err}
	case errors.Is(err, storage.ErrTooManySeries):
		return &RejectedError{ReasonTooManySeries, err}
	case TimeReason(err) != "":
		return &RejectedError{TimeReason(err), err}
	case errors.As(err, &invalid):
		return &RejectedError{ReasonInvalidHistogram, err}
	case errors.As(err, &exemplar):
		return &RejectedError{ReasonInvalidExemplar, err}
	}
	return err
}
