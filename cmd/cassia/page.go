package main

import (
	"github.com/cassia-db/cassia/cmd/internal/server"
	"github.com/cassia-db/cassia/cmd/internal/ui"
)

// page leads to the web page and what it asks.
func (p *process) page() []server.Route {
	return ui.Routes(ui.Options{
		Version: buildVersion().Cassia, Revision: buildVersion().Revision, Target: p.c.Target, Engine: string(p.c.Kind),
		Auth: p.c.Auth != nil, Ready: p.store.Ready, Tenants: p.store.KnownTenants,
	})
}
