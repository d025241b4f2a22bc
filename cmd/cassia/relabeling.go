package main

import (
	"github.com/cassia-db/cassia/adapter/relabeling"
)

// openRelabeling makes what applies rules to samples that come in.
func (p *process) openRelabeling() error {
	p.relabeling = relabeling.NewLive(p.registry)
	return p.loadRelabeling()
}

// loadRelabeling puts the rules of the file into force; after an error nothing has changed.
func (p *process) loadRelabeling() error {
	table, err := p.c.LoadRelabeling()
	if err == nil {
		p.relabeling.Set(table)
	}
	return err
}

// noteMetadata stores what a sender says of a metric, as the rules have it.
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
