package main

import (
	"time"

	"github.com/cassia-db/cassia/promql"
	"github.com/cassia-db/cassia/storage/tenant"
)

// openLimits creates the limiter of the tenants and loads the limits.
func (p *process) openLimits() error {
	p.limiter = tenant.NewLimiter(time.Now, p.registry)
	return p.loadLimits()
}

// loadLimits loads the limits file and applies the limits. If it fails, the previous limits stay in effect.
func (p *process) loadLimits() error {
	table, err := p.c.LoadLimits()
	if err != nil {
		return err
	}
	if p.c.LimitsFile != "" && table.IsEmpty() {
		p.log.Warn("the limits file contains no limits, so tenants have none", "file", p.c.LimitsFile)
	}
	p.limiter.Set(table)
	return nil
}

// limitStatus is the status of a tenant's limits. The keys of its maps are the names in the limits file. Durations are
// in seconds.
type limitStatus struct {
	Tenant string `json:"tenant"`
	// Limits contains the limits that are set.
	Limits map[string]any `json:"limits"`
	// Used contains the current usage, for limits on counts.
	Used map[string]float64 `json:"used"`
	// Left contains the amount that can still be used at this moment, for limits on rates.
	Left map[string]float64 `json:"left"`
}

// limitsOf returns a function that returns the limits of the given tenants and their usage.
func (p *process) limitsOf(evaluator *promql.Engine) func([]string) any {
	return func(names []string) any {
		out := make([]limitStatus, 0, len(names))
		for _, name := range names {
			running, waiting := evaluator.QueryCounts(name)
			out = append(out, limitStatus{
				Tenant: name, Limits: p.limiter.LimitsOf(name).ByKey(), Left: p.limiter.Remaining(name),
				Used: map[string]float64{
					tenant.KeyActiveSeries: float64(p.store.ActiveSeries(name)),
					tenant.KeyQueries:      float64(running), tenant.KeyQueriesWaiting: float64(waiting),
				},
			})
		}
		return out
	}
}
