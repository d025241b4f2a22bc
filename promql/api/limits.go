package api

import (
	"net/http"
	"strconv"
	"time"

	"github.com/cassia-db/cassia/storage/tenant"
)

// limits tells the tenants of a request what they may use, and what they do.
func (a *api) limits(w http.ResponseWriter, r *http.Request) {
	a.respond(w, r, a.Limits(tenant.All(r.Context())))
}

// enter makes a read wait for its turn among its tenants' queries. Those of the evaluator wait there.
func (a *api) enter(name string, h http.HandlerFunc) http.HandlerFunc {
	if a.Enter == nil || name == "/query" || name == "/query_range" {
		return h
	}
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, leave, err := a.Enter(r.Context())
		if err != nil {
			a.fail(w, r, refusal(w, err), "execution", err.Error())
			return
		}
		defer leave()
		h(w, r.WithContext(ctx))
	}
}

// refusal is the code for one who could not enter, who is told when to try again.
func refusal(w http.ResponseWriter, err error) int {
	code, known := statusOf(0, err)
	if !known { // The client is gone, or its time is over.
		code = http.StatusServiceUnavailable
	}
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", strconv.Itoa(int(retryQuery/time.Second)))
	}
	return code
}

// retryQuery is when a read may be tried again that a tenant's full queue refused.
const retryQuery = time.Second
