package main

import (
	"context"
	"net/http"

	"github.com/cassia-db/cassia/adapter/jsonapi"
	"github.com/cassia-db/cassia/adapter/otlp"
	"github.com/cassia-db/cassia/adapter/remotewrite"
	"github.com/cassia-db/cassia/cmd/internal/server"
)

// writeRoutes returns the routes for writes other than remote write.
func (p *process) writeRoutes(plain *jsonapi.API) ([]server.Route, error) {
	metrics, err := p.newOTLP()
	if err != nil {
		return nil, err
	}
	routes := []server.Route{
		{Path: "/api/v1/otlp/v1/metrics", Handler: metrics},
		{Path: "/api/write", Handler: http.HandlerFunc(plain.Write)},
		{Path: "/api/write/single", Handler: http.HandlerFunc(plain.WriteSingle)},
	}
	for i := range routes {
		r := &routes[i]
		r.Name = r.Path
		r.Role = server.Write
		r.Tenant = true
		r.Handler = p.requireRole("write", "samples", r.Handler)
	}
	return append(routes, p.importRoutes()...), nil
}

// newRemoteWrite returns the handler of remote write. ha selects, for each HA cluster, the replica whose samples are
// stored. ha is nil if HA is off.
func (p *process) newRemoteWrite(ha *remotewrite.HA) (http.Handler, error) {
	o := remotewrite.DefaultOptions()
	o.LimitInFlight(p.c.BodyBytes())
	o.Bodies = p.bodies
	o.HA = ha
	o.Limiter = p.limiter
	o.Rules = p.relabeling.WrapBatch
	o.Metadata = func(_ context.Context, tenant string, m remotewrite.Metadata) {
		p.noteMetadata(tenant, m.Metric, m.Type, m.Unit, m.Help)
	}
	o.Logger = p.log.With("component", "remotewrite")
	o.Registerer = p.registry
	return remotewrite.Handler(p.store, o)
}

// newOTLP returns the handler of OTLP metrics.
func (p *process) newOTLP() (http.Handler, error) {
	o := otlp.DefaultOptions()
	o.LimitInFlight(p.c.BodyBytes())
	o.Bodies = p.bodies
	o.Translation = p.c.OTLP
	o.LookbackDelta = p.c.LookbackDelta
	o.Logger = p.log.With("component", "otlp")
	o.Registerer = p.registry
	o.Limiter = p.limiter
	o.Rules = p.relabeling.WrapBatch
	o.Metadata = func(tenant, family, kind, unit, help string) {
		p.noteMetadata(tenant, []byte(family), kind, []byte(unit), []byte(help))
	}
	return otlp.Handler(p.store, o)
}
