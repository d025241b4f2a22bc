package api

import (
	"net/http"

	"github.com/cassia-db/cassia/storage/tenant"
)

// limits tells the tenants of a request what they may use, and what they do.
func (a *api) limits(w http.ResponseWriter, r *http.Request) {
	a.respond(w, r, a.Limits(tenant.All(r.Context())))
}
