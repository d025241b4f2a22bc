package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/grafana/regexp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/route"
	"github.com/prometheus/prometheus/config"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/util/features"
	"github.com/prometheus/prometheus/util/notifications"
	promapi "github.com/prometheus/prometheus/web/api/v1"

	"github.com/cassia-db/cassia/promql"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/meter"
	"github.com/cassia-db/cassia/storage/panics"
	"github.com/cassia-db/cassia/storage/tenant"
)

// Prefix is the path under which New's handler must be mounted.
const Prefix = "/api/v1"

// These constants bound remote read, as in Prometheus.
const (
	// maxReadSamples is the maximum number of samples of an answer that isn't streamed.
	maxReadSamples = 50_000_000
	// maxFrameBytes is the maximum size of a frame of a streamed answer, in bytes.
	maxFrameBytes = 1 << 20
)

// Options are the data sources of the API and its settings. Fields that aren't marked as optional must be set.
type Options struct {
	Engine    promengine.QueryEngine
	Queryable promstorage.SampleAndChunkQueryable
	// Parser must have the options with which Engine parses queries.
	Parser parser.Options
	// Enter waits until the tenants of a context may run one more read outside Engine, see promql.Engine.Enter. nil:
	// reads don't wait.
	Enter func(ctx context.Context) (of context.Context, leave func(), err error)
	// MaxFederated is the maximum memory of one answer of federation, in bytes. 0: no limit.
	MaxFederated int64
	// Ready returns nil once queries can be answered.
	Ready func() error

	// RefuseRollups makes remote read reject requests for which samples would have to be made from rollups.
	RefuseRollups bool
	// Exemplars finds exemplars; nil: no exemplars.
	Exemplars promstorage.ExemplarQueryable
	// Queries are the queries of Engine; nil: queries can't be listed or canceled.
	Queries Queries
	// Rules lists the rules that are evaluated. Alertmanagers lists the Alertmanagers that alerts are sent to. nil:
	// there are none.
	Rules         func(ctx context.Context) promapi.RulesRetriever
	Alertmanagers promapi.AlertmanagerRetriever
	// Metadata returns the metadata of metrics; nil: there is none.
	Metadata MetadataFunc
	// Cardinality counts series for status/tsdb.
	Cardinality Cardinality

	// Limits returns the limits of tenants and their use, which is encoded as JSON, for status/limits; nil: the route
	// doesn't exist.
	Limits func(tenants []string) any

	// Version, Started, Now, Retention and Flags are shown on the status pages.
	Version   Version
	Started   time.Time
	Now       func() time.Time
	Retention string
	Flags     map[string]string
	// Reloads reports whether the last reload of all configuration files was successful, and returns the time of the
	// last successful reload. nil: there are no reloads.
	Reloads func() (ok bool, last time.Time)
	// Lifecycle is true if configuration files can be reloaded over HTTP.
	Lifecycle bool
	// ListenAddress and ExternalURL are the addresses of this process.
	ListenAddress string
	ExternalURL   *url.URL
	// CORSOrigin matches the origins whose pages may read answers. nil: all origins, as in Prometheus. Pages can never
	// read answers to requests to which the browser has added a password.
	CORSOrigin *regexp.Regexp
	// AdminAPI enables the admin API, whose functions are the fields below.
	AdminAPI bool
	// Delete deletes samples. CleanTombstones frees the space of a tenant's deleted samples. nil: not supported.
	Delete          DeleteFunc
	CleanTombstones func(ctx context.Context, tenant string) error
	// Snapshot writes a copy of all data to dir, which exists and is empty. The API creates these directories in the
	// subdirectory snapshots of DataDir. nil: not supported.
	Snapshot func(dir string) error
	DataDir  string
	// ClaimedSnapshot makes a snapshot in the same subdirectory as Snapshot. It is for a command that has chosen and
	// reserved the name, and that removes the snapshot. If the command has already ended, no snapshot is left behind.
	ClaimedSnapshot func(ctx context.Context, name string) error

	// Instrument wraps the handler of each route, given the route's name. nil: handlers aren't wrapped.
	Instrument func(route string, h http.HandlerFunc) http.HandlerFunc
	// Features is the content of /features.
	Features features.Collector
	// Gatherer returns this process' metrics. Registerer registers the metrics of the API.
	Gatherer   prometheus.Gatherer
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// New returns the handler of all routes under Prefix except the routes for writes, which the server handles.
func New(o Options) http.Handler {
	if o.Instrument == nil {
		o.Instrument = func(_ string, h http.HandlerFunc) http.HandlerFunc { return h }
	}
	if o.Exemplars == nil {
		o.Exemplars = noExemplars{}
	}
	if o.Rules == nil {
		o.Rules = func(context.Context) promapi.RulesRetriever { return emptyRetriever{} }
	}
	if o.Alertmanagers == nil {
		o.Alertmanagers = emptyRetriever{}
	}
	if o.CORSOrigin == nil {
		o.CORSOrigin = regexp.MustCompile(anyOrigin)
	}
	setFeatures(o)
	a := &api{Options: o, cors: o.CORSOrigin, counting: make(chan struct{}, 1),
		answerCounter: newAnswerCounter(o.Registerer), expandedReads: newExpandedReadsCounter(o.Registerer)}
	a.codec.pending = &a.pending
	// The router is created at the first request or in the background, because Prometheus' API takes half a second to
	// generate its OpenAPI description.
	rest := sync.OnceValue(a.router)
	go panics.WrapContained("describing the API", func() { rest() })()

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { rest().ServeHTTP(w, r) })
}

