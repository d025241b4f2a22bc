package main

import (
	"net/http"

	"github.com/cassia-db/cassia/adapter/otlp"
	"github.com/cassia-db/cassia/cmd/internal/server"
)

// moreRoutes leads to the ways in beside remote write.
func (p *process) moreRoutes() ([]server.Route, error) {
	metrics, err := p.newOTLP()
	if err != nil {
		return nil, err
	}
	const otlpPath = "/api/v1/otlp/v1/metrics"
	return []server.Route{
		{Path: otlpPath, Name: otlpPath, Role: server.Write, Tenant: true, Handler: metrics},
	}, nil
}

func (p *process) newOTLP() (http.Handler, error) {
	if !p.does("write") {
		return server.Elsewhere("samples", p.c.Target), nil
	}
	o := otlp.DefaultOptions()
	o.Translation, o.LookbackDelta = p.c.OTLP, p.c.LookbackDelta
	o.Logger, o.Registerer = p.log.With("component", "otlp"), p.registry
	o.Metadata = func(tenant, family, kind, unit, help string) {
		p.store.NoteMetadata(tenant, []byte(family), kind, []byte(unit), []byte(help))
	}
	return otlp.Handler(p.store, o)
}
