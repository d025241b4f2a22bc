package ui

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/cassia-db/cassia/cmd/internal/doctor"
	"github.com/cassia-db/cassia/cmd/internal/server"
	"github.com/cassia-db/cassia/downsample"
	"github.com/cassia-db/cassia/storage/counts"
	"github.com/cassia-db/cassia/storage/inspect"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/retention"
)

// Options contains the data sources of the page's endpoints. Fields that aren't marked as optional must be set.
type Options struct {
	// Version, Revision, Target and Engine describe this process.
	Version, Revision, Target, Engine string
	// Auth is set if requests must be authenticated.
	Auth bool
	// SelfTenant is the tenant that contains Cassia's own metrics, or empty if they aren't stored.
	SelfTenant string
	// Ready returns nil when queries can be served.
	Ready func() error
	Store Store
	// RollupOf returns the metric of which name is a rollup, or "" if name isn't a rollup.
	RollupOf func(name string) string
	// Relabeling provides the rules for incoming samples.
	Relabeling Relabeling
	// Work returns the state of sealing and of rollups. It may name series of any tenant.
	Work func(context.Context) downsample.Status
	// Evaluator returns the process that evaluates rules.
	Evaluator func(context.Context) (Evaluator, error)
	// Limits returns the limits of tenants and their usage.
	Limits func(tenants []string) any
	// Memory returns the memory usage and the memory limit of the process in bytes.
	Memory func() (used, most int64)
	// Examine examines the store as cassia doctor does. Disk reads the disk usage of the data directory; it is
	// optional. Both may take seconds.
	Examine func(context.Context) []doctor.Finding
	Disk    func() (doctor.DirectoryFacts, error)
}

// Store contains the functions of storage.Store and of package inspect that the page uses.
type Store interface {
	KnownTenants(context.Context) ([]string, error)
	CountSeries(context.Context, counts.SeriesQuery) (counts.SeriesCounts, error)
	LabelValues(ctx context.Context, name string, q query.Query) ([]string, error)
	NewestUnsealed(ctx context.Context, tenant, metric string) (time.Time, error)
	MetricsSeen(ctx context.Context, tenant string, metrics []string) (map[string]query.SeenRange, error)
	Churn(ctx context.Context, tenant string, windows int) (list []counts.WindowSeries, cut bool, err error)
	Survey(ctx context.Context, tenant string) (list []inspect.SurveyedWindow, cut bool, err error)
	Space(context.Context) (map[string]int64, error)
	RetentionOf(tenant string) (usual, longest retention.Durations)
	ActiveSeries(tenant string) int
}

// Evaluator describes which of the processes that share a store evaluates rules.
type Evaluator struct {
	// Name is the name of the process that evaluates rules. It is empty if no process does.
	Name string `json:"name"`
	// Here is set if this process evaluates the rules. Rules is set if this process has rule files. Shared is set if
	// other processes may use the store and evaluate rules.
	Here   bool `json:"here"`
	Rules  bool `json:"rules"`
	Shared bool `json:"shared"`
	// Since is the time at which the process started to evaluate rules.
	Since time.Time `json:"since,omitzero"`
}

// Prefix is the start of the paths of all endpoints.
const Prefix = "/api/v1/cassia/"

// NewRoutes returns the routes of the page.
func NewRoutes(o Options) []server.Route {
	a := newAPI(o)
	row := func(name string, role server.Role, tenant bool, answer answer) server.Route {
		return server.Route{Path: "GET " + Prefix + name, Name: Prefix + name, Role: role, Tenant: tenant,
			Handler: respond(answer)}
	}
	return slices.Concat(linkRoutes(), manualRoutes(), []server.Route{
		{Path: "GET /{$}", Name: "/", Role: server.Open, Tenant: true, Handler: http.HandlerFunc(servePage)},
		{Path: "GET /favicon.ico", Name: "/assets/", Role: server.Open, Handler: http.HandlerFunc(serveIcon)},
		{Path: "GET /assets/{name}", Name: "/assets/", Role: server.Open, Handler: http.HandlerFunc(serveAsset)},
		row("session", server.Read, false, a.serveSession),
		row("tenants", server.Read, false, a.tenants),
		row("series", server.Read, true, a.series),
		row("metric", server.Read, true, a.serveMetric),
		row("churn", server.Read, true, a.serveChurn),
		row("windows", server.Read, true, a.serveWindows),
		row("work", server.Read, true, a.serveWork),
		row("health", server.Admin, false, a.serveHealth),
		row("evaluator", server.Read, false, a.serveEvaluator),
		row("relabel", server.Read, true, a.serveRelabel),
		{Path: "POST " + Prefix + "relabel", Name: Prefix + "relabel", Role: server.Read, Tenant: true,
			Handler: respond(a.relabelTry)},
	})
}
