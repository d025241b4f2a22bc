package storage

import (
	"context"

	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/starts"
)

// RecordDeltas durably records that a tenant sends deltas and that oldest, in milliseconds, is the time of the oldest
// delta. Senders call it before they add the samples. If oldest is outside the range in which samples are accepted, it
// is moved to the nearest time in this range.
func (s *Store) RecordDeltas(ctx context.Context, tenant string, oldest int64) error {
	earlier, now := s.clock.Bounds()
	oldest = min(max(oldest, retention.PastUntil(earlier, s.retention.LongestRetention(tenant).Raw)), now.UnixMilli())
	return s.starts.Record(ctx, tenant, oldest)
}

// StartsFrom returns the time, in milliseconds, after which queries see the start timestamps of a tenant's samples. It
// returns starts.Never if queries never see them.
func (s *Store) StartsFrom(tenant string) int64 { return s.starts.DeltasAfter(tenant) }

// DeltaTenants lists the tenants that have sent deltas, by name.
func (v View) DeltaTenants(ctx context.Context) ([]starts.DeltaTenant, error) {
	if err := v.s.starts.Open(ctx); err != nil {
		return nil, err
	}
	return v.s.starts.Tenants(), nil
}
