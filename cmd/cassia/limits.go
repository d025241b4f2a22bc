package main

import (
	"time"

	"github.com/cassia-db/cassia/promql"
	"github.com/cassia-db/cassia/storage/tenant"
)

// openLimits makes what holds tenants to their limits.
func (p *process) openLimits() error {
	p.limiter = tenant.NewLimiter(time.Now, p.registry)
	return p.loadLimits()
}

// loadLimits puts the file of limits into force; after an error nothing has changed.
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

// limitStatus is a tenant's view of its limits, by their names in the file; durations are in seconds.
type limitStatus struct {
	Tenant string `json:"tenant"`
	// Limits are those that are set.
	Limits map[string]any `json:"limits"`
	// Used is the present use of limits on numbers.
	Used map[string]float64 `json:"used"`
	// Left is how much of limits on rates could be used at once.
	Left map[string]float64 `json:"left"`
}

// limitsOf returns a function that returns the limits of tenants and their use.
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
