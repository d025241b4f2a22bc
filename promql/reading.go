package promql

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/cassia-db/cassia/promql/bucketfn"
	"github.com/cassia-db/cassia/promql/resolution"
)

// Reading is a request of somebody who computes from samples himself, as remote read's. The answer has no place for an info, and
// the function that it is for, if any is named, may be wrong: so it is either made of buckets where samples are gone, or
// refused.
type Reading struct {
	// Refuse: no samples may be made of buckets.
	Refuse  bool
	made    atomic.Bool
	refused atomic.Bool
	err     atomic.Pointer[error]
}

// Err returns the error that ended the reading, nil: none did. Prometheus' handler answers every error with 500.
func (r *Reading) Err() error {
	if err := r.err.Load(); err != nil {
		return *err
	}
	return nil
}

// noteError keeps the error of the reading of ctx, if there is one.
func noteError(ctx context.Context, err error) error {
	if r := readingOf(ctx); r != nil && err != nil {
		r.err.Store(&err)
	}
	return err
}

// Made reports whether the answer was made of buckets in part, Refused whether it was refused for that.
func (r *Reading) Made() bool    { return r.made.Load() }
func (r *Reading) Refused() bool { return r.refused.Load() }

type readingKey struct{}

// WithReading returns a context for the selects of a reading.
func WithReading(ctx context.Context, r *Reading) context.Context {
	return context.WithValue(ctx, readingKey{}, r)
}

func readingOf(ctx context.Context) *Reading {
	r, _ := ctx.Value(readingKey{}).(*Reading)
	return r
}

// mayMake returns nil if samples may be made of buckets for a function, "" if none is known, before the horizon of raw samples,
// milliseconds.
func mayMake(ctx context.Context, function string, horizon int64) error {
	if r := readingOf(ctx); r != nil {
		if !r.Refuse {
			r.made.Store(true)
			return nil
		}
		r.refused.Store(true)
		return fmt.Errorf("%w before %s, and remote read doesn't return rollups on this server: query a later time, use Cassia's query API, or "+
			"start Cassia with --remote-read.rollups=expand", resolution.ErrRawGone, resolution.FormatTime(horizon))
	}
	if fn := bucketfn.Lookup(function); fn != nil && fn.WithoutRaw == bucketfn.Refused {
		return fmt.Errorf("%w before %s, and this use of %s can't be computed from rollups: query a later time, or use the function on its own",
			resolution.ErrRawGone, resolution.FormatTime(horizon), function)
	}
	return nil
}
