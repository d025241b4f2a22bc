package otlp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/storage/remote/otlptranslator/prometheusremotewrite"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/tenant"
)

// Handler returns a handler for POST requests with OTLP metrics. The tenant is taken from the request's context. It
// returns an error that wraps errOptions if the options are invalid.
func Handler(store *storage.Store, opts Options) (http.Handler, error) {
	h, err := newHandler(
		func(tenant string) adapter.Batch { return opts.Rules.WrapBatch(tenant, store.NewBatch(tenant)) }, opts,
	)
	if err != nil {
		return nil, err
	}
	h.truncate, h.recordDeltas = store.TruncateAttribute, store.RecordDeltas
	return h, nil
}

type handler struct {
	opts     Options
	settings prometheusremotewrite.Settings
	newBatch func(tenant string) adapter.Batch
	// truncate shortens the value of a resource attribute to the tenant's limit for label values. If it is nil, values
	// aren't shortened.
	truncate func(tenant, attribute, value string) string
	// recordDeltas is storage.Store.RecordDeltas. If it is nil, deltas aren't recorded.
	recordDeltas func(ctx context.Context, tenant string, oldest int64) error
	budget       *adapter.Budget
	metrics      *metrics
	converters   sync.Pool // of *prometheusremotewrite.PrometheusConverter
}

func newHandler(newBatch func(tenant string) adapter.Batch, opts Options) (*handler, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	c := opts.Translation.config()
	h := &handler{opts: opts, newBatch: newBatch, budget: opts.Bodies.SubBudget(opts.MaxInFlight)}
	h.settings = prometheusremotewrite.Settings{
		AddMetricSuffixes: c.TranslationStrategy.ShouldAddSuffixes(), AllowUTF8: !c.TranslationStrategy.ShouldEscape(),
		PromoteResourceAttributes:            prometheusremotewrite.NewPromoteResourceAttributes(c),
		KeepIdentifyingResourceAttributes:    c.KeepIdentifyingResourceAttributes,
		ConvertHistogramsToNHCB:              c.ConvertHistogramsToNHCB,
		PromoteScopeMetadata:                 c.PromoteScopeMetadata,
		LookbackDelta:                        opts.LookbackDelta,
		LabelNameUnderscoreSanitization:      c.LabelNameUnderscoreSanitization,
		LabelNamePreserveMultipleUnderscores: c.LabelNamePreserveMultipleUnderscores,
	}
	h.metrics = newMetrics(opts.Registerer, h.budget.Used)
	h.converters.New = func() any { return prometheusremotewrite.NewPrometheusConverter(nil) }
	return h, nil
}

// outcome is the result of a decoded request.
type outcome struct {
	points, samples, exemplars int
	rejections                 rejections
	// later, if set, is an error that a retry of the request may resolve.
	later error
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e, gzipped, err := negotiateEncoding(r.Header)
	switch {
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		h.fail(w, e, http.StatusMethodNotAllowed, "OTLP supports only POST", nil)
		return
	case err != nil:
		h.fail(w, e, http.StatusUnsupportedMediaType, err.Error(), nil)
		return
	}
	share := h.budget.NewShare(r.Context())
	defer share.Release()
	md, err := h.decode(r, e, gzipped, &share)
	if err != nil {
		h.rejectRequest(w, r, e, err)
		return
	}
	done, err := h.storeMetrics(r.Context(), md)
	if err != nil {
		h.rejectRequest(w, r, e, err)
		return
	}
	h.respond(w, r, e, done)
}

// decode reads and decodes the message of a request.
func (h *handler) decode(r *http.Request, e encoding, gzipped bool, share *adapter.Share) (pmetric.Metrics, error) {
	body, err := h.readBody(r, gzipped, share)
	if err != nil {
		return pmetric.Metrics{}, err
	}
	weight, err := e.estimateMemory(body, h.opts.MaxMemory)
	switch {
	case err != nil:
		return pmetric.Metrics{}, err
	case weight > h.opts.MaxMemory:
		return pmetric.Metrics{}, fmt.Errorf(
			"%w: decoded, the request would need more than %d bytes of memory; send fewer data points per request",
			adapter.ErrTooLarge, h.opts.MaxMemory,
		)
	}
	if err := share.Claim(weight); err != nil {
		return pmetric.Metrics{}, err
	}
	req, err := e.decode(body)
	if err != nil {
		return pmetric.Metrics{}, fmt.Errorf("%w: %w", errMalformed, err)
	}
	return req.Metrics(), nil
}

