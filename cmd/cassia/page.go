package main

import (
	"context"
	"time"

	"github.com/cassia-db/cassia/adapter/selfmonitoring"
	"github.com/cassia-db/cassia/cmd/internal/config"
	"github.com/cassia-db/cassia/cmd/internal/doctor"
	"github.com/cassia-db/cassia/cmd/internal/server"
	"github.com/cassia-db/cassia/cmd/internal/ui"
	"github.com/cassia-db/cassia/promql"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/counts"
	"github.com/cassia-db/cassia/storage/inspect"
)

// pageRoutes returns the routes of the web interface and of the API that it uses.
func (p *process) pageRoutes(evaluator *promql.Engine) []server.Route {
	o := ui.Options{
		Version: buildVersion().Cassia, Revision: buildVersion().Revision, Target: p.c.Target, Engine: string(p.c.Kind),
		Auth: p.c.Auth != nil, Ready: p.store.Ready, Store: inspectedStore{p.store, p.store.Counts()},
		RollupOf: p.queryable().RollupMetric, Work: p.loop.Status, Limits: p.limitsOf(evaluator), Examine: p.examine,
		Relabeling: relabelings{p}, Evaluator: p.evaluator, Memory: evaluator.Memory,
	}
	if p.c.SelfMonitoring {
		o.SelfTenant = selfmonitoring.Tenant
	}
	if p.c.Kind == config.EnginePebble {
		o.Disk = func() (doctor.DirectoryFacts, error) { return doctor.ReadDirectory(p.c.Path) }
	}
	return ui.NewRoutes(o)
}

// examine returns the findings that cassia doctor would report about the store of this server.
func (p *process) examine(ctx context.Context) []doctor.Finding {
	x := &examination{Engine: p.c.Engine, retention: p.c.Retention, now: time.Now}
	work := p.loop.Status(ctx)
	x.add(doctor.CheckWork(&work, x.storeOptions())...)
	if p.isShared() {
		x.examineCluster(ctx)
		return x.found
	}
	d, err := doctor.ReadDirectory(p.c.Path)
	if err != nil {
		x.add(doctor.Finding{Level: doctor.Error, What: oneLine(err), Do: "check the file system of the directory"})
	} else {
		x.add(doctor.CheckDirectory(d))
	}
	x.examineStore(ctx, p.engine, nil)
	return x.found
}

// evaluator returns which process evaluates the rules.
func (p *process) evaluator(ctx context.Context) (ui.Evaluator, error) {
	e := ui.Evaluator{Rules: p.ruler != nil, Shared: p.isShared()}
	if !e.Shared {
		if e.Here = e.Rules; e.Here {
			e.Name = p.c.ExternalURL.Host
			e.Since = p.started.UTC()
		}
		return e, nil
	}
	lease, err := p.store.Member().RulesLease(ctx)
	if err != nil || lease.Owner == "" {
		return e, err
	}
	e.Name = lease.Name
	e.Here = lease.Owner == p.store.Member().Writer()
	e.Since = time.UnixMilli(lease.SinceMS).UTC()
	return e, nil
}

// inspectedStore implements ui.Store. It combines a store, its series counts, and functions of package inspect.
type inspectedStore struct {
	*storage.Store
	*counts.Statistics
}

func (s inspectedStore) Survey(
	ctx context.Context, tenant string,
) (list []inspect.SurveyedWindow, cut bool, err error) {
	return inspect.ListWindows(ctx, s.View(), tenant)
}

func (s inspectedStore) Space(ctx context.Context) (map[string]int64, error) {
	return inspect.SpaceByKind(ctx, s.View().Engine())
}
