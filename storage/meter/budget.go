package meter

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/cassia-db/cassia/storage/tenant"
)

// ErrQueryTooLarge means that a query needs more than the store's Options allow.
var ErrQueryTooLarge = errors.New("storage: the query is too large")

// ReadBudget bounds the bytes of labels and encoded samples that a query, or a load for the cache, makes the
// store read and hold.
type ReadBudget struct {
	used atomic.Int64
	// Limit is the maximum, bytes.
	Limit int64
	// Use counts the bytes for the tenant that asks; nil: a load for several.
	Use *tenant.Use
	// meter is that of ctx, of a load; nil: nothing is metered.
	meter Meter
	ctx   context.Context
}

// NewLoad returns the budget of a load that several queries may wait for; ctx is that of the query which loads.
func NewLoad(ctx context.Context, limit int64) *ReadBudget {
	return &ReadBudget{Limit: limit, meter: meterOf(ctx), ctx: ctx}
}

// Charge adds n bytes. It returns ErrQueryTooLarge beyond the limit, and errors of the meter and of the tenant's limits.
func (b *ReadBudget) Charge(n int) error {
	used := b.used.Add(int64(n))
	if b.meter != nil && used/AtOnce > (used-int64(n))/AtOnce {
		if err := b.meter.Load(b.ctx, max(int64(n), AtOnce)); err != nil {
			return err
		}
	}
	if used > b.Limit {
		return fmt.Errorf("%w: its labels and encoded samples exceed %d bytes; query a shorter range or fewer series, or raise the limit",
			ErrQueryTooLarge, b.Limit)
	}
	return b.Use.Bytes(n)
}

// Used returns how many bytes were charged.
func (b *ReadBudget) Used() int64 { return b.used.Load() }
