package storage

import (
	"context"

	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/starts"
)

// RecordDeltas returns once it is durable that a tenant sends deltas with oldest as the oldest time, milliseconds.
// Senders call it before they add the samples. Times at which samples are rejected are excluded.
func (s *Store) RecordDeltas(ctx context.Context, tenant string, oldest int64) error {
	earlier, now := s.clock.Bounds()
	oldest = min(max(oldest, retention.PastAt(earlier, s.retention.Longest(tenant).Raw)), now.UnixMilli())
	return s.starts.Record(ctx, tenant, oldest)
}

// StartsFrom returns the time after which queries see the start timestamps of a tenant's samples, milliseconds;
// starts.Never: they never do.
func (s *Store) StartsFrom(tenant string) int64 { return s.starts.From(tenant) }

// DeltaTenants lists the tenants that have sent deltas, by name.
func (v View) DeltaTenants(ctx context.Context) ([]starts.DeltaTenant, error) {
	if err := v.s.starts.Open(ctx); err != nil {
		return nil, err
	}
	return v.s.starts.Tenants(), nil
}
