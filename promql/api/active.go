package api

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/route"

	"github.com/cassia-db/cassia/promql"
	"github.com/cassia-db/cassia/storage/tenant"
)

// Queries are the queries that run or wait, and those that ended. Each method is about those that read of the given tenants only.
type Queries interface {
	ActiveQueries(tenants []string) []promql.ActiveQuery
	// TopQueries are those that ended, in one of promql.TopOrders.
	TopQueries(tenants []string, by string, limit int) promql.TopQueries
	// CancelQuery is false if there is no such query.
	CancelQuery(id string, tenants []string) bool
}

// RequestIDHeader is what proxies name a request with.
const RequestIDHeader = "X-Request-ID"

// withOrigin adds to queries where they come from.
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
	router.Get(path, func(w http.ResponseWriter, r *http.Request) {
		a.respond(w, r, a.Queries.ActiveQueries(tenant.All(r.Context())))
	})
	router.Get("/status/top_queries", a.topQueries)
	router.Del(path+"/:id", a.cancel)
	router.Post(path+"/:id/cancel", a.cancel)
}

// cancel ends a query; its own caller gets 499 with the type canceled.
func (a *api) cancel(w http.ResponseWriter, r *http.Request) {
	if !a.Queries.CancelQuery(route.Param(r.Context(), "id"), tenant.All(r.Context())) {
		a.fail(w, r, http.StatusNotFound, "not_found", "no running query has this id")
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// Bounds of the queries that are listed.
const (
	usualTop = 50
	maxTop   = 1000
)

// topQueries answers with the queries that took most: ?by=time|slowest|samples|count&limit=…
func (a *api) topQueries(w http.ResponseWriter, r *http.Request) {
	by, limit := cmp.Or(r.FormValue("by"), promql.TopOrders[0]), usualTop
	if !slices.Contains(promql.TopOrders, by) {
		a.fail(w, r, http.StatusBadRequest, "bad_data", "by must be one of "+strings.Join(promql.TopOrders, ", "))
		return
	}
	if text := r.FormValue("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxTop {
			a.fail(w, r, http.StatusBadRequest, "bad_data", fmt.Sprintf("limit must be a number from 1 to %d", maxTop))
			return
		}
	}
	a.respond(w, r, a.Queries.TopQueries(tenant.All(r.Context()), by, limit))
}
