package ui

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"github.com/cassia-db/cassia/cmd/internal/server"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/meter"
	"github.com/cassia-db/cassia/storage/tenant"
)

// api serves the endpoints that the web page needs in addition to Prometheus' API. Responses are
// {"status":"success","data":…}, or errors as in Prometheus' API. Times are in RFC 3339, and sizes are in bytes.
//
//	session   the user, the user's tenants, and the version of this server
//	tenants   limits of the tenants that the user may read, and their usage
//	series    composition of a tenant's series: ?window=…&metric=…&label=…&limit=…; without a window, unsealed series
//	metric    whether a metric exists, and its time range or similar names: ?name=…
//	churn     numbers of series in the tenant's newest windows, and how many were added and removed: ?windows=…
//	windows   the tenant's sealed windows by resolution: sizes, retention, expiry
//	work      state of sealing and of rollups; for admins with errors, which may name series of any tenant
//	evaluator the process that evaluates rules; only admins get its name
//	relabel   the rules for the tenant's incoming samples, and the numbers of dropped samples; POST: the effect of other
//	          rules and retentions on the tenant's stored samples (see trialRequest)
//	health    the engine, and the findings of cassia doctor; only for admins
//
// Requests that read a lot of data are handled one at a time.
type api struct {
	Options
	// counting is locked while series are counted, and surveying while windows are listed. A lock is held by sending to
	// its channel.
	counting, surveying chan struct{}
	examined            examinationResult
}

func newAPI(o Options) *api {
	return &api{Options: o, counting: make(chan struct{}, 1), surveying: make(chan struct{}, 1)}
}

// answer returns the result of an endpoint, which is sent as JSON.
type answer func(*http.Request) (any, error)

// acquireLock waits until it has acquired a lock, whose channel is place. It returns an error if the client
// disconnects. The caller must call leave to release the lock.
func acquireLock(ctx context.Context, place chan struct{}) (leave func(), err error) {
	select {
	case place <- struct{}{}:
		return func() { <-place }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// waitToCount waits until the store is ready and no other request counts series. Requests count one at a time because
// counting reads a lot of data. The caller must call leave when it has finished.
func (a *api) waitToCount(ctx context.Context) (leave func(), err error) {
	if err := a.Ready(); err != nil {
		return nil, err
	}
	return acquireLock(ctx, a.counting)
}

// respond writes the result of answer in the format of Prometheus' API, with warnings about data that couldn't be read.
func respond(answer answer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var warnings []string
		data, err := answer(r.WithContext(damage.WithWarnings(r.Context(), func(err error) {
			if text := storage.PlainText(err.Error()); len(warnings) < maxWarnings && !slices.Contains(warnings, text) {
				warnings = append(warnings, text)
			}
		})))
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		if err == nil {
			body := map[string]any{"status": "success", "data": data}
			if len(warnings) > 0 {
				body["warnings"] = warnings
			}
			_ = json.NewEncoder(w).Encode(body)
			return
		}
		code, kind := http.StatusInternalServerError, "internal"
		var bad badRequest
		switch {
		case errors.As(err, &bad):
			code, kind = http.StatusBadRequest, "bad_data"
		case errors.Is(err, storage.ErrNotReady), errors.Is(err, engine.ErrUnavailable), r.Context().Err() != nil:
			code, kind = http.StatusServiceUnavailable, "unavailable"
		case errors.Is(err, meter.ErrQueryTooLarge):
			code, kind = http.StatusUnprocessableEntity, "execution"
		}
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(map[string]string{"status": "error", "errorType": kind,
			"error": storage.PlainText(err.Error())})
	})
}

// maxWarnings is the max number of warnings in a response.
const maxWarnings = 10

// badRequest is an error caused by the client.
type badRequest string

func (b badRequest) Error() string { return string(b) }

func (a *api) serveEvaluator(r *http.Request) (any, error) {
	e, err := a.Evaluator(r.Context())
	if u := server.UserOf(r.Context()); u != nil && !u.IsAdmin() {
		e.Name = ""
	}
	return e, err
}

// session is the response of the endpoint with the same name.
type session struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Target   string `json:"target"`
	Engine   string `json:"engine"`
	// User is the name of the user. It is empty if there is no authentication and all clients have all roles.
	User string `json:"user"`
	Auth bool   `json:"auth"`
	// Metrics and Admin are the user's roles.
	Metrics bool `json:"metrics"`
	Admin   bool `json:"admin"`
	// Tenants contains the tenants that the page offers. AnyTenant is set if the user may also enter other names.
	Tenants   []string `json:"tenants"`
	AnyTenant bool     `json:"any_tenant"`
	// DefaultTenant is the tenant of requests that don't name one. If it is empty, each request must name a tenant.
	DefaultTenant string `json:"default_tenant"`
	SelfTenant    string `json:"self_tenant"`
	// NotReady is the reason why queries can't be served yet, or empty if they can.
	NotReady    string   `json:"not_ready"`
	Resolutions []string `json:"resolutions"`
}

func (a *api) serveSession(r *http.Request) (any, error) {
	s := session{
		Version: a.Version, Revision: a.Revision, Target: a.Target, Engine: a.Engine, Auth: a.Auth,
		SelfTenant: a.SelfTenant,
		Metrics:    true, Admin: true, AnyTenant: true, DefaultTenant: tenant.Default,
		Resolutions: []string{"raw", "5m", "1h"},
	}
	if err := a.Ready(); err != nil {
		s.NotReady = storage.PlainText(err.Error())
	}
	if u := server.UserOf(r.Context()); u != nil {
		s.User, s.Metrics, s.Admin, s.DefaultTenant = u.Name(), u.CanReadMetrics(), u.IsAdmin(), u.Tenant()
		s.Tenants, s.AnyTenant = u.Tenants()
	}
	if s.AnyTenant {
		known, err := a.Store.KnownTenants(r.Context())
		if err != nil && s.NotReady == "" {
			return nil, err
		}
		s.Tenants = append(s.Tenants, known...)
		if s.DefaultTenant != "" {
			s.Tenants = append(s.Tenants, s.DefaultTenant)
		}
	}
	slices.Sort(s.Tenants)
	s.Tenants = append([]string{}, slices.Compact(s.Tenants)...)
	return s, nil
}
