package adapter

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	promstorage "github.com/prometheus/prometheus/storage"

	"github.com/cassia-db/cassia/storage/tenant"
)

// errNotAppended is returned for values that an appender doesn't support.
var errNotAppended = errors.New("adapter: not supported by this appender")

// Appendable lets components of Prometheus write to the store. An appender writes for the tenant in its context.
type Appendable struct {
	newBatch func(tenant string) Batch
}

// NewAppendable returns an Appendable that adds samples to the batches that newBatch returns.
func NewAppendable(newBatch func(tenant string) Batch) *Appendable { return &Appendable{newBatch} }

var _ promstorage.Appendable = (*Appendable)(nil)

// Appender implements promstorage.Appendable. The appender must be used by one goroutine and ended by Commit or
// Rollback. Commit returns nil once all appended samples are durable.
func (a *Appendable) Appender(ctx context.Context) promstorage.Appender {
	return &appender{in: NewIntake(ctx, tenant.FromContext(ctx), a.newBatch)}
}

// appender is one transaction. After an error that isn't specific to one sample it rejects all further samples, and
// Commit returns that error.
type appender struct {
	in    *Intake
	fatal error
}

// Append implements promstorage.Appender. Errors specific to one sample wrap Prometheus' error for the condition, if
// there is one.
func (a *appender) Append(
	_ promstorage.SeriesRef, ls labels.Labels, t int64, v float64,
) (promstorage.SeriesRef, error) {
	if a.fatal != nil {
		return 0, a.fatal
	}
	return 0, a.checkAppend(a.in.Float(ls, t, 0, v))
}

// AppendHistogram implements promstorage.Appender. The caller keeps ownership of h and fh.
func (a *appender) AppendHistogram(
	_ promstorage.SeriesRef, ls labels.Labels, t int64, h *histogram.Histogram, fh *histogram.FloatHistogram,
) (promstorage.SeriesRef, error) {
	if a.fatal != nil {
		return 0, a.fatal
	}
	if h != nil {
		h = h.Copy()
	}
	if fh != nil {
		fh = fh.Copy()
	}
	return 0, a.checkAppend(a.in.Histogram(ls, t, 0, h, fh))
}

func (a *appender) checkAppend(err error) error {
	var rejected *RejectedError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &rejected):
		a.fatal = err
		return err
	case rejected.Reason == ReasonTooOld:
		return fmt.Errorf("%w: %w", promstorage.ErrTooOldSample, err)
	}
	return err
}

// AppendExemplar implements promstorage.Appender.
func (a *appender) AppendExemplar(
	_ promstorage.SeriesRef, ls labels.Labels, e exemplar.Exemplar,
) (promstorage.SeriesRef, error) {
	if a.fatal != nil {
		return 0, a.fatal
	}
	return 0, a.checkAppend(a.in.Exemplar(ls, e))
}

// SetOptions implements promstorage.Appender. It has no effect: samples are accepted in any order.
func (a *appender) SetOptions(*promstorage.AppendOptions) {}

// UpdateMetadata implements promstorage.Appender. It is unsupported: callers of Appendable have no metadata.
func (a *appender) UpdateMetadata(
	promstorage.SeriesRef, labels.Labels, metadata.Metadata,
) (promstorage.SeriesRef, error) {
	return 0, fmt.Errorf("%w: metadata", errNotAppended)
}

// AppendSTZeroSample implements promstorage.Appender. It is unsupported: start timestamps are stored as a column, not
// as samples.
func (a *appender) AppendSTZeroSample(
	promstorage.SeriesRef, labels.Labels, int64, int64,
) (promstorage.SeriesRef, error) {
	return 0, fmt.Errorf("%w: a sample in place of a start timestamp", errNotAppended)
}

// AppendHistogramSTZeroSample implements promstorage.Appender. It is unsupported, for the same reason as
// AppendSTZeroSample.
func (a *appender) AppendHistogramSTZeroSample(
	promstorage.SeriesRef, labels.Labels, int64, int64, *histogram.Histogram, *histogram.FloatHistogram,
) (promstorage.SeriesRef, error) {
	return 0, fmt.Errorf("%w: a sample in place of a start timestamp", errNotAppended)
}

// Commit implements promstorage.AppenderTransaction.
func (a *appender) Commit() error {
	if a.fatal != nil {
		a.in.Release()
		return a.fatal
	}
	return a.in.Commit()
}

// Rollback implements promstorage.AppenderTransaction.
func (a *appender) Rollback() error {
	a.in.Release()
	return nil
}
