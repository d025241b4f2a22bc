package main

import "github.com/cassia-db/cassia/cmd/internal/server"

// lock puts the locks on the doors that the flags ask for.
func (p *process) lock(o *server.Options, files *server.Reloaders) {
	o.ExternalURL = p.c.ExternalURL
	o.Hosts = p.c.Hosts()
	o.Locked = p.c.Locked()
	if p.c.Auth != nil {
		o.Auth = p.c.Auth
		files.Add("--auth.file", p.c.Auth.Reload)
	}
	if p.c.Lifecycle {
		o.Reload = files.Reload
	}
}
