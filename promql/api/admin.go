package api

import (
	"context"
	"net/http"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/tenant"
)

// DeleteFunc deletes a tenant's samples of matching series from start to end, both included, in milliseconds.
type DeleteFunc func(ctx context.Context, tenant string, start, end int64, matchers ...*labels.Matcher) error

// adminTSDB implements the interface that Prometheus' handlers of the admin API call.
type adminTSDB struct {
	noTSDB
	del      DeleteFunc
	snapshot func(dir string) error
}

// Snapshot writes a snapshot that always contains all samples. Prometheus' parameter to skip the head has no effect,
// because unsealed samples are also durable.
func (t adminTSDB) Snapshot(dir string, _ bool) error {
	if t.snapshot == nil {
		return errNoTSDB
	}
	return t.snapshot(dir)
}

func (t adminTSDB) Delete(ctx context.Context, start, end int64, matchers ...*labels.Matcher) error {
	if t.del == nil {
		return errNoTSDB
	}
	return storage.PlainError(t.del(ctx, tenant.FromContext(ctx), start, end, matchers...))
}

// adminRoutes adds the admin routes that Prometheus' handlers don't serve. If the admin API is disabled, these are all
// admin routes. Otherwise they are the routes that need the tenant or aren't supported.
func (a *api) adminRoutes(routes map[string]http.HandlerFunc) {
	var snapshot http.HandlerFunc // nil: Prometheus' own handler
	if a.Snapshot == nil {
		snapshot = a.unsupportedHandler(
			"snapshots aren't supported on Cassandra; take snapshots of the Cassandra keyspace",
		)
	}
	clean := a.unsupportedHandler("there are no tombstones to clean")
	if a.CleanTombstones != nil {
		clean = a.cleanTombstones
	}
	for path, h := range map[string]http.HandlerFunc{
		"/admin/tsdb/delete_series": nil, "/admin/tsdb/clean_tombstones": clean, snapshotRoute: snapshot,
	} {
		switch {
		case !a.AdminAPI:
			h = a.serveDisabled
		case h == nil:
			continue
		}
		routes[path] = h
	}
}

const snapshotRoute = "/admin/tsdb/snapshot"

// withClaim serves snapshot requests of commands that have reserved the name of the snapshot, which is the parameter
// claim (see Options.ClaimedSnapshot). It passes all other requests to next.
func (a *api) withClaim(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := r.FormValue("claim")
		if name == "" {
			next(w, r)
			return
		}
		if err := a.ClaimedSnapshot(r.Context(), name); err != nil {
			a.fail(w, r, http.StatusInternalServerError, "internal", "create snapshot: "+err.Error())
			return
		}
		a.respond(w, r, map[string]string{"name": name})
	}
}

func (a *api) serveDisabled(w http.ResponseWriter, r *http.Request) {
	a.fail(w, r, http.StatusForbidden, "unavailable", "admin APIs disabled; start Cassia with --web.enable-admin-api")
}

func (a *api) cleanTombstones(w http.ResponseWriter, r *http.Request) {
	if err := a.CleanTombstones(r.Context(), tenant.FromContext(r.Context())); err != nil {
		a.failWith(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
