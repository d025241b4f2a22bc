package jsonapi

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	promengine "github.com/prometheus/prometheus/promql"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/tenant"
)

var (
	// ErrOptions means that options can't be used.
	ErrOptions = errors.New("jsonapi: invalid options")
	// ErrForbidden means that whoever asks may not use the tenant: 403.
	ErrForbidden = errors.New("jsonapi: forbidden")
	// ErrUnprocessable means that a query needs more than it may: 422.
	ErrUnprocessable = errors.New("jsonapi: request too large")
	// ErrBusy means that as many queries are under way as may be: 503.
	ErrBusy = errors.New("jsonapi: busy")
)

// Evaluation is a query in PromQL.
type Evaluation struct {
	Tenant, Expr string
	// Start and End bound the steps, both included; where Step is 0, the query is an instant one at End.
	Start, End time.Time
	Step       time.Duration
}

// Found is what an evaluation found.
type Found struct {
	Series promengine.Matrix
	// Resolution is the one it was answered from, such as "1h"; Notes describe how it differs from an answer from all samples.
	Resolution string
	Notes      []string
}

// Evaluator answers PromQL. What it yields is valid until yield returns. Errors are those of the store, of contexts, and
// ErrUnprocessable; others are bugs.
type Evaluator interface {
	// Enter waits until the tenant of ctx may read once more, beside its queries, and returns a context for that read. Unless
	// there is an error, the caller calls leave once it is done.
	Enter(ctx context.Context) (of context.Context, leave func(), err error)
	// Answered notes that the read of a context that Enter returned has nothing to compute any more, and that its answer takes
	// so many bytes until it leaves.
	Answered(ctx context.Context, bytes int64)
	Evaluate(ctx context.Context, q Evaluation, yield func(Found) error) error
}

// Options configure an API.
type Options struct {
	// Tenant returns whose data a request is about, which names asked itself ("": nobody), or an error: one that wraps
	// ErrForbidden is 403, all others 400.
	Tenant func(ctx context.Context, asked string) (string, error)
	// MaxBody is the greatest body that is read, bytes; more is answered with 413. Default 16 MiB.
	MaxBody int64
	// MaxInFlight bounds the bodies of all requests under way, bytes; over it, 503. Default 128 MiB.
	MaxInFlight int64
	// Bodies bounds the bodies of all endpoints; nil: nothing does.
	Bodies *adapter.Budget
	// MaxAnswer is the greatest answer to a query, bytes; over it, 422. Default 32 MiB.
	MaxAnswer int
	// Limiter has the tenants' limits of requests' sizes; nil: there are none. All other limits are the store's and the
	// evaluator's to hold.
	Limiter *tenant.Limiter
	// Rules may change and drop series before they are stored. Points that they drop aren't reported.
	Rules adapter.Shape
	// RetryBusy is the Retry-After of a 503, RetryFull that of a 429. Defaults 1 s and 30 s.
	RetryBusy, RetryFull time.Duration
	// Registerer gets the API's metrics; nil: they are kept nowhere.
	Registerer prometheus.Registerer
	Logger     *slog.Logger
	// Now is the clock: a query without an end ends now.
	Now func() time.Time
}

// DefaultOptions returns the documented defaults. Tenant must be set.
func DefaultOptions() Options {
	return Options{
		MaxBody: 16 << 20, MaxInFlight: 128 << 20, MaxAnswer: 32 << 20, RetryBusy: time.Second, RetryFull: 30 * time.Second,
		Logger: slog.New(slog.DiscardHandler), Now: time.Now,
	}
}

// Validate returns an error if the options are invalid.
func (o *Options) Validate() error {
	switch {
	case o.Tenant == nil || o.Logger == nil || o.Now == nil:
		return fmt.Errorf("%w: tenant, logger and clock are required", ErrOptions)
	case o.MaxBody < 1 || o.MaxInFlight < 2*o.MaxBody || o.MaxAnswer < 1:
		return fmt.Errorf("%w: the maximum body size must be at least 1 byte, and the maximum bytes in flight at least twice the body size", ErrOptions)
	case o.RetryBusy < time.Second || o.RetryFull < time.Second:
		return fmt.Errorf("%w: Retry-After must be at least one second", ErrOptions)
	}
	return nil
}

