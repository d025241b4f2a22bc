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

// Queries lists and cancels running and waiting queries, and lists queries that ended. All methods apply only to
// queries that read no series of tenants other than the given ones.
type Queries interface {
	ActiveQueries(tenants []string) []promql.ActiveQuery
	// TopQueries returns queries that ended, sorted by one of promql.TopOrders.
	TopQueries(tenants []string, by string, limit int) promql.TopQueries
	// CancelQuery returns false if there is no such query.
	CancelQuery(id string, tenants []string) bool
}

// requestIDHeader is the header in which proxies send the id of a request.
const requestIDHeader = "X-Request-ID"

// withOrigin adds the origin of the request to its queries.
func withOrigin(name string, h http.HandlerFunc) http.HandlerFunc {
	if !queryRoutes[name] {
		return h
	}
	return func(w http.ResponseWriter, r *http.Request) {
		origin := promql.Origin{Address: r.RemoteAddr, UserAgent: r.UserAgent(),
			RequestID: r.Header.Get(requestIDHeader)}
		h(w, r.WithContext(origin.Into(r.Context())))
	}
}

// activeRoutes adds the routes for running, waiting and ended queries.
func (a *api) activeRoutes(router *route.Router) {
	const path = "/status/active_queries"
	router.Get(path, func(w http.ResponseWriter, r *http.Request) {
		a.respond(w, r, a.Queries.ActiveQueries(tenant.NamesFromContext(r.Context())))
	})
	router.Get("/status/top_queries", a.serveTopQueries)
	router.Del(path+"/:id", a.cancelQuery)
	router.Post(path+"/:id/cancel", a.cancelQuery)
}

// cancelQuery cancels a query. The client that sent the query gets 499 with the error type canceled.
func (a *api) cancelQuery(w http.ResponseWriter, r *http.Request) {
	if !a.Queries.CancelQuery(route.Param(r.Context(), "id"), tenant.NamesFromContext(r.Context())) {
		a.fail(w, r, http.StatusNotFound, "not_found", "no running query has this id")
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// Number of entries of a list of queries: by default, and at most.
const (
	defaultTop = 50
	maxTop     = 1000
)

// serveTopQueries returns the queries with the highest cost: ?by=time|slowest|samples|count&limit=…
func (a *api) serveTopQueries(w http.ResponseWriter, r *http.Request) {
	by, limit := cmp.Or(r.FormValue("by"), promql.TopOrders[0]), defaultTop
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
	a.respond(w, r, a.Queries.TopQueries(tenant.NamesFromContext(r.Context()), by, limit))
}
