package main

import "github.com/cassia-db/cassia/cmd/internal/server"

// setAuthorization configures authentication and authorization from the flags.
func (p *process) setAuthorization(o *server.Options, files *server.Reloaders) {
	o.ExternalURL = p.c.ExternalURL
	o.RoutePrefix = p.c.RoutePrefix
	o.Hosts = p.c.HostNames()
	o.AuthRequired = p.c.AuthRequired
	if p.c.Auth != nil {
		o.Auth = p.c.Auth
		files.Add("--auth.file", p.c.Auth.Reload)
	}
	if p.c.Web != nil {
		files.Add("--web.config.file", p.c.Web.Reload)
		p.c.Web.OnReload(func(err error) { files.RecordResult("--web.config.file", err) })
	}
	if p.c.Lifecycle {
		o.Reload = files.Reload
	}
}
