package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/storage"
)

// Options contains the handlers and settings of NewHandler. Fields that aren't marked as optional must be set.
type Options struct {
	// API serves all paths below /api/v1/ that have no other route.
	API http.Handler
	// Write serves /api/v1/write.
	Write http.Handler
	// Routes are additional routes; optional.
	Routes []Route
	// NotFound serves paths without a route; optional.
	NotFound http.HandlerFunc
	// Auth identifies users. If it is nil, every client has all roles and may name any tenant.
	Auth Authenticator
	// ExternalURL is a URL by which browsers reach this server in addition to its address. Hosts contains further host
	// names of the server; *.example.org stands for all names below example.org. Both are optional.
	ExternalURL *url.URL
	Hosts       []string
	// MaxBodies is the max total size of the bodies of all requests in progress, in bytes, without requests that send
	// samples or history; 0: 256 MiB.
	MaxBodies int64
	// RoutePrefix is the prefix of all paths: empty, or a path without a trailing slash.
	RoutePrefix string
	// AuthRequired reports whether every request must be authenticated, by Auth or by TLS. nil: only if Auth is set.
	AuthRequired func() bool
	// Federation allows read requests to name multiple tenants, such as a|b.
	Federation bool
	// Ready returns nil when the process can serve queries.
	Ready func() error
	// AdminAPI allows POST /-/seal, which calls SealAll.
	AdminAPI bool
	SealAll  func(context.Context) error
	// Reload reloads all files for POST /-/reload. If it is nil, the request is rejected.
	Reload func() error
	// Downsampling returns the state of sealing and of rollups. GET /-/downsample returns it as JSON.
	Downsampling func(context.Context) any

	Gatherer prometheus.Gatherer
	HTTP     *Metrics
	Logger   *slog.Logger
}

// NewHandler returns the handler for all requests of the process.
func NewHandler(o Options) http.Handler {
	requests := newRequests(maxRequests, maxClientRequests)
	required := func() bool { return o.Auth != nil || o.AuthRequired != nil && o.AuthRequired() }
	h := &handler{Options: o, authorizer: authorizer{
		auth: o.Auth, allowsFederation: o.Federation, origins: newOrigins(o.ExternalURL, o.Hosts, required),
		bodies:   bodyLimits{each: maxBody, budget: adapter.NewBudget(cmp.Or(o.MaxBodies, maxBodies))},
		requests: requests, watchers: newRequests(maxWatchers, maxWatchers/2),
	}}
	return recoverPanics(o.HTTP, o.Logger, decodePath(underPrefix(o.RoutePrefix, h.notFoundHandler(h.mux()))))
}

type handler struct {
	Options
	authorizer authorizer
}

func (h *handler) serveHealthy(w http.ResponseWriter, _ *http.Request) {
	writeText(w, http.StatusOK, "Cassia is healthy.")
}

func (h *handler) serveReady(w http.ResponseWriter, _ *http.Request) {
	if err := h.Ready(); err != nil {
		writeText(w, http.StatusServiceUnavailable, "Cassia is not ready: "+err.Error())
		return
	}
	writeText(w, http.StatusOK, "Cassia is ready.")
}

// serveSeal serves POST /-/seal. It responds once all staged samples are sealed.
func (h *handler) serveSeal(w http.ResponseWriter, r *http.Request) {
	switch {
	case !h.AdminAPI:
		writeText(w, http.StatusForbidden, "the admin API is disabled; start Cassia with --web.enable-admin-api")
		return
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		writeText(w, http.StatusMethodNotAllowed, "use POST")
		return
	}
	if err := h.Ready(); err != nil {
		writeText(w, http.StatusServiceUnavailable, "Cassia is not ready: "+err.Error())
		return
	}
	if err := h.SealAll(r.Context()); err != nil {
		if !errors.Is(err, context.Canceled) {
			h.Logger.Error("sealing on request failed", "err", err)
		}
		writeText(w, adapter.HTTPStatus(err), "sealing failed: "+err.Error())
		return
	}
	writeText(w, http.StatusOK, "sealed")
}

// serveDownsample serves the state of sealing and of rollups. Its errors may name series of any tenant.
func (h *handler) serveDownsample(w http.ResponseWriter, r *http.Request) {
	body, err := json.MarshalIndent(h.Downsampling(r.Context()), "", "  ")
	if err != nil {
		h.Logger.Error("can't write the downsampling status", "err", err)
		writeText(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(append(body, '\n'))
}

// retryUnready is the Retry-After header, in seconds, of requests that are rejected because the process isn't ready.
const retryUnready = "5"

// UnreadyHandler returns a handler that rejects all requests with the reason why the process isn't ready.
func UnreadyHandler(reason func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", retryUnready)
		rejectAPI(w, http.StatusServiceUnavailable, "unavailable", "Cassia is not ready: "+reason().Error())
	})
}

// ElsewhereHandler returns a handler that rejects requests that this process doesn't serve because of its role. target
// is the value of --target.
func ElsewhereHandler(what, target string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeText(w, http.StatusNotFound,
			"this process doesn't accept "+what+" (--target="+target+"); send them to another process")
	})
}

func writeText(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(storage.PlainText(message) + "\n"))
}
