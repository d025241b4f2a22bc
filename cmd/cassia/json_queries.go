package main

import (
	"context"
	"errors"
	"fmt"

	promengine "github.com/prometheus/prometheus/promql"
	promstorage "github.com/prometheus/prometheus/storage"

	"github.com/cassia-db/cassia/adapter/jsonapi"
	"github.com/cassia-db/cassia/cmd/internal/server"
	"github.com/cassia-db/cassia/promql"
	"github.com/cassia-db/cassia/storage/tenant"
)

// newJSON returns the JSON API, which has routes for writing samples and for queries.
func (p *process) newJSON(evaluator *promql.Engine) (*jsonapi.API, error) {
	o := jsonapi.DefaultOptions()
	o.MaxInFlight = min(o.MaxInFlight, p.c.BodyBytes())
	o.Bodies = p.bodies
	o.Logger = p.log.With("component", "jsonapi")
	o.Registerer = p.registry
	o.Limiter = p.limiter
	o.Rules = p.relabeling.WrapBatch
	o.Tenant = func(ctx context.Context, asked string) (string, error) {
		name, err := server.TenantFor(ctx, asked)
		if errors.Is(err, server.ErrForbidden) {
			return "", fmt.Errorf("%w: %w", jsonapi.ErrForbidden, err)
		}
		return name, err
	}
	return jsonapi.New(p.store, jsonEvaluator{evaluator, p.queryable()}, o)
}

// jsonEvaluator evaluates the queries of the JSON API.
type jsonEvaluator struct {
	engine    *promql.Engine
	queryable promstorage.Queryable
}

func (e jsonEvaluator) Enter(ctx context.Context) (context.Context, func(), error) {
	ctx, leave, err := e.engine.Enter(ctx)
	if err != nil {
		return nil, nil, evaluationError(err)
	}
	return ctx, leave, nil
}

func (jsonEvaluator) Answered(ctx context.Context, bytes int64) { promql.HoldAnswer(ctx, bytes) }

func (e jsonEvaluator) Evaluate(ctx context.Context, q jsonapi.Evaluation, yield func(jsonapi.Result) error) error {
	report := &promql.Report{}
	ctx = tenant.NewContext(report.Into(ctx), q.Tenant)
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
	answer := jsonapi.Result{Series: found, Resolution: report.Resolution()}
	for _, note := range result.Warnings.AsErrors() {
		answer.Notes = append(answer.Notes, note.Error())
	}
	return yield(answer)
}

// evaluationError converts errors of the evaluator to errors of the JSON API.
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
