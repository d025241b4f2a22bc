package main

import (
	"time"

	"github.com/cassia-db/cassia/promql"
	"github.com/cassia-db/cassia/storage/tenant"
)

// openLimits creates the limiter of tenants and loads its limits.
func (p *process) openLimits() error {
	p.limiter = tenant.NewLimiter(time.Now, p.registry)
	return p.loadLimits()
}

// loadLimits loads and applies the limits file. After an error the previous limits stay in effect.
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

// limitStatus is the status of a tenant's limits, by their names in the file. Durations are in seconds.
type limitStatus struct {
	Tenant string `json:"tenant"`
	// Limits contains the limits that are set.
	Limits map[string]any `json:"limits"`
	// Used is the current usage of the limits on counts.
	Used map[string]float64 `json:"used"`
	// Left is the amount that the limits on rates allow at this moment.
	Left map[string]float64 `json:"left"`
}

// limitsOf returns a function that returns the limits of tenants and their usage.
func (p *process) limitsOf(evaluator *promql.Engine) func([]string) any {
	return func(names []string) any {
		out := make([]limitStatus, 0, len(names))
		for _, name := range names {
			running, waiting := evaluator.Queries(name)
			out = append(out, limitStatus{
				Tenant: name, Limits: p.limiter.Of(name).ByKey(), Left: p.limiter.Left(name),
				Used: map[string]float64{
					tenant.KeyActiveSeries: float64(p.store.ActiveSeries(name)),
					tenant.KeyQueries:      float64(running), tenant.KeyQueriesWaiting: float64(waiting),
				},
			})
		}
		return out
	}
}
