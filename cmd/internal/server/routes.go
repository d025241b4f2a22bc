package server

import (
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Role is what somebody must be allowed to do for a request to be answered.
type Role string

// Roles. Admin includes Read and Write.
const (
	// Open is for everybody, also for those who show no password.
	Open Role = "open"
	// Read asks for what a tenant has stored.
	Read Role = "read"
	// Write stores samples for a tenant.
	Write Role = "write"
	// Admin changes what is stored, or looks at what belongs to all tenants.
	Admin Role = "admin"
)

// Route is a row of the table of all that the process answers.
type Route struct {
	// Path is a pattern of http.ServeMux, with or without a method.
	Path string
	// Name stands for the route in metrics; empty: the handler counts its requests itself.
	Name string
	Role Role
	// Tenant says that requests belong to a tenant: it is found in their context, and they may also begin with
	// /t/{tenant}. Requests of other routes are about the whole process.
	Tenant  bool
	Handler http.Handler
}

// routes are all that the process answers, but for those of Options.Routes.
func (h *handler) routes() []Route {
	metrics := promhttp.HandlerFor(h.Gatherer, promhttp.HandlerOpts{EnableOpenMetrics: true})
	return []Route{
		{"/api/v1/write", "/api/v1/write", Write, true, h.Write},
		// The API counts the requests of its routes itself.
		{"/api/", "", Read, true, h.API},
		{"/api/v1/admin/", "", Admin, true, h.API},
		// What the process was started with, and what it runs on.
		{"/api/v1/status/flags", "", Admin, false, h.API},
		{"/api/v1/status/config", "", Admin, false, h.API},
		{"/api/v1/status/runtimeinfo", "", Admin, false, h.API},

		{"GET /-/healthy", "/-/healthy", Open, false, http.HandlerFunc(h.healthy)},
		{"GET /-/ready", "/-/ready", Open, false, http.HandlerFunc(h.ready)},
		{"/-/seal", "/-/seal", Admin, false, http.HandlerFunc(h.seal)},
		// Its errors may name series of any tenant.
		{"GET /-/downsample", "/-/downsample", Admin, false, http.HandlerFunc(h.downsample)},
		{"GET /metrics", "/metrics", Read, false, metrics},
		{"GET /{$}", "/", Open, false, http.HandlerFunc(h.index)},

		{"/debug/pprof/", "/debug/pprof/", Admin, false, http.HandlerFunc(pprof.Index)},
		{"/debug/pprof/cmdline", "/debug/pprof/", Admin, false, http.HandlerFunc(pprof.Cmdline)},
		{"/debug/pprof/profile", "/debug/pprof/", Admin, false, http.HandlerFunc(pprof.Profile)},
		{"/debug/pprof/symbol", "/debug/pprof/", Admin, false, http.HandlerFunc(pprof.Symbol)},
		{"/debug/pprof/trace", "/debug/pprof/", Admin, false, http.HandlerFunc(pprof.Trace)},
	}
}

// mux leads requests to the routes, each behind the door.
func (h *handler) mux() *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range append(h.routes(), h.Routes...) {
		guarded := h.door.guard(r)
		if r.Name != "" {
			guarded = h.HTTP.Instrument(r.Name, guarded.ServeHTTP)
		}
		mux.Handle(r.Path, guarded)
	}
	mux.Handle("/t/{tenant}/", prefixed(mux))
	return mux
}
