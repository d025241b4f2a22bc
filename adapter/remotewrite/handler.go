package remotewrite

import (
	"cmp"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/tenant"
)

// Response headers of 2.0.
const (
	headerSamplesWritten    = "X-Prometheus-Remote-Write-Samples-Written"
	headerHistogramsWritten = "X-Prometheus-Remote-Write-Histograms-Written"
	headerExemplarsWritten  = "X-Prometheus-Remote-Write-Exemplars-Written"
)

// Handler returns a handler for POST requests of remote write 1.0 and 2.0. The tenant is taken from the request's
// context. It returns an error that wraps errOptions if the options are invalid.
func Handler(store *storage.Store, opts Options) (http.Handler, error) {
	return newHandler(opts.HA.batchConstructor(store, opts.Rules), opts)
}

type handler struct {
	opts     Options
	newBatch func(tenant string) adapter.Batch
	budget   *adapter.Budget
	metrics  *metrics
	requests sync.Pool // of *request
}

// request holds the buffers of one request. They are reused by later requests.
type request struct {
	body
	decoder
}

func newHandler(newBatch func(tenant string) adapter.Batch, opts Options) (*handler, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	h := &handler{opts: opts, newBatch: newBatch, budget: opts.Bodies.SubBudget(opts.MaxInFlight)}
	h.metrics = newMetrics(opts.Registerer, h.budget.Used)
	h.requests.New = func() any { return &request{} }
	return h, nil
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := h.opts.Now()
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		h.answer(w, versionUnknown, http.StatusMethodNotAllowed, "remote write supports only POST")
		return
	}
	v, err := negotiateVersion(r.Header)
	if err != nil {
		h.answer(w, versionUnknown, http.StatusUnsupportedMediaType, err.Error())
		return
	}
	q := h.requests.Get().(*request)
	defer h.requests.Put(q)
	defer q.decoder.reset()
	defer q.body.release()
	q.body.share = h.budget.NewShare(r.Context())
	err = h.storeRequest(r, v, q)
	h.metrics.samples(&q.decoder)
	h.respond(w, v, q, err, began)
}

// storeRequest reads, decodes and stores a request. q's decoder holds the result.
func (h *handler) storeRequest(r *http.Request, v version, q *request) error {
	d := &q.decoder
	d.ctx, d.tenant = r.Context(), tenant.FromContext(r.Context())
	d.newBatch, d.onMetadata = h.newBatch, h.opts.Metadata
	err := h.decode(r, v, q)
	q.body.release() // the store bounds the samples that wait to become durable
	if err != nil {
		d.release()
		return err
	}
	return d.commit()
}

// decode reads a request and adds its samples to batches.
func (h *handler) decode(r *http.Request, v version, q *request) error {
	name := q.decoder.tenant
	if err := h.opts.Limiter.CheckRate(name); err != nil {
		return err
	}
	compressed, decoded := h.opts.MaxCompressed, h.opts.MaxDecoded
	if own := h.opts.Limiter.LimitsOf(name).RequestBytes; own > 0 {
		compressed, decoded = min(compressed, own), min(decoded, own)
	}
	if err := q.body.read(r, compressed); err != nil {
		return h.tooLarge(err, name, compressed < h.opts.MaxCompressed)
	}
	h.metrics.received.Add(float64(len(q.body.compressed)))
	if err := q.body.decompress(decoded); err != nil {
		return h.tooLarge(err, name, decoded < h.opts.MaxDecoded)
	}
	h.metrics.decoded.Add(float64(len(q.body.decoded)))
	if v == version2 {
		return q.decoder.decodeV2(q.body.decoded)
	}
	return q.decoder.decodeV1(q.body.decoded)
}

// tooLarge returns an error that names the tenant's limit if err is an errTooLarge and own is set, which means that the
// exceeded limit is the tenant's. Otherwise it returns err.
func (h *handler) tooLarge(err error, name string, own bool) error {
	if !own || !errors.Is(err, errTooLarge) {
		return err
	}
	return cmp.Or(h.opts.Limiter.CheckRequest(name, math.MaxInt64), err)
}

// respond writes the response to a request whose version was negotiated.
func (h *handler) respond(w http.ResponseWriter, v version, q *request, err error, began time.Time) {
	d := &q.decoder
	if v == version2 {
		header := w.Header()
		header.Set(headerSamplesWritten, strconv.Itoa(d.written.floats+d.droppedByRules.floats))
		header.Set(headerHistogramsWritten, strconv.Itoa(d.written.histograms+d.droppedByRules.histograms))
		header.Set(headerExemplarsWritten, strconv.Itoa(d.written.exemplars+d.droppedByRules.exemplars))
	}
	code, text := http.StatusNoContent, ""
	switch {
	case err != nil:
		code, text = statusOf(err), err.Error()
		if code == http.StatusInternalServerError {
			h.opts.Logger.Error("remote write failed", "tenant", d.tenant, "version", v, "err", err)
		}
	case len(d.rejections) > 0:
		code = http.StatusBadRequest
		text = d.rejections.text(
			d.written.floats + d.written.histograms + d.droppedByRules.floats + d.droppedByRules.histograms)
		switch { // A retry of the request may store the rest.
		case slices.ContainsFunc(adapter.RetriedReasons, d.rejections.hasReason):
			code = http.StatusServiceUnavailable
		case d.rejections.hasReason(adapter.ReasonTooManySeries):
			code = http.StatusTooManyRequests
		}
		h.opts.Logger.Debug("remote write: rejected samples", "tenant", d.tenant, "version", v, "reason", text)
	}
	switch code {
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", formatSeconds(h.opts.RetryBusy))
	case http.StatusTooManyRequests:
		w.Header().Set("Retry-After", formatSeconds(adapter.RetryAfter(err, h.opts.RetryFull)))
	}
	if err == nil {
		h.metrics.ack.Observe(h.opts.Now().Sub(began).Seconds())
	}
	h.answer(w, v, code, text)
}

// answer writes the status and, if the request failed, the text.
func (h *handler) answer(w http.ResponseWriter, v version, code int, text string) {
	h.metrics.request(v, code)
	if code == http.StatusNoContent {
		w.WriteHeader(code)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, storage.PlainText(text)+"\n") // the sender may have disconnected
}

// statusOf returns the status of a request that was rejected as a whole. Senders drop the samples of a request on 4xx
// and retry on 5xx, so only requests that can never succeed get 4xx.
func statusOf(err error) int {
	switch {
	case errors.Is(err, errTooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, errCorrupt), errors.Is(err, errMalformed), errors.Is(err, errFirstSymbol),
		errors.Is(err, errTooManySymbols), errors.Is(err, errBodyOfV1), errors.Is(err, errBodyOfV2):
		return http.StatusBadRequest
	case errors.Is(err, errBusy), errors.Is(err, errRead):
		return http.StatusServiceUnavailable
	}
	return adapter.HTTPStatus(err)
}

func formatSeconds(d time.Duration) string {
	return strconv.Itoa(int(d.Round(time.Second) / time.Second))
}
