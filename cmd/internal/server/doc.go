// Package server is the HTTP server of the process: the listeners, TLS and basic authentication, the routes outside
// Prometheus' API, and the middleware of all requests. cmd/cassia builds the handlers and passes them in Options.
//
//	listener (limited connections, a spare file handle; TLS and users of webconfig)
//	  └ recover ─ table of routes ─ instrument ─ authorizer (role, tenant) ─ handler
//	                └ /t/{tenant}/… the same routes, if they belong to a tenant
//
// A handler may assume that its request is authorized, that UserOf and TenantFor return the user and the tenant of the
// context, and that the body is within its limit. Only routes with Role Write or OwnBounds limit their bodies
// themselves. A slow or idle client can lose its connection while others wait for one.
//
// A new route is a row in routes.go or in Options.Routes. A row with a wrong Role or without Tenant would expose data
// of all tenants.
package server
