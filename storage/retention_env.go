package storage

import (
	"context"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/retention"
)

// never is the end of a range that contains no rows.
const never = retention.Never

// expirer is implemented by engines that can expire rows at the time given in each write.
type expirer interface{ ExpiresRows() bool }

// expiresRows reports whether an engine expires rows.
func expiresRows(eng engine.Engine) bool {
	e, ok := engine.As[expirer](eng)
	return ok && e.ExpiresRows()
}

// retentionEnv returns the dependencies of package retention.
func (s *Store) retentionEnv() retention.Env {
	o := &s.opts
	return retention.Env{
		Engine: s.eng, Period: s.period, Clock: s.clock, Configured: o.configuredRetention(),
		AddsClasses: o.AddClasses && !o.ReadOnly,
		Shared:      o.Shared, Expires: expiresRows(s.eng),
		Now: o.Now, Logger: o.Logger, Refresh: s.refreshPeriods, Advertised: s.member.EachStatement,
		Corrupt: s.damage.RecordCorruptRow, Tenants: s.Tenants, Windows: s.windowsOf,
		Stands: func(ctx context.Context, tenant string, first, last int64) (bool, error) {
			windows, err := s.readableWindows(ctx, tenant, first, last)
			return len(windows) > 0, err
		},
		Written: func(tenant string, window int64) bool {
			_, ok := s.windows.Get(tenantWindow{tenant, window})
			return ok
		},
		Holds: s.head.HasDataBetween, Samples: s.estimateSamples,
	}
}

// RetentionOf returns the retention of a tenant's series without a class, and the longest retention among its classes.
func (s *Store) RetentionOf(tenant string) (usual, longest retention.Durations) {
	return s.retention.RetentionOf(tenant, retention.DefaultClass), s.retention.LongestRetention(tenant)
}

// Retention returns the Keeper, which manages the store's classes, retentions and retention boundaries.
func (s *Store) Retention() *retention.Keeper { return s.retention }
