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
	// errOptions means that options are invalid.
	errOptions = errors.New("jsonapi: invalid options")
	// ErrForbidden means that the user isn't authorized for the tenant: 403.
	ErrForbidden = errors.New("jsonapi: forbidden")
	// ErrUnprocessable means that a query exceeds a limit: 422.
	ErrUnprocessable = errors.New("jsonapi: request too large")
	// ErrBusy means that the max number of queries is running: 503.
	ErrBusy = errors.New("jsonapi: busy")
)

// Evaluation is a PromQL query and its times.
type Evaluation struct {
	Tenant, Expr string
	// Start and End bound the steps, both inclusive. If Step is 0, the query is an instant query at End.
	Start, End time.Time
	Step       time.Duration
}

// Result is the result of an evaluation.
type Result struct {
	Series promengine.Matrix
	// Resolution is the resolution that was read, such as "1h". Notes describe how the result differs from one computed
	// from all samples.
	Resolution string
	Notes      []string
}

// Evaluator evaluates PromQL. Evaluate passes its result to yield; the result is valid only until yield returns. Errors
// are store errors, context errors or ErrUnprocessable. Any other error is a bug.
type Evaluator interface {
	// Enter waits until the tenant of ctx may start one more read that isn't a query, and returns a context for the
	// read. If err is nil, the caller must call leave when the read is done.
	Enter(ctx context.Context) (of context.Context, leave func(), err error)
	// Answered records that the read whose context Enter returned has finished computing, and that its response
	// occupies the given number of bytes until leave is called.
	Answered(ctx context.Context, bytes int64)
	Evaluate(ctx context.Context, q Evaluation, yield func(Result) error) error
}

// Options configure the API.
type Options struct {
	// Tenant returns the tenant for which a request is handled. asked is the tenant named in the request, "" if it
	// names none. An error that wraps ErrForbidden means 403, any other error 400.
	Tenant func(ctx context.Context, asked string) (string, error)
	// MaxBody is the max size of a body in bytes; larger bodies are rejected with 413. Default 16 MiB.
	MaxBody int64
	// MaxInFlight bounds the bodies of all concurrent requests in bytes; above it, requests are rejected with 503.
	// Default 128 MiB.
	MaxInFlight int64
	// Bodies bounds the bodies of all endpoints together. nil means that they are unbounded.
	Bodies *adapter.Budget
	// MaxAnswer is the max size of the response to a query in bytes; above it, queries fail with 422. Default 32 MiB.
	MaxAnswer int
	// Limiter holds the tenants' limits on request sizes. nil means no limits. The store and the evaluator enforce all
	// other limits.
	Limiter *tenant.Limiter
	// Rules may change and drop series before they are stored. Dropped points aren't reported to the sender.
	Rules adapter.Shape
	// RetryBusy is the Retry-After of a 503, default 1 s; RetryFull the Retry-After of a 429, default 30 s.
	RetryBusy, RetryFull time.Duration
	// Registerer registers the API's metrics. If it is nil, they aren't registered.
	Registerer prometheus.Registerer
	Logger     *slog.Logger
	// Now is the clock: a query without an end ends now.
	Now func() time.Time
}

// DefaultOptions returns the documented defaults. Tenant must be set.
func DefaultOptions() Options {
	return Options{
		MaxBody: 16 << 20, MaxInFlight: 128 << 20, MaxAnswer: 32 << 20, RetryBusy: time.Second,
		RetryFull: 30 * time.Second, Logger: slog.New(slog.DiscardHandler), Now: time.Now,
	}
}

