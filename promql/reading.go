package promql

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/cassia-db/cassia/promql/bucketfn"
	"github.com/cassia-db/cassia/promql/resolution"
)

// Reading is a request of a client that computes from samples itself, such as remote read. The answer can't contain an
// info, and the function named in the request may be wrong. So if raw samples are no longer stored, either samples are
// made from buckets, or the request is refused.
type Reading struct {
	// Refuse is true if no samples may be made from buckets.
	Refuse  bool
	made    atomic.Bool
	refused atomic.Bool
	err     atomic.Pointer[error]
}

// Err returns the error that ended the reading, or nil. Its caller can choose a status by this error, because
// Prometheus' handler returns 500 for every error.
func (r *Reading) Err() error {
	if err := r.err.Load(); err != nil {
		return *err
	}
	return nil
}

// noteError records err in the Reading of ctx, if there is one, and returns err.
func noteError(ctx context.Context, err error) error {
	if r := readingOf(ctx); r != nil && err != nil {
		r.err.Store(&err)
	}
	return err
}

// HasMadeSamples reports whether some samples were made from buckets. WasRefused reports whether the request was
// refused because it would have needed such samples.
func (r *Reading) HasMadeSamples() bool { return r.made.Load() }
func (r *Reading) WasRefused() bool     { return r.refused.Load() }

type readingKey struct{}

// WithReading returns a context for the selects of a reading.
func WithReading(ctx context.Context, r *Reading) context.Context {
	return context.WithValue(ctx, readingKey{}, r)
}

func readingOf(ctx context.Context) *Reading {
	r, _ := ctx.Value(readingKey{}).(*Reading)
	return r
}

// checkMadeSamples returns nil if samples at or before the retention boundary of raw samples, in milliseconds, may be
// made from buckets for a function. The function is "" if it is unknown.
func checkMadeSamples(ctx context.Context, function string, horizon int64) error {
	if r := readingOf(ctx); r != nil {
		if !r.Refuse {
			r.made.Store(true)
			return nil
		}
		r.refused.Store(true)
		return fmt.Errorf("%w: there are none before %s, and remote read doesn't return rollups on this server. "+
			"Query a later time, use Cassia's query API, or start Cassia with "+
			"--remote-read.rollups=expand", resolution.ErrRawExpired, resolution.FormatTime(horizon))
	}
	if fn := bucketfn.LookupFunction(function); fn != nil && fn.WithoutRaw == bucketfn.WithoutRawRefused {
		return fmt.Errorf(
			"%w: there are none before %s, and this use of %s can't be computed from rollups. Query a later time, or use the function on its own",
			resolution.ErrRawExpired, resolution.FormatTime(horizon), function,
		)
	}
	return nil
}
