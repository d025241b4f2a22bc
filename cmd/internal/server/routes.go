package server

import (
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Role is what somebody must be allowed to do for a request to be answered.
type Role string

// Roles. Admin includes the others.
const (
	// Open is for everybody, also for those who show no password.
	Open Role = "open"
	// Read asks for what a tenant has stored.
	Read Role = "read"
	// Write stores samples for a tenant.
	Write Role = "write"
	// Watch sees how the process is doing: its metrics, which name tenants.
	Watch Role = "metrics"
	// Admin changes stored data, or reads data of all tenants.
	Admin Role = "admin"
)

// Route is a row of the table of all that the process answers.
type Route struct {
	// Path is a pattern of http.ServeMux, with or without a method.
	Path string
	// Name stands for the route in metrics; empty: the handler counts its requests itself.
	Name string
	Role Role
	// Tenant: requests belong to a tenant: it is found in their context, and they may also begin with
	// /t/{tenant}. Requests of other routes are about the whole process.
	Tenant  bool
	Handler http.Handler
	// OwnBounds: the handler bounds what it takes itself, as those of Write do.
	OwnBounds bool
	// Changes: requests of another method than GET, HEAD and OPTIONS change something, as those of Write and Admin
	// do: pages of other origins may not send them.
	Changes bool
	// Preflight leaves OPTIONS to the handler whoever asks: browsers send it without a password, before they ask.
	Preflight bool
}

// Paths that are answered, too, while all connections and all places of requests are taken.
const (
	healthyPath = "/-/healthy"
	readyPath   = "/-/ready"
	metricsPath = "/metrics"
)

func isVital(path string) bool {
	return path == healthyPath || path == readyPath || path == metricsPath
}

// Table returns the rows of all requests that a handler with these options serves.
func (o Options) Table() []Route { return (&handler{Options: o}).table() }

func (h *handler) table() []Route { return append(h.routes(), h.Routes...) }

// routes are all that the process answers, but for those of Options.Routes.
func (h *handler) routes() []Route {
	metrics := promhttp.HandlerFor(h.Gatherer, promhttp.HandlerOpts{EnableOpenMetrics: true})
	return []Route{
		{Path: "/api/v1/write", Name: "/api/v1/write", Role: Write, Tenant: true, Handler: h.Write},
		// The API counts the requests of its routes itself.
		{Path: "/api/v1/", Role: Read, Tenant: true, Handler: h.API, Preflight: true},
		// Queries are listed there, and can be stopped below.
		{Path: "/api/v1/status/active_queries", Role: Read, Tenant: true, Handler: h.API, Preflight: true},
		{Path: "/api/v1/status/active_queries/", Role: Read, Tenant: true, Handler: h.API, Preflight: true, Changes: true},
		{Path: "/api/v1/admin/", Role: Admin, Tenant: true, Handler: h.API, Preflight: true},
		// A snapshot is of all tenants.
		{Path: "/api/v1/admin/tsdb/snapshot", Role: Admin, Handler: h.API, Preflight: true},
		// What the process was started with, and what it runs on.
		{Path: "/api/v1/status/flags", Role: Admin, Handler: h.API, Preflight: true},
		{Path: "/api/v1/status/config", Role: Admin, Handler: h.API, Preflight: true},
		{Path: "/api/v1/status/runtimeinfo", Role: Admin, Handler: h.API, Preflight: true},
		{Path: "/api/v1/status/self_metrics", Role: Watch, Handler: h.API, Preflight: true},

		{Path: "GET " + healthyPath, Name: healthyPath, Role: Open, Handler: http.HandlerFunc(h.healthy)},
		{Path: "GET " + readyPath, Name: readyPath, Role: Open, Handler: http.HandlerFunc(h.ready)},
		{Path: "/-/seal", Name: "/-/seal", Role: Admin, Handler: http.HandlerFunc(h.seal)},
		{Path: "/-/reload", Name: "/-/reload", Role: Admin, Handler: http.HandlerFunc(h.reload)},
		// Its errors may name series of any tenant.
		{Path: "GET /-/downsample", Name: "/-/downsample", Role: Admin, Handler: http.HandlerFunc(h.downsample)},
		{Path: "GET " + metricsPath, Name: metricsPath, Role: Watch, Handler: metrics},

		{Path: "/debug/pprof/", Name: "/debug/pprof/", Role: Admin, Handler: http.HandlerFunc(pprof.Index)},
		{Path: "/debug/pprof/cmdline", Name: "/debug/pprof/", Role: Admin, Handler: http.HandlerFunc(commandLine)},
		{Path: "/debug/pprof/profile", Name: "/debug/pprof/", Role: Admin, Handler: http.HandlerFunc(pprof.Profile)},
		{Path: "/debug/pprof/symbol", Name: "/debug/pprof/", Role: Admin, Handler: http.HandlerFunc(pprof.Symbol)},
		{Path: "/debug/pprof/trace", Name: "/debug/pprof/", Role: Admin, Handler: http.HandlerFunc(pprof.Trace)},
	}
}

// mux leads requests to the routes, each behind the authorizer.
func (h *handler) mux() *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range h.table() {
		guarded := h.authorizer.guard(r)
		if r.Name != "" {
			guarded = h.HTTP.Instrument(r.Name, guarded.ServeHTTP)
		}
		mux.Handle(r.Path, guarded)
	}
	mux.Handle("/t/{tenant}/", prefixed(mux))
	return mux
}
