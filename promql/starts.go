package promql

import (
	"github.com/cassia-db/cassia/storage/starts"
	"github.com/cassia-db/cassia/storage/tenant"
)

// The evaluator always uses start timestamps. Without Options.StartTimestamps, only samples of tenants that have sent
// deltas have start timestamps. So a query of multiple tenants computes the rates of each tenant as a query of that
// tenant alone does:
//
//	Exec ─► query.WithRecordedStarts ─► Select ─► start timestamps: tenant a, after the time from which it has sent deltas; tenant b, none

// hasDeltas reports whether a tenant of the query has sent deltas.
func (p *plan) hasDeltas() bool {
	for _, name := range tenant.NamesFromContext(p.ctx) {
		if p.queryable.store.StartsFrom(name) != starts.Never {
			return true
		}
	}
	return false
}