// API has a handler for each of its paths.
type API struct {
	db        *storage.Store
	evaluator Evaluator
	opts      Options
	budget    *adapter.Budget
	points    *prometheus.CounterVec
}

// New returns the API over a store.
func New(store *storage.Store, evaluator Evaluator, opts Options) (*API, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	a := &API{db: store, evaluator: evaluator, opts: opts, budget: opts.Bodies.Part(opts.MaxInFlight)}
	a.points = promauto.With(opts.Registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "cassia_json_points_total",
		Help: "Points sent to the JSON API by result: stored (durable), dropped (by a rule of --write.relabel-file), or the reason for " +
			"their rejection.",
	}, []string{"result"})
	return a, nil
}

//go:embed openapi.yaml
var openAPI []byte

// OpenAPI returns a handler that answers with the description of the API. Clients find the API under a path, which is empty or has no
// slash at its end.
func OpenAPI(path string) http.HandlerFunc {
	described := openAPI
	if path != "" {
		at, _ := json.Marshal((&url.URL{Path: path}).EscapedPath()) // A string can always be marshaled.
		described = bytes.Replace(openAPI, []byte("- url: /\n"), slices.Concat([]byte("- url: "), at, []byte("\n")), 1)
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(described)
	}
}

// problem is the error of a request before anything is done, and the name of the field or parameter.
type problem struct {
	field, text string
}

func (p *problem) Error() string { return p.field + ": " + p.text }

// errorAnswer is the body of every answer that isn't 2xx.
type errorAnswer struct {
	Error string `json:"error"`
	// Written, Refused and Errors are those of writes.
	Written *int         `json:"written,omitempty"`
	Refused *int         `json:"refused,omitempty"`
	Errors  []pointError `json:"errors,omitempty"`
}

// methods reports whether the request's method is one of those that a path takes, and answers if it isn't.
func (a *API) methods(w http.ResponseWriter, r *http.Request, allow string) bool {
	if r.Method == allow || allow == http.MethodGet && r.Method == http.MethodHead {
		return true
	}
	w.Header().Set("Allow", allow)
	a.answer(w, http.StatusMethodNotAllowed, errorAnswer{Error: "use " + allow})
	return false
}

// status returns the code for an error.
func (a *API) status(err error) int {
	var wrong *problem
	switch {
	case errors.As(err, &wrong):
		return http.StatusBadRequest
	case errors.Is(err, ErrForbidden):
		return http.StatusForbidden
	case errors.Is(err, ErrUnprocessable):
		return http.StatusUnprocessableEntity
	}
	if errors.Is(err, ErrBusy) {
		return http.StatusServiceUnavailable
	}
	return adapter.Status(err)
}

// fail answers with an error.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error, body errorAnswer) {
	code := a.status(err)
	if code == http.StatusInternalServerError {
		a.opts.Logger.Error("JSON API request failed", "path", r.URL.Path, "err", err)
	}
	body.Error = storage.Plain(err.Error())
	a.retryAfter(w, code, err)
	a.answer(w, code, body)
}

// retryAfter sets the header of a 429 that an error is answered with.
func (a *API) retryAfter(w http.ResponseWriter, code int, err error) {
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", seconds(adapter.RetryAfter(err, a.opts.RetryFull)))
	}
}

// answer writes a body as JSON.
func (a *API) answer(w http.ResponseWriter, code int, body any) {
	switch code {
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", seconds(a.opts.RetryBusy))
	case http.StatusTooManyRequests:
		if w.Header().Get("Retry-After") == "" {
			w.Header().Set("Retry-After", seconds(a.opts.RetryFull))
		}
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		a.opts.Logger.Error("can't encode a response of the JSON API", "err", err)
		code, encoded = http.StatusInternalServerError, []byte(`{"error":"internal error; see Cassia's log"}`)
	}
	a.send(w, code, encoded)
}

func (a *API) send(w http.ResponseWriter, code int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n')) // who is gone needs no answer
}

// tenant returns the tenant of a request that itself names asked, in a field.
func (a *API) tenant(ctx context.Context, field, asked string) (string, error) {
	name, err := a.opts.Tenant(ctx, asked)
	switch {
	case err == nil:
		return name, nil
	case errors.Is(err, ErrForbidden):
		return "", fmt.Errorf("%s: %w", field, err)
	}
	return "", &problem{field, err.Error()}
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d.Round(time.Second) / time.Second)) }
