package server

import (
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Role is the permission that a request needs.
type Role string

// The roles. Admin includes all others.
const (
	// Open requires no authentication.
	Open Role = "open"
	// Read allows reading the data of a tenant.
	Read Role = "read"
	// Write allows storing samples for a tenant.
	Write Role = "write"
	// Watch allows reading the state of the process: its metrics, which contain names of tenants.
	Watch Role = "metrics"
	// Admin allows changing stored data and reading the data of all tenants.
	Admin Role = "admin"
)

// Route is a row in the table of routes.
type Route struct {
	// Path is a pattern of http.ServeMux, with or without a method.
	Path string
	// Name is the route's label in metrics. If it is empty, the handler counts its requests itself.
	Name string
	Role Role
	// Tenant is set if each request belongs to a tenant. The tenant is in the request's context, and the path may also
	// start with /t/{tenant}. Without it, requests apply to the whole process.
	Tenant  bool
	Handler http.Handler
	// OwnBounds is set if the handler limits request bodies itself. Handlers with the role Write always do.
	OwnBounds bool
	// Changes is set if requests with methods other than GET, HEAD and OPTIONS change something. On routes with the
	// roles Write and Admin, they always do. Pages of other origins may not send such requests.
	Changes bool
	// Preflight passes OPTIONS to the handler without authentication, because browsers send preflight requests without
	// a password.
	Preflight bool
}

// Paths that are served even if the limits on connections and requests are reached.
const (
	healthyPath = "/-/healthy"
	readyPath   = "/-/ready"
	metricsPath = "/metrics"
)

func isVital(path string) bool {
	return path == healthyPath || path == readyPath || path == metricsPath
}

// RouteTable returns the routes of the handler that NewHandler returns for these options.
func (o Options) RouteTable() []Route { return (&handler{Options: o}).table() }

func (h *handler) table() []Route { return append(h.routes(), h.Routes...) }

// routes returns all routes of the process except Options.Routes.
func (h *handler) routes() []Route {
	metrics := promhttp.HandlerFor(h.Gatherer, promhttp.HandlerOpts{EnableOpenMetrics: true})
	return []Route{
		{Path: "/api/v1/write", Name: "/api/v1/write", Role: Write, Tenant: true, Handler: h.Write},
		// The API counts the requests of its own routes, so this route has no Name.
		{Path: "/api/v1/", Role: Read, Tenant: true, Handler: h.API, Preflight: true},
		// These routes list the running queries and cancel a query.
		{Path: "/api/v1/status/active_queries", Role: Read, Tenant: true, Handler: h.API, Preflight: true},
		{Path: "/api/v1/status/active_queries/", Role: Read, Tenant: true, Handler: h.API,
			Preflight: true, Changes: true},
		{Path: "/api/v1/admin/", Role: Admin, Tenant: true, Handler: h.API, Preflight: true},
		// A snapshot contains the data of all tenants.
		{Path: "/api/v1/admin/tsdb/snapshot", Role: Admin, Handler: h.API, Preflight: true},
		// These routes expose the command line and facts about the machine.
		{Path: "/api/v1/status/flags", Role: Admin, Handler: h.API, Preflight: true},
		{Path: "/api/v1/status/config", Role: Admin, Handler: h.API, Preflight: true},
		{Path: "/api/v1/status/runtimeinfo", Role: Admin, Handler: h.API, Preflight: true},
		{Path: "/api/v1/status/self_metrics", Role: Watch, Handler: h.API, Preflight: true},

		{Path: "GET " + healthyPath, Name: healthyPath, Role: Open, Handler: http.HandlerFunc(h.serveHealthy)},
		{Path: "GET " + readyPath, Name: readyPath, Role: Open, Handler: http.HandlerFunc(h.serveReady)},
		{Path: "/-/seal", Name: "/-/seal", Role: Admin, Handler: http.HandlerFunc(h.serveSeal)},
		{Path: "/-/reload", Name: "/-/reload", Role: Admin, Handler: http.HandlerFunc(h.serveReload)},
		// The errors in the response may name series of any tenant.
		{Path: "GET /-/downsample", Name: "/-/downsample", Role: Admin, Handler: http.HandlerFunc(h.serveDownsample)},
		{Path: "GET " + metricsPath, Name: metricsPath, Role: Watch, Handler: metrics},

		{Path: "/debug/pprof/", Name: "/debug/pprof/", Role: Admin, Handler: http.HandlerFunc(pprof.Index)},
		{Path: "/debug/pprof/cmdline", Name: "/debug/pprof/", Role: Admin, Handler: http.HandlerFunc(commandLine)},
		{Path: "/debug/pprof/profile", Name: "/debug/pprof/", Role: Admin, Handler: http.HandlerFunc(pprof.Profile)},
		{Path: "/debug/pprof/symbol", Name: "/debug/pprof/", Role: Admin, Handler: http.HandlerFunc(pprof.Symbol)},
		{Path: "/debug/pprof/trace", Name: "/debug/pprof/", Role: Admin, Handler: http.HandlerFunc(pprof.Trace)},
	}
}

// mux returns a mux with all routes, each guarded by the authorizer.
func (h *handler) mux() *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range h.table() {
		guarded := h.authorizer.guardRoute(r)
		if r.Name != "" {
			guarded = h.HTTP.Instrument(r.Name, guarded.ServeHTTP)
		}
		mux.Handle(r.Path, guarded)
	}
	mux.Handle("/t/{tenant}/", stripTenant(mux))
	return mux
}
