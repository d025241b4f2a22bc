package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	promengine "github.com/prometheus/prometheus/promql"
	promstorage "github.com/prometheus/prometheus/storage"

	"github.com/cassia-db/cassia/adapter/jsonapi"
	"github.com/cassia-db/cassia/adapter/otlp"
	"github.com/cassia-db/cassia/cmd/internal/server"
	"github.com/cassia-db/cassia/promql"
	"github.com/cassia-db/cassia/storage/tenant"
)

// moreRoutes leads to the ways in and out beside remote write and Prometheus' API.
func (p *process) moreRoutes(evaluator *promql.Engine) ([]server.Route, error) {
	metrics, err := p.newOTLP()
	if err != nil {
		return nil, err
	}
	plain, err := p.newJSON(evaluator)
	if err != nil {
		return nil, err
	}
	writes := func(h http.HandlerFunc) http.Handler { return p.only("write", "samples", h) }
	reads := func(h http.HandlerFunc) http.Handler { return p.only("read", "queries", h) }
	routes := []server.Route{
		{Path: "/api/v1/otlp/v1/metrics", Role: server.Write, Tenant: true, Handler: metrics},
		{Path: "/api/write", Role: server.Write, Tenant: true, Handler: writes(plain.Write)},
		{Path: "/api/write/single", Role: server.Write, Tenant: true, Handler: writes(plain.WriteSingle)},
		{Path: "/api/metadata/metricNames", Role: server.Read, Tenant: true, Handler: reads(plain.MetricNames)},
		{Path: "/api/metadata/tagKeys", Role: server.Read, Tenant: true, Handler: reads(plain.TagKeys)},
		{Path: "/api/metadata/tagValues", Role: server.Read, Tenant: true, Handler: reads(plain.TagValues)},
		{Path: "/api/query", Role: server.Read, Tenant: true, Handler: reads(plain.Query)},
		{Path: "/api/openapi.yaml", Role: server.Open, Handler: http.HandlerFunc(jsonapi.OpenAPI)},
	}
	for i := range routes {
		routes[i].Name = routes[i].Path
	}
	return routes, nil
}

// only is h where the process has a role, and else says so.
func (p *process) only(role, what string, h http.Handler) http.Handler {
	if !p.does(role) {
		return server.Elsewhere(what, p.c.Target)
	}
	return h
}

func (p *process) newOTLP() (http.Handler, error) {
	o := otlp.DefaultOptions()
	o.Translation, o.LookbackDelta = p.c.OTLP, p.c.LookbackDelta
	o.Logger, o.Registerer, o.Limiter = p.log.With("component", "otlp"), p.registry, p.limiter
	o.Rules = p.relabeling.Batch
	o.Metadata = func(tenant, family, kind, unit, help string) {
		p.noteMetadata(tenant, []byte(family), kind, []byte(unit), []byte(help))
	}
	h, err := otlp.Handler(p.store, o)
	if err != nil {
		return nil, err
	}
	return p.only("write", "samples", h), nil
}

func (p *process) newJSON(evaluator *promql.Engine) (*jsonapi.API, error) {
	o := jsonapi.DefaultOptions()
	o.Logger, o.Registerer, o.Limiter = p.log.With("component", "jsonapi"), p.registry, p.limiter
	o.Rules = p.relabeling.Batch
	o.Tenant = func(ctx context.Context, asked string) (string, error) {
		name, err := server.TenantFor(ctx, asked)
		if errors.Is(err, server.ErrForbidden) {
			return "", fmt.Errorf("%w: %w", jsonapi.ErrForbidden, err)
		}
		return name, err
	}
	return jsonapi.New(p.store, evaluations{evaluator, p.queryable()}, o)
}

// evaluations answer the JSON API's queries.
type evaluations struct {
	engine    *promql.Engine
	queryable promstorage.Queryable
}

// Enter implements jsonapi.Evaluator.
func (e evaluations) Enter(ctx context.Context) (context.Context, func(), error) {
	ctx, leave, err := e.engine.Enter(ctx)
	if err != nil {
		return nil, nil, evaluationError(err)
	}
	return ctx, leave, nil
}

// Answered implements jsonapi.Evaluator.
func (evaluations) Answered(ctx context.Context, bytes int64) { promql.Answered(ctx, bytes) }

// Evaluate implements jsonapi.Evaluator.
func (e evaluations) Evaluate(ctx context.Context, q jsonapi.Evaluation, yield func(jsonapi.Found) error) error {
	report := &promql.Report{}
	ctx = tenant.Into(report.Into(ctx), q.Tenant)
	var query promengine.Query
	var err error
	if q.Step > 0 {
		query, err = e.engine.NewRangeQuery(ctx, e.queryable, nil, q.Expr, q.Start, q.End, q.Step)
	} else {
		query, err = e.engine.NewInstantQuery(ctx, e.queryable, nil, q.Expr, q.End)
	}
	if err != nil {
		return evaluationError(err)
	}
	defer query.Close()
	result := query.Exec(ctx)
	if result.Err != nil {
		return evaluationError(result.Err)
	}
	found, err := result.Matrix()
	if err != nil {
		return err
	}
	answer := jsonapi.Found{Series: found, Resolution: report.Resolution()}
	for _, note := range result.Warnings.AsErrors() {
		answer.Notes = append(answer.Notes, note.Error())
	}
	return yield(answer)
}

// evaluationError says of the evaluator's errors what they are to whom asked.
func evaluationError(err error) error {
	var (
		samples  promengine.ErrTooManySamples
		timeout  promengine.ErrQueryTimeout
		canceled promengine.ErrQueryCanceled
		stored   promengine.ErrStorage
	)
	switch {
	case errors.As(err, &samples):
		return fmt.Errorf("%w: %w", jsonapi.ErrUnprocessable, err)
	case errors.As(err, &timeout):
		return fmt.Errorf("%w: %w", err, context.DeadlineExceeded)
	case errors.As(err, &canceled):
		return fmt.Errorf("%w: %w", err, context.Canceled)
	case errors.Is(err, promql.ErrTooManyQueries):
		return fmt.Errorf("%w: %w", jsonapi.ErrBusy, err)
	case errors.As(err, &stored):
		return stored.Err
	}
	return err
}
