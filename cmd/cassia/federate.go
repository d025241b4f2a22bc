package main

import (
	"time"

	"github.com/cassia-db/cassia/cmd/internal/server"
	"github.com/cassia-db/cassia/promql"
	"github.com/cassia-db/cassia/promql/api"
)

// federate leads Prometheus that scrape the newest samples.
func (p *process) federate(evaluator *promql.Engine) server.Route {
	h := api.Federation(api.Options{
		Queryable: p.queryable(), Enter: evaluator.Enter, Parser: p.c.Features.Parser, Ready: p.store.Ready, Now: time.Now,
		Logger: p.log.With("component", "federate"),
	}, p.c.LookbackDelta)
	return server.Route{Path: api.FederatePath, Name: api.FederatePath, Role: server.Read, Tenant: true, Handler: p.only("read", "queries", h)}
}
