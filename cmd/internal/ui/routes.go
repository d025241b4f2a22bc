package ui

import (
	"context"
	"net/http"

	"github.com/cassia-db/cassia/cmd/internal/server"
)

// Options are what the page's own endpoints answer from. What isn't marked as optional must be set.
type Options struct {
	// Version, Revision, Target and Engine are this process'.
	Version, Revision, Target, Engine string
	// Auth says that requests must show who they are from.
	Auth bool
	// SelfTenant has Cassia's own metrics; empty: they aren't kept.
	SelfTenant string
	// Ready returns nil once queries can be answered.
	Ready func() error
	// Tenants lists those that have anything.
	Tenants func(context.Context) ([]string, error)
}

// Routes are the rows of the page in the server's table.
func Routes(o Options) []server.Route {
	a := &api{Options: o}
	return []server.Route{
		{Path: "GET /{$}", Name: "/", Role: server.Open, Handler: http.HandlerFunc(page)},
		{Path: "GET /assets/{name}", Name: "/assets/", Role: server.Open, Handler: http.HandlerFunc(serveAsset)},
		{Path: "GET /graph", Name: "/graph", Role: server.Open, Handler: http.HandlerFunc(graph)},
		a.route("session", a.session),
	}
}

// Prefix begins the paths of what the page asks beside Prometheus' API.
const Prefix = "/api/v1/cassia/"

// route is a row of something about the whole process, that who may read asks for.
func (a *api) route(name string, answer func(*http.Request) (any, error)) server.Route {
	return server.Route{Path: "GET " + Prefix + name, Name: Prefix + name, Role: server.Read, Handler: respond(answer)}
}
