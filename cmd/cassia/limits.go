package main

import (
	"time"

	"github.com/cassia-db/cassia/storage/tenant"
)

// openLimits reads the limits of tenants, and what reloads them.
func (p *process) openLimits() error {
	table, err := p.c.LoadLimits()
	if err != nil {
		return err
	}
	p.limiter = tenant.NewLimiter(time.Now, p.registry)
	p.limiter.Set(table)
	p.reloader = newReloader(p.log, p.registry, reloadable{"limits.file", func() (func(), error) {
		table, err := p.c.LoadLimits()
		return func() { p.limiter.Set(table) }, err
	}})
	return nil
}

// limitStatus is what a tenant may know of its limits. Numbers are by the names of limits in the file; durations are in seconds.
type limitStatus struct {
	Tenant string `json:"tenant"`
	// Limits are those that are set.
	Limits map[string]float64 `json:"limits"`
	// Used is what is in use now of what can be counted.
	Used map[string]float64 `json:"used"`
	// Left is what could be used at once of what is counted by time.
	Left map[string]float64 `json:"left"`
}

// limitsOf tells how tenants stand.
func (p *process) limitsOf(names []string) any {
	out := make([]limitStatus, 0, len(names))
	for _, name := range names {
		out = append(out, limitStatus{
			Tenant: name, Limits: p.limiter.Of(name).ByKey(), Left: p.limiter.Left(name),
			Used: map[string]float64{tenant.KeyActiveSeries: float64(p.store.ActiveSeries(name))},
		})
	}
	return out
}
