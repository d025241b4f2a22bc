package main

import (
	"time"

	"github.com/cassia-db/cassia/cmd/internal/server"
	"github.com/cassia-db/cassia/promql"
	"github.com/cassia-db/cassia/promql/api"
)

// federate leads Prometheus that scrape the newest samples.
func (p *process) federate() []server.Route {
	if !p.does("read") {
		return nil
	}
	h := api.Federation(api.Options{
		Queryable: promql.NewQueryable(p.store), Parser: p.c.Features.Parser, Ready: p.store.Ready, Now: time.Now,
		Logger: p.log.With("component", "federate"),
	}, p.c.LookbackDelta)
	return []server.Route{{Path: api.FederatePath, Name: api.FederatePath, Role: server.Read, Tenant: true, Handler: h}}
}
