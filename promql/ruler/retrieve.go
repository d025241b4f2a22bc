package ruler

import (
	"context"

	"github.com/prometheus/prometheus/rules"

	"github.com/cassia-db/cassia/storage/tenant"
)

// Retriever tells Prometheus' HTTP API of the rules of some tenants.
type Retriever struct{ managers []*manager }

// Retriever returns one for the tenants of a context.
func (r *Ruler) Retriever(ctx context.Context) Retriever {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found Retriever
	for _, name := range tenant.All(ctx) {
		if m := r.running[name]; m != nil {
			found.managers = append(found.managers, m)
		}
	}
	return found
}

// RuleGroups lists the groups, in order within a tenant.
func (r Retriever) RuleGroups() (all []*rules.Group) {
	for _, m := range r.managers {
		all = append(all, m.RuleGroups()...)
	}
	return all
}

// AlertingRules lists the rules that alert.
func (r Retriever) AlertingRules() (all []*rules.AlertingRule) {
	for _, m := range r.managers {
		all = append(all, m.AlertingRules()...)
	}
	return all
}
