package main

import (
	"context"
	"fmt"
	"sync"

	promapi "github.com/prometheus/prometheus/web/api/v1"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/promql"
	"github.com/cassia-db/cassia/promql/ruler"
	"github.com/cassia-db/cassia/storage/panics"
)

// startRules starts the evaluation of rules, if there are rule files. The returned function stops the evaluation and
// must be called before the query evaluator is closed. An error means that a rule file is invalid.
func (p *process) startRules(ctx context.Context, evaluator *promql.Engine) (stop func(), err error) {
	c := &p.c.Rules
	if len(c.Sources) == 0 {
		return func() {}, nil
	}
	o := ruler.DefaultOptions()
	o.Sources = c.Sources
	o.Interval = c.Interval
	o.MaxBytes = p.c.RuleBytes()
	o.ExternalLabels = c.ExternalLabels
	o.ExternalURL = p.c.ExternalURL
	o.Engine = evaluator
	o.Queryable = promql.NewQueryable(p.store, p.c.CounterSuffixes...)
	o.Appendable = adapter.NewAppendable(func(tenant string) adapter.Batch { return p.store.NewBatch(tenant) })
	o.Parser = promql.NewParser(p.c.Features.Parser)
	o.Shared = p.isShared()
	o.Logger = p.log.With("component", "rules")
	o.Registerer = p.registry
	if len(c.Alertmanagers) > 0 {
		p.alertmanagers, err = ruler.NewAlertmanagers(c.Alertmanagers, c.BearerFile, c.ExternalLabels,
			p.log.With("component", "alerts"), p.registry)
		if err != nil {
			return nil, fmt.Errorf("--alertmanager.url: %w", err)
		}
		o.Send = p.alertmanagers
	}
	closeAlerts := func() {
		if p.alertmanagers != nil {
			p.alertmanagers.Close()
		}
	}
	if p.ruler, err = ruler.New(p.store, o); err != nil {
		closeAlerts()
		return nil, fmt.Errorf("--rule.files: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { panics.Repeat(ctx, "evaluating rules", func() { p.ruler.Run(ctx) }) })
	return func() { cancel(); running.Wait(); closeAlerts() }, nil
}

// rulesRetriever returns the rules of a request's tenants for the API.
func (p *process) rulesRetriever(ctx context.Context) promapi.RulesRetriever {
	if p.ruler == nil {
		return ruler.Retriever{}
	}
	return p.ruler.Retriever(ctx)
}

// alertmanagerList returns the Alertmanagers to which alerts are sent, for the API.
func (p *process) alertmanagerList() promapi.AlertmanagerRetriever {
	if p.alertmanagers == nil {
		return nil
	}
	return p.alertmanagers
}
