// Package server is the HTTP side of the process: listeners, TLS and basic authentication, the routes that
// aren't Prometheus' API, and what every request goes through.
//
//	listener (bounded connections, a spare file handle; TLS and users of webconfig)
//	  └ recover ─ table of routes ─ instrument ─ authorizer (role, tenant) ─ handler
//	                └ /t/{tenant}/… the same routes, where they take a tenant
//
// A new route is a row: in routes.go, or in Options.Routes.
package server
