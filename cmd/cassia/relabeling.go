package main

import (
	"context"

	"github.com/cassia-db/cassia/adapter/relabeling"
	"github.com/cassia-db/cassia/storage/rollup"
)

// openRelabeling makes what applies rules to samples that come in.
func (p *process) openRelabeling() error {
	p.relabeling = relabeling.NewLive(p.registry)
	return p.loadRelabeling()
}

// loadRelabeling puts the rules of the file into force; after an error nothing has changed.
func (p *process) loadRelabeling() error {
	table, err := p.c.LoadRelabeling()
	if err != nil {
		return err
	}
	if p.c.RelabelFile != "" && table.IsEmpty() {
		p.log.Warn("the relabel file contains no rules, so all series are stored without relabeling", "file", p.c.RelabelFile)
	}
	p.relabeling.Set(table)
	return nil
}

// noteMetadata stores a sender's metadata of a metric, under the name that the rules give it.
func (p *process) noteMetadata(tenant string, metric []byte, kind string, unit, help []byte) {
	if p.relabeling.Any(tenant) {
		family, ok := p.relabeling.Metadata(tenant, string(metric), kind)
		if !ok {
			return
		}
		metric = []byte(family)
	}
	p.store.NoteMetadata(tenant, metric, kind, unit, help)
}

// relabelings are what the page asks of rules.
type relabelings struct{ *process }

// Status implements ui.Relabeling.
func (p relabelings) Status(tenant string) relabeling.Status { return p.relabeling.Status(tenant) }

// Try implements ui.Relabeling.
func (p relabelings) Try(ctx context.Context, t *relabeling.Table, o relabeling.TrialOptions) (*relabeling.Trial, error) {
	return relabeling.Try(ctx, p.store, t, o)
}

// Space implements ui.Relabeling.
func (p relabelings) Space(ctx context.Context, tenant string) ([rollup.OneHour + 1]relabeling.ResolutionSpace, error) {
	return relabeling.Space(ctx, p.store, tenant)
}