// anyOrigin is Prometheus' default for CORS origins, compiled as Prometheus compiles it.
const anyOrigin = "^(?s:.*)$"

type api struct {
	Options
	cors *regexp.Regexp
	// counting is held while the series of a tenant are counted, see serveTSDB.
	counting chan struct{}
	// answerCounter counts queries by the resolutions that answered them.
	answerCounter *prometheus.CounterVec
	// expandedReads counts answers to remote read that contain samples made from buckets.
	expandedReads prometheus.Counter
	// pending maps each token that codec returned to the answer for which codec returned the token. The answers are
	// written in pieces.
	pending sync.Map
	codec   textCodec
}

// router routes requests to Prometheus' handlers, and to this package's handlers for overridden routes. Prometheus'
// router determines the methods of each route, and the response to other methods.
func (a *api) router() http.Handler {
	overrides, known := a.overriddenRoutes(), map[string]bool{}
	router := route.New().WithInstrumentation(func(name string, h http.HandlerFunc) http.HandlerFunc {
		if own, ok := overrides[name]; ok {
			h, known[name] = own, true
		} else if name == snapshotRoute && a.ClaimedSnapshot != nil {
			h = a.withClaim(h)
		}
		if name != "/read" { // Remote read isn't encoded as JSON.
			h = a.withStreaming(h)
		}
		h = a.whenReady(name, withOrigin(name, a.withResolution(name, a.withNotes(name, a.withRollupNames(name, h)))))
		h = withErrorTypes(h)
		if !uncompressedRoutes[name] {
			h = withCompression(h)
		}
		return a.Instrument(Prefix+name, withRetry(h))
	}).WithPrefix(Prefix)
	theirs := a.newPrometheusAPI()
	theirs.ClearCodecs()
	theirs.InstallCodec(a.codec)
	theirs.Register(router)
	for name, h := range overrides {
		if !known[name] { // Prometheus has no such route.
			router.Get(name, h)
		}
	}
	if a.Queries != nil {
		a.activeRoutes(router)
	}
	return router
}

