package main

import (
	"context"
	"sync"

	"github.com/cassia-db/cassia/adapter/metadata"
	"github.com/cassia-db/cassia/cmd/internal/config"
	"github.com/cassia-db/cassia/storage/panics"
)

// startMetadata starts fetching metadata from other servers, if any are configured. The returned function stops this.
// An error means that the configuration is invalid.
func (p *process) startMetadata(ctx context.Context) (stop func(), err error) {
	c := p.c.Metadata
	if len(c.Sources) == 0 {
		return func() {}, nil
	}
	o := metadata.DefaultOptions()
	login := &httpConfig{flag: config.MetadataConfigFlag, file: c.HTTPConfigFile}
	for _, s := range c.Sources {
		if s.Client, err = login.newClient(s.URL.String()); err != nil {
			return nil, err
		}
		o.Sources = append(o.Sources, s)
	}
	o.Note, o.Logger, o.Registerer = p.noteMetadata, p.log.With("component", "metadata"), p.registry
	poller := metadata.New(o)
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(panics.WrapContained("fetching metadata", func() { poller.Run(ctx) }))
	return func() { cancel(); running.Wait() }, nil
}
