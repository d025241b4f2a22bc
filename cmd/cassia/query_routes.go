package main

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/prometheus/util/features"

	"github.com/cassia-db/cassia/adapter/jsonapi"
	"github.com/cassia-db/cassia/cmd/internal/config"
	"github.com/cassia-db/cassia/cmd/internal/server"
	"github.com/cassia-db/cassia/promql"
	"github.com/cassia-db/cassia/promql/api"
)

// queryRoutes returns the query routes that are not part of Prometheus' API.
func (p *process) queryRoutes(evaluator *promql.Engine, plain *jsonapi.API) []server.Route {
	routes := []server.Route{
		{Path: api.FederatePath, Handler: p.federationHandler(evaluator)},
		{Path: "/api/metadata/metricNames", Handler: http.HandlerFunc(plain.MetricNames)},
		{Path: "/api/metadata/tagKeys", Handler: http.HandlerFunc(plain.TagKeys)},
		{Path: "/api/metadata/tagValues", Handler: http.HandlerFunc(plain.TagValues)},
		{Path: "/api/query", Handler: http.HandlerFunc(plain.Query)},
	}
	for i := range routes {
		r := &routes[i]
		r.Name = r.Path
		r.Role = server.Read
		r.Tenant = true
		r.Handler = p.requireRole("read", "queries", r.Handler)
	}
	return append(routes, server.Route{Path: "/api/openapi.yaml", Name: "/api/openapi.yaml", Role: server.Open,
		Handler: jsonapi.OpenAPI(p.c.ExternalURL.Path)})
}

// newEngine returns the query evaluator and adds its features to known.
func (p *process) newEngine(known features.Collector) *promql.Engine {
	o := promql.DefaultOptions()
	o.Timeout = p.c.QueryTimeout
	o.MaxSamples = p.c.MaxSamples
	o.MaxConcurrency = p.c.MaxConcurrency
	o.LookbackDelta = p.c.LookbackDelta
	o.Memory = p.c.Memory
	o.LogSlowerThan = p.c.LogSlowerThan
	o.UnreadBytes = p.c.UnreadBytes
	o.NoSnap = p.c.Snap == config.SnapOff
	f := p.c.Features
	o.Parser = f.Parser
	o.PerStepStats = f.PerStepStats
	o.DelayedNameRemoval = f.DelayedNameRemoval
	o.StartTimestamps = f.StartTimestamps
	o.Limiter = p.limiter
	o.Features = known
	o.Logger = p.log.With("component", "promql")
	o.Registerer = p.registry
	return promql.NewEngine(o)
}

// queryable returns the Queryable that reads the series of the store.
func (p *process) queryable() *promql.Queryable {
	return promql.NewQueryable(p.store, p.c.CounterSuffixes...)
}

// newAPI returns the handler of Prometheus' HTTP API.
func (p *process) newAPI(evaluator *promql.Engine, known features.Collector, front *frontServer) http.Handler {
	snapshot, claimed, dir := p.snapshotFunctions()
	return api.New(api.Options{
		Snapshot: snapshot, ClaimedSnapshot: claimed, DataDir: dir,
		RefuseRollups: p.c.ReadRollups == config.RefuseRollups,
		Engine:        evaluator, Queryable: p.queryable(), Parser: p.c.Features.Parser, Ready: p.store.Ready,
		Exemplars: promql.NewExemplars(p.store), Queries: evaluator, Rules: p.rulesRetriever,
		Alertmanagers: p.alertmanagerList(),
		Version:       buildVersion(), Started: p.started, Now: time.Now,
		Retention: p.c.Retention.String(), Flags: p.flags,
		ListenAddress: p.c.ListenAddresses[0], ExternalURL: p.c.ExternalURL, CORSOrigin: p.c.CORSOrigin,
		AdminAPI: p.c.AdminAPI,
		Delete:   p.store.Delete, CleanTombstones: p.store.CleanTombstones,
		Instrument: front.options.HTTP.Instrument, Reloads: front.files.LastReload, Lifecycle: p.c.Lifecycle,
		Features: known, Metadata: p.metadata,
		Cardinality: p.store.Counts().Cardinality, Limits: p.limitsOf(evaluator), Enter: evaluator.Enter,
		Gatherer: p.registry, Registerer: p.registry, Logger: p.log.With("component", "api"),
	})
}

// metadata returns the metadata of metrics by name.
func (p *process) metadata(ctx context.Context, tenant, metric string,
	limit int) (map[string][]api.MetricMetadata, error) {
	found, err := p.store.Metadata(ctx, tenant, metric, limit)
	if err != nil {
		return nil, err
	}
	out := make(map[string][]api.MetricMetadata, len(found))
	for name, list := range found {
		for _, m := range list {
			out[name] = append(out[name], api.MetricMetadata{Type: m.Type, Help: m.Help, Unit: m.Unit})
		}
	}
	return out, nil
}

// federationHandler returns the handler of Prometheus' federation endpoint, which returns the newest samples.
func (p *process) federationHandler(evaluator *promql.Engine) http.Handler {
	return api.NewFederationHandler(api.Options{
		Queryable: p.queryable(), Enter: evaluator.Enter, Parser: p.c.Features.Parser,
		Ready: p.store.Ready, Now: time.Now,
		MaxFederated: p.c.Memory / promql.AnswerMemoryShare, Logger: p.log.With("component", "federate"),
	}, p.c.LookbackDelta)
}
