package main

import (
	"context"

	"github.com/cassia-db/cassia/adapter/relabeling"
	"github.com/cassia-db/cassia/storage/rollup"
)

// openRelabeling creates the relabeling of incoming samples and loads its rules.
func (p *process) openRelabeling() error {
	p.relabeling = relabeling.NewLive(p.registry)
	return p.loadRelabeling()
}

// loadRelabeling loads the relabeling file and applies its rules. If it fails, the previous rules stay in effect.
func (p *process) loadRelabeling() error {
	table, err := p.c.LoadRelabeling()
	if err != nil {
		return err
	}
	if p.c.RelabelFile != "" && table.IsEmpty() {
		p.log.Warn("the relabel file contains no rules, so all series are stored without relabeling",
			"file", p.c.RelabelFile)
	}
	p.relabeling.Set(table)
	return nil
}

// noteMetadata stores metadata that a client sent for a metric, under the name that the metric has after relabeling.
func (p *process) noteMetadata(tenant string, metric []byte, kind string, unit, help []byte) {
	if p.relabeling.HasRules(tenant) {
		family, ok := p.relabeling.Metadata(tenant, string(metric), kind)
		if !ok {
			return
		}
		metric = []byte(family)
	}
	p.store.QueueMetadata(tenant, metric, kind, unit, help)
}

// relabelings implements ui.Relabeling.
type relabelings struct{ *process }

func (r relabelings) Status(tenant string) relabeling.Status { return r.relabeling.Status(tenant) }

func (r relabelings) Try(ctx context.Context, t *relabeling.Table,
	o relabeling.TrialOptions) (*relabeling.Trial, error) {
	return relabeling.RunTrial(ctx, r.store, t, o)
}

func (r relabelings) Space(ctx context.Context, tenant string) ([rollup.OneHour + 1]relabeling.ResolutionSpace, error) {
	return relabeling.MeasureSpace(ctx, r.store, tenant)
}