// describedRoutes lists the prefixes of the routes that the OpenAPI description contains.
var describedRoutes = []string{
	"/alertmanagers", "/alerts", "/features", "/format_query", "/label", "/metadata", "/notifications", "/openapi.yaml",
	"/parse_query", "/query", "/read", "/rules", "/scrape_pools", "/series", "/status", "/targets", "/write",
}

// newPrometheusAPI returns Prometheus' own API with this package's data sources. Prometheus' other data sources are
// empty.
func (a *api) newPrometheusAPI() *promapi.API {
	return promapi.NewAPI(
		a.Engine, a.Queryable,
		nil, nil, // The server handles writes.
		a.Exemplars,
		func(context.Context) promapi.ScrapePoolsRetriever { return emptyRetriever{} },
		func(context.Context) promapi.TargetRetriever { return emptyRetriever{} },
		func(context.Context) promapi.AlertmanagerRetriever { return a.Alertmanagers },
		func() config.Config { return config.Config{} },
		a.Flags,
		promapi.GlobalURLOptions{ListenAddress: a.ListenAddress, Host: a.ExternalURL.Host,
			Scheme: a.ExternalURL.Scheme},
		func(h http.HandlerFunc) http.HandlerFunc { return h }, // See whenReady.
		adminTSDB{del: a.Delete, snapshot: a.Snapshot}, a.DataDir, a.AdminAPI,
		false, 0, // No search API.
		a.Logger,
		a.Rules,
		0, 1, 0, // Remote read has a handler of its own.
		false, a.cors, a.runtimeInfo, nil,
		func() []notifications.Notification { return []notifications.Notification{} },
		func() (<-chan notifications.Notification, func(), bool) { return nil, nil, false },
		a.Gatherer, a.Registerer,
		renderStats,
		false, nil, // No remote write here.
		false, false, false, // No OTLP here.
		false, 0, false, false, // These apply only to writes, which the server handles.
		statusOf,
		a.Features,
		promapi.OpenAPIOptions{IncludePaths: describedRoutes, ExternalURL: a.ExternalURL.String(),
			Version: a.Version.Cassia},
		promql.NewParser(a.Parser),
	)
}

// statusOf returns the HTTP status of errors that don't exist in Prometheus. K is Prometheus' type of error numbers,
// which isn't exported.
func statusOf[K any](_ K, err error) (code int, override bool) {
	var limit *tenant.LimitError
	var stored promengine.ErrStorage
	switch {
	case errors.As(err, &limit):
		return limit.Status, true
	case errors.Is(err, tsdb.ErrNotReady), errors.Is(err, storage.ErrNotReady),
		errors.Is(err, promql.ErrTooManyQueries), errors.Is(err, engine.ErrUnavailable),
		errors.Is(err, membership.ErrClock):
		return http.StatusServiceUnavailable, true
	case errors.Is(err, meter.ErrQueryTooLarge), errors.Is(err, storage.ErrTooManyDeletes):
		return http.StatusUnprocessableEntity, true
	case errors.Is(err, storage.ErrBadDelete):
		return http.StatusBadRequest, true
	case errors.As(err, &stored): // Prometheus returns 500 for queries, but not for lists of labels.
		return http.StatusInternalServerError, true
	}
	return 0, false
}

// readRoutes are the routes that read samples or labels, by their names in Prometheus' API.
var readRoutes = map[string]bool{
	"/query": true, "/query_range": true, "/query_exemplars": true, "/series": true, "/labels": true,
	"/label/:name/values": true, "/read": true,
}

// whenReady returns a handler that returns 503 while the store isn't ready.
func (a *api) whenReady(name string, h http.HandlerFunc) http.HandlerFunc {
	if !readRoutes[name] {
		return h
	}
	if name == "/read" {
		h = a.withReading(a.serveRead)
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if err := a.Ready(); err != nil {
			a.fail(w, r, http.StatusServiceUnavailable, "unavailable", err.Error())
			return
		}
		a.withPlace(name, h)(w, r)
	}
}
