package meter

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/cassia-db/cassia/storage/tenant"
)

// ErrQueryTooLarge means that a query exceeds a limit of the store's Options.
var ErrQueryTooLarge = errors.New("storage: the query is too large")

// ReadBudget limits the bytes of labels and encoded samples that the store reads and holds for a query, or for a load
// into the cache.
type ReadBudget struct {
	used atomic.Int64
	// Limit is the max number of bytes.
	Limit int64
	// Use counts the bytes for the tenant of the query. It is nil for a load for which multiple queries may wait.
	Use *tenant.Use
	// meter is the meter of ctx, for a load. It is nil if there is none.
	meter Meter
	ctx   context.Context
}

// NewLoad returns the budget of a load for which multiple queries may wait. ctx is the context of the query that loads.
func NewLoad(ctx context.Context, limit int64) *ReadBudget {
	return &ReadBudget{Limit: limit, meter: meterOf(ctx), ctx: ctx}
}

// Charge adds n bytes. It returns ErrQueryTooLarge if the limit is exceeded, and the errors of the meter and of the
// tenant's limits.
func (b *ReadBudget) Charge(n int) error {
	used := b.used.Add(int64(n))
	if b.meter != nil && used/AtOnce > (used-int64(n))/AtOnce {
		if err := b.meter.Load(b.ctx, max(int64(n), AtOnce)); err != nil {
			return err
		}
	}
	if used > b.Limit {
		return fmt.Errorf(
			"%w: its labels and encoded samples exceed %d bytes; query a shorter range or fewer series, or raise "+
				"the limit",
			ErrQueryTooLarge, b.Limit,
		)
	}
	return b.Use.AddBytes(n)
}

// Used returns the number of charged bytes.
func (b *ReadBudget) Used() int64 { return b.used.Load() }
