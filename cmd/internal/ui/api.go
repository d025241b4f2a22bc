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

// api answers what the page asks beside Prometheus' API. All answers are {"status":"success","data":…}, or errors as
// Prometheus' API has them; times are RFC 3339, sizes bytes.
//
//	session  who asks, which tenants they may use, and what this server is
//	tenants  limits of the tenants that the user may read, and what they use
//	series   of what a tenant's series are made: ?window=…&metric=…&label=…&limit=…; without a window, those not sealed
//	metric   whether a metric exists, when it was seen, or which names are similar: ?name=…
//	churn    how many series its newest windows have, and how many came and went: ?windows=…
//	windows  what it has sealed, by resolution and window: sizes, retention, what goes when
//	work     how sealing and rolling up stand; to an admin, with errors, which may name series of any tenant
//	evaluator which process evaluates rules; its name is told to admins only
//	relabel  which rules apply to what the tenant sends, and what they dropped; POST: what other rules, and retentions, would do to
//	         what it has stored (see trialRequest)
//	health   the engine, and what cassia doctor finds; for admins
//
// What reads much is done for one request at a time; the others wait.
type api struct {
	Options
	// counting and surveying are held while series are counted, and windows listed.
	counting, surveying chan struct{}
	examined            examined
}

func newAPI(o Options) *api {
	return &api{Options: o, counting: make(chan struct{}, 1), surveying: make(chan struct{}, 1)}
}

// answer is what an endpoint returns, which becomes JSON.
type answer func(*http.Request) (any, error)

// enter takes a place until leave is called, or fails when who asks has gone.
func enter(ctx context.Context, place chan struct{}) (leave func(), err error) {
	select {
	case place <- struct{}{}:
		return func() { <-place }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// count waits until the store is ready and nobody else counts series, for that reads much. leave is called when it is over.
func (a *api) count(ctx context.Context) (leave func(), err error) {
	if err := a.Ready(); err != nil {
		return nil, err
	}
	return enter(ctx, a.counting)
}

// respond writes what answer returns as Prometheus' API does, with warnings of what couldn't be read for it.
func respond(answer answer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var warnings []string
		data, err := answer(r.WithContext(damage.WithWarnings(r.Context(), func(err error) {
			if text := storage.Plain(err.Error()); len(warnings) < maxWarnings && !slices.Contains(warnings, text) {
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
		_ = json.NewEncoder(w).Encode(map[string]string{"status": "error", "errorType": kind, "error": storage.Plain(err.Error())})
	})
}

// maxWarnings bounds the warnings of an answer.
const maxWarnings = 10

// badRequest is an error of who asks.
type badRequest string

// Error implements error.
func (b badRequest) Error() string { return string(b) }

func (a *api) evaluator(r *http.Request) (any, error) {
	e, err := a.Evaluator(r.Context())
	if u := server.UserOf(r.Context()); u != nil && !u.Admin() {
		e.Name = ""
	}
	return e, err
}

// session is the answer of the endpoint of that name.
type session struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Target   string `json:"target"`
	Engine   string `json:"engine"`
	// User is who asks; "": nobody is asked who it is, and everybody may do everything.
	User string `json:"user"`
	Auth bool   `json:"auth"`
	// Metrics and Admin are the roles they have.
	Metrics bool `json:"metrics"`
	Admin   bool `json:"admin"`
	// Tenants are those that can be chosen from. AnyTenant: others can be named.
	Tenants   []string `json:"tenants"`
	AnyTenant bool     `json:"any_tenant"`
	// DefaultTenant is that of requests that name none; "": they must name one.
	DefaultTenant string `json:"default_tenant"`
	SelfTenant    string `json:"self_tenant"`
	// NotReady is why queries can't be answered yet; "": they can.
	NotReady    string   `json:"not_ready"`
	Resolutions []string `json:"resolutions"`
}

func (a *api) session(r *http.Request) (any, error) {
	s := session{
		Version: a.Version, Revision: a.Revision, Target: a.Target, Engine: a.Engine, Auth: a.Auth, SelfTenant: a.SelfTenant,
		Metrics: true, Admin: true, AnyTenant: true, DefaultTenant: tenant.Default, Resolutions: []string{"raw", "5m", "1h"},
	}
	if err := a.Ready(); err != nil {
		s.NotReady = storage.Plain(err.Error())
	}
	if u := server.UserOf(r.Context()); u != nil {
		s.User, s.Metrics, s.Admin, s.DefaultTenant = u.Name(), u.Metrics(), u.Admin(), u.Tenant()
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
