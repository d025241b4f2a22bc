package storage

import (
	"context"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
)

// Batch collects the samples of one request. It is for one goroutine, and is used once:
// NewBatch, then Lookup or Define and Float or Histogram for each series, then Commit or Release.
type Batch struct{}

// NewBatch starts a batch for a tenant.
func (s *Store) NewBatch(tenant string) *Batch { panic("not built yet") }

// Lookup finds a series by the bytes that the sender names it with, opaque to the store. It allocates
// nothing. The caller keeps alias.
func (b *Batch) Lookup(alias []byte) (*Series, bool) { panic("not built yet") }

// Define finds or creates the series with these labels, and remembers alias for it (nil: none).
// It returns a *LabelError for labels that can't name a series, ErrTooManySeries when the head is full.
// ls is copied where it must be kept.
func (b *Batch) Define(alias []byte, ls labels.Labels) (*Series, error) { panic("not built yet") }

// Float adds a sample; t and st (0: unknown) are milliseconds. It returns ErrTooOld, ErrTooFarAhead or nil.
func (b *Batch) Float(ref *Series, t, st int64, v float64) error { panic("not built yet") }

// Histogram adds a native histogram sample: exactly one of h and fh is set, and belongs to the store from
// now on. It returns an *InvalidHistogramError, ErrTooOld, ErrTooFarAhead or nil.
func (b *Batch) Histogram(ref *Series, t, st int64, h *histogram.Histogram, fh *histogram.FloatHistogram) error {
	panic("not built yet")
}

// Commit returns nil once every sample is durable and visible to queries. ErrOverloaded says that too much
// waits already and nothing was taken; engine.ErrUnavailable and others that durability isn't known, and the
// sender must try again. The batch is released in any case.
func (b *Batch) Commit(ctx context.Context) error { panic("not built yet") }

// Release gives up a batch without committing it.
func (b *Batch) Release() { panic("not built yet") }

// Series is a series that the head knows, for use with the batch that returned it.
type Series struct{}
