package api

import (
	"net/http"

	"github.com/prometheus/common/route"

	"github.com/cassia-db/cassia/promql"
	"github.com/cassia-db/cassia/storage/tenant"
)

// Queries are the queries that run or wait. Each method is about those that read of the given tenants only.
type Queries interface {
	ActiveQueries(tenants []string) []promql.ActiveQuery
	// CancelQuery is false if there is no such query.
	CancelQuery(id string, tenants []string) bool
}

// RequestIDHeader is what proxies name a request with.
const RequestIDHeader = "X-Request-ID"

// withOrigin tells queries where they come from.
func withOrigin(name string, h http.HandlerFunc) http.HandlerFunc {
	if !resolvers[name] {
		return h
	}
	return func(w http.ResponseWriter, r *http.Request) {
		origin := promql.Origin{Address: r.RemoteAddr, UserAgent: r.UserAgent(), RequestID: r.Header.Get(RequestIDHeader)}
		h(w, r.WithContext(origin.Into(r.Context())))
	}
}

// activeRoutes are those of the queries that run.
func (a *api) activeRoutes(router *route.Router) {
	const path = "/status/active_queries"
	router.Get(path, a.get(func(w http.ResponseWriter, r *http.Request) {
		a.respond(w, r, a.Queries.ActiveQueries(tenant.All(r.Context())))
	}))
	router.Del(path+"/:id", a.get(a.cancel))
	router.Post(path+"/:id/cancel", a.get(a.cancel))
}

// cancel ends a query; its own caller gets 499 with the type canceled.
func (a *api) cancel(w http.ResponseWriter, r *http.Request) {
	if !a.Queries.CancelQuery(route.Param(r.Context(), "id"), tenant.All(r.Context())) {
		a.fail(w, r, http.StatusNotFound, "not_found", "no query with this id runs")
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