// Validate returns an error if the options are invalid.
func (o *Options) Validate() error {
	switch {
	case o.Tenant == nil || o.Logger == nil || o.Now == nil:
		return fmt.Errorf("%w: tenant, logger and clock are required", errOptions)
	case o.MaxBody < 1 || o.MaxInFlight < 2*o.MaxBody || o.MaxAnswer < 1:
		return fmt.Errorf(
			"%w: the maximum body size must be at least 1 byte, and the maximum bytes in flight at least twice the "+
				"body size",
			errOptions,
		)
	case o.RetryBusy < time.Second || o.RetryFull < time.Second:
		return fmt.Errorf("%w: Retry-After must be at least one second", errOptions)
	}
	return nil
}

// API has one handler per path.
type API struct {
	db        *storage.Store
	evaluator Evaluator
	opts      Options
	budget    *adapter.Budget
	points    *prometheus.CounterVec
}

// New returns an API with the given store.
func New(store *storage.Store, evaluator Evaluator, opts Options) (*API, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	a := &API{db: store, evaluator: evaluator, opts: opts, budget: opts.Bodies.SubBudget(opts.MaxInFlight)}
	a.points = promauto.With(opts.Registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "cassia_json_points_total",
		Help: "Points sent to the JSON API by result: stored (durable), dropped (by a rule of --write.relabel-file), " +
			"or the reason for their rejection.",
	}, []string{"result"})
	return a, nil
}

//go:embed openapi.yaml
var openAPI []byte

// OpenAPI returns a handler that serves the description of the API. path is the prefix of the API's paths: empty, or
// without a slash at its end.
func OpenAPI(path string) http.HandlerFunc {
	described := openAPI
	if path != "" {
		at, _ := json.Marshal((&url.URL{Path: path}).EscapedPath()) // a string can always be marshaled
		described = bytes.Replace(openAPI, []byte("- url: /\n"), slices.Concat([]byte("- url: "), at, []byte("\n")), 1)
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(described)
	}
}

// problem is a validation error of a request or of one point, with the name of the field or parameter. The request or
// the point wasn't written.
type problem struct {
	field, text string
}

func (p *problem) Error() string { return p.field + ": " + p.text }

// errorAnswer is the body of every response that isn't 2xx.
type errorAnswer struct {
	Error string `json:"error"`
	// Written, Refused and Errors are set by writes.
	Written *int         `json:"written,omitempty"`
	Refused *int         `json:"refused,omitempty"`
	Errors  []pointError `json:"errors,omitempty"`
}

// allowsMethod reports whether the request's method is allowed, and responds if it isn't.
func (a *API) allowsMethod(w http.ResponseWriter, r *http.Request, allow string) bool {
	if r.Method == allow || allow == http.MethodGet && r.Method == http.MethodHead {
		return true
	}
	w.Header().Set("Allow", allow)
	a.answer(w, http.StatusMethodNotAllowed, errorAnswer{Error: "use " + allow})
	return false
}

// status returns the HTTP status for an error.
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
	return adapter.HTTPStatus(err)
}

// fail responds with an error, and logs it if its status is 500.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error, body errorAnswer) {
	code := a.status(err)
	if code == http.StatusInternalServerError {
		a.opts.Logger.Error("JSON API request failed", "path", r.URL.Path, "err", err)
	}
	body.Error = storage.PlainText(err.Error())
	a.setRetryAfter(w, code, err)
	a.answer(w, code, body)
}

func (a *API) setRetryAfter(w http.ResponseWriter, code int, err error) {
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", formatSeconds(adapter.RetryAfter(err, a.opts.RetryFull)))
	}
}

func (a *API) answer(w http.ResponseWriter, code int, body any) {
	switch code {
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", formatSeconds(a.opts.RetryBusy))
	case http.StatusTooManyRequests:
		if w.Header().Get("Retry-After") == "" {
			w.Header().Set("Retry-After", formatSeconds(a.opts.RetryFull))
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
	_, _ = w.Write(append(body, '\n')) // the client may have disconnected
}

// tenant returns the tenant for which a request is handled. asked is the tenant that the request names in the given
// field.
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

func formatSeconds(d time.Duration) string {
	return strconv.Itoa(int(d.Round(time.Second) / time.Second))
}