// storeMetrics translates a message and makes it durable. It returns an error only if the request as a whole was
// rejected.
func (h *handler) storeMetrics(ctx context.Context, md pmetric.Metrics) (outcome, error) {
	var done outcome
	of := tenant.FromContext(ctx)
	if h.truncate != nil {
		truncateAttributes(md, func(attribute, value string) string { return h.truncate(of, attribute, value) })
	}
	points, left, oldestDelta := pruneMetrics(md, &h.opts.Translation, &done.rejections)
	done.points = points
	if oldestDelta != noDelta && h.recordDeltas != nil {
		if err := h.recordDeltas(ctx, of, oldestDelta); err != nil {
			return done, err
		}
	}
	translating, stop := context.WithCancel(ctx)
	defer stop()
	in := adapter.NewIntake(ctx, of, h.newBatch)
	app := &appender{in: in, rejections: &done.rejections, stop: stop}
	if h.opts.Metadata != nil {
		app.metadata = func(family string, m metadata.Metadata) {
			h.opts.Metadata(of, family, string(m.Type), m.Unit, m.Help)
		}
	}
	defer in.Release()
	if err := h.translateMetrics(translating, md, app); err != nil {
		switch {
		case app.fatal != nil:
			return done, app.fatal
		case ctx.Err() != nil:
			return done, ctx.Err()
		}
		// The translation skipped the metrics that the error names, and with them the points missing in app.points.
		if lost := left - app.points; lost > 0 || !errors.Is(err, errTargetInfo) {
			done.rejections.add(reasonUntranslatable, lost, func() string {
				return strings.ReplaceAll(err.Error(), "\n", "; ")
			})
		}
	}
	if err := in.Commit(); err != nil {
		return done, err
	}
	done.samples, done.exemplars, done.later = in.DurableSamples(), app.kept, app.later
	return done, nil
}

// translateMetrics passes the samples of a message to app.
func (h *handler) translateMetrics(ctx context.Context, md pmetric.Metrics, app *appender) error {
	converter := h.converters.Get().(*prometheusremotewrite.PrometheusConverter)
	defer func() {
		converter.Reset(nil)
		h.converters.Put(converter)
	}()
	converter.Reset(app)
	warnings, err := converter.FromMetrics(ctx, md, h.settings)
	for category, n := range prometheusremotewrite.CountWarningsByCategory(warnings) {
		h.metrics.warnings.WithLabelValues(string(category)).Add(float64(n))
	}
	if texts, _ := warnings.AsStrings("", 3, 0); len(texts) > 0 {
		h.opts.Logger.Debug("OTLP: warnings of the translation", "warnings", strings.Join(texts, "; "))
	}
	return err
}

// respond writes the response to a request that was stored, in whole or in part.
func (h *handler) respond(w http.ResponseWriter, r *http.Request, e encoding, done outcome) {
	rejected := done.rejections.points()
	h.metrics.samples.Add(float64(done.samples))
	h.metrics.exemplars.Add(float64(done.exemplars))
	h.metrics.points.WithLabelValues("stored").Add(float64(done.points - rejected))
	for _, one := range done.rejections {
		h.metrics.points.WithLabelValues(one.reason).Add(float64(one.points))
	}
	text := ""
	if len(done.rejections) > 0 {
		text = done.rejections.text(done.points)
		h.opts.Logger.Debug("OTLP: rejected data points", "tenant", tenant.FromContext(r.Context()), "reason", text)
	}
	switch {
	case done.later != nil:
		// A retry may store the rest. Points that are already stored don't change.
		h.fail(w, e, adapter.HTTPStatus(done.later), text, done.later)
		return
	case rejected > 0 && rejected == done.points:
		h.fail(w, e, http.StatusBadRequest, text, nil)
		return
	}
	body, err := e.encodeSuccess(rejected, text)
	if err != nil {
		h.rejectRequest(w, r, e, fmt.Errorf("otlp: can't encode the response: %w", err))
		return
	}
	h.write(w, e, http.StatusOK, body)
}

// rejectRequest writes the response to a request that was rejected as a whole.
func (h *handler) rejectRequest(w http.ResponseWriter, r *http.Request, e encoding, err error) {
	code := adapter.HTTPStatus(err)
	switch {
	case errors.Is(err, errRead):
		code = http.StatusServiceUnavailable
	case errors.Is(err, errCorrupt), errors.Is(err, errMalformed):
		code = http.StatusBadRequest
	}
	if code == http.StatusInternalServerError {
		h.opts.Logger.Error("OTLP write failed", "tenant", tenant.FromContext(r.Context()), "err", err)
	}
	h.fail(w, e, code, err.Error(), err)
}

// fail responds with a google.rpc.Status. cause may determine the Retry-After.
func (h *handler) fail(w http.ResponseWriter, e encoding, code int, text string, cause error) {
	switch code {
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", formatSeconds(h.opts.RetryBusy))
	case http.StatusTooManyRequests:
		w.Header().Set("Retry-After", formatSeconds(adapter.RetryAfter(cause, h.opts.RetryFull)))
	}
	body, err := e.encodeFailure(code, storage.PlainText(text))
	if err != nil {
		h.opts.Logger.Error("OTLP: can't encode a response", "err", err)
	}
	h.write(w, e, code, body)
}

func (h *handler) write(w http.ResponseWriter, e encoding, code int, body []byte) {
	h.metrics.request(e, code)
	w.Header().Set("Content-Type", e.mediaType())
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(body) // the client may have disconnected
}

func formatSeconds(d time.Duration) string {
	return strconv.Itoa(int(d.Round(time.Second) / time.Second))
}
