package storage

import (
	"context"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/retention"
)

// never is the end of a range of rows that has none.
const never = retention.Never

// expirer is implemented by engines whose rows may expire by themselves, at the time that they were written with.
type expirer interface{ ExpiresRows() bool }

// expiresRows reports whether an engine's rows expire by themselves.
func expiresRows(eng engine.Engine) bool {
	e, ok := engine.As[expirer](eng)
	return ok && e.ExpiresRows()
}

// retentionEnv returns what the store gives to package retention.
func (s *Store) retentionEnv() retention.Env {
	o := &s.opts
	return retention.Env{
		Engine: s.eng, Period: s.period, Clock: s.clock, Configured: o.kept(), AddsClasses: o.AddClasses && !o.ReadOnly, Shared: o.Shared, Expires: expiresRows(s.eng),
		Now: o.Now, Logger: o.Logger, Refresh: s.refreshPeriods, Advertised: s.member.EachStatement, Corrupt: s.damage.Corrupt, Tenants: s.Tenants, Windows: s.windowsOf,
		Stands: func(ctx context.Context, tenant string, first, last int64) (bool, error) {
			windows, err := s.everyWindow(ctx, tenant, first, last)
			return len(windows) > 0, err
		},
		Written: func(tenant string, window int64) bool {
			_, ok := s.windows.Get(tenantWindow{tenant, window})
			return ok
		},
		Holds: s.head.HoldsBetween, Samples: s.aboutSamples,
	}
}

// RetentionOf is how long a tenant's series are kept: those in no class, and those in one that is kept the longest.
func (s *Store) RetentionOf(tenant string) (usual, longest retention.Keep) {
	return s.retention.Keep(tenant, retention.DefaultClass), s.retention.Longest(tenant)
}

// Retention returns what has the classes and retentions of the store, and its retention boundaries.
func (s *Store) Retention() *retention.Keeper { return s.retention }
