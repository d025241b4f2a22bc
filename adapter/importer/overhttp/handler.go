package overhttp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/golang/snappy"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/adapter/importer"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/tenant"
)

// Options configure a Server.
type Options struct {
	// MaxWeight bounds the weight of a body's series, in bytes; a body may have at most half as many bytes. All bodies
	// that are being read, stored or compared may together use twice MaxWeight; further bodies are rejected with 503.
	// Default 128 MiB.
	MaxWeight int64
	// Bodies bounds the bodies of all endpoints together. nil means no bound.
	Bodies *adapter.Budget
	// Retention returns the retention of a tenant's series.
	Retention func(tenant string) importer.RetentionPolicy
	// Ready returns nil when the store accepts samples and queries.
	Ready func() error
	// Retry is the Retry-After of a 503 response. Storing a body may take seconds. Default 2 s.
	Retry time.Duration
	// Logger logs events for operators.
	Logger *slog.Logger
}

// DefaultOptions returns the documented defaults. Retention and Ready must be set.
func DefaultOptions() Options {
	return Options{MaxWeight: 128 << 20, Retry: 2 * time.Second, Logger: slog.New(slog.DiscardHandler)}
}

// Server imports history into a store. The tenant of a request is in its context. The caller must authorize requests.
// Limits of tenants don't apply.
type Server struct {
	into   importer.Destination
	opts   Options
	budget *adapter.Budget
	// comparing holds an element while a comparison is in progress.
	comparing chan struct{}
}

// NewServer returns a Server for a destination. It may call the destination's methods concurrently.
func NewServer(into importer.Destination, o Options) *Server {
	return &Server{into: into, opts: o, budget: o.Bodies.SubBudget(2 * o.MaxWeight), comparing: make(chan struct{}, 1)}
}

// maxBytes is the maximum size of a body, compressed and uncompressed.
func (o *Options) maxBytes() int64 { return o.MaxWeight / 2 }

var (
	errMethod           = errors.New("use POST to send series, or GET to list the supported formats")
	errMedia            = errors.New("the body must be " + contentType + " with encoding " + contentEncoding)
	errReads            = errors.New("overhttp: reading the body")
	errRetentionChanged = errors.New(
		"the retention of this server has changed since the import started: run the import again")
)

// Import returns the Terms for GET. For POST it stores the body's series and responds when they are durable.
func (s *Server) Import(w http.ResponseWriter, r *http.Request) {
	name := tenant.FromContext(r.Context())
	if r.Method == http.MethodGet {
		identity, err := s.into.Identity(r.Context(), name)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		terms := Terms{Version: bodyVersion, MaxBytes: s.opts.maxBytes(), MaxWeight: s.opts.MaxWeight, Store: identity}
		terms.setRetentionPolicy(s.opts.Retention(name))
		s.answer(w, terms)
		return
	}
	var terms Terms // Clients use the retention to decide which samples to send.
	terms.setRetentionPolicy(s.opts.Retention(name))
	if text := r.Header.Get(retentionHeader); text != "" && text != terms.retentionText() {
		s.fail(w, r, errRetentionChanged)
		return
	}
	s.post(w, r, func(ctx context.Context, b *body) (any, error) {
		stats, err := s.into.Import(ctx, name, b.series)
		if err == nil && len(b.buckets) > 0 {
			stats, err = s.into.ImportBuckets(ctx, name, b.buckets)
		}
		return importResponseOf(stats), err
	})
}

// Compare returns the differences between the series of a POST body and the stored samples.
func (s *Server) Compare(w http.ResponseWriter, r *http.Request) {
	name := tenant.FromContext(r.Context())
	s.post(w, r, func(ctx context.Context, b *body) (any, error) {
		select { // A comparison needs as much memory as a large query.
		case s.comparing <- struct{}{}:
			defer func() { <-s.comparing }()
		default:
			return nil, fmt.Errorf("%w: another comparison is in progress", adapter.ErrBusy)
		}
		if len(b.buckets) > 0 {
			return nil, fmt.Errorf("%w: buckets can't be compared", errMalformed)
		}
		var c compareResponse
		within, err := spanOf(r.URL.Query())
		if err != nil {
			return nil, err
		}
		c.Stats, err = s.into.Compare(ctx, name, b.series, within, func(d importer.Difference) {
			if len(c.Differences) < maxDifferences {
				c.Differences = append(c.Differences, differenceOf(d))
			}
		})
		return c, err
	})
}

// post reads a body and responds with the result of use.
func (s *Server) post(w http.ResponseWriter, r *http.Request, use func(context.Context, *body) (any, error)) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "GET, POST")
		s.fail(w, r, errMethod)
		return
	}
	if err := s.opts.Ready(); err != nil {
		s.fail(w, r, fmt.Errorf("%w: %w", adapter.ErrBusy, err))
		return
	}
	b := &body{share: s.budget.NewShare(r.Context())}
	defer b.share.Release()
	if err := b.read(r, &s.opts); err != nil {
		s.fail(w, r, err)
		return
	}
	result, err := use(r.Context(), b)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.answer(w, result)
}

// body is the content of one request.
type body struct {
	share  adapter.Share
	series []storage.ImportedSeries
	// buckets holds the series of a body with aggregates; series is then empty.
	buckets []storage.ImportedBuckets
}

// read reads and decodes the body within the bounds of o and of the budget.
func (b *body) read(r *http.Request, o *Options) error {
	if r.Header.Get("Content-Type") != contentType || r.Header.Get("Content-Encoding") != contentEncoding {
		return errMedia
	}
	compressed, err := adapter.ReadAll(r.Body, o.maxBytes(), r.ContentLength, &b.share)
	if err != nil {
		if errors.Is(err, adapter.ErrTooLarge) || errors.Is(err, adapter.ErrBusy) {
			return err
		}
		return fmt.Errorf("%w: %w", errReads, err)
	}
	size, err := snappy.DecodedLen(compressed)
	// Snappy's densest element takes 3 bytes and copies 64.
	if err != nil || size > len(compressed)/3*64+64 {
		return fmt.Errorf("%w: not a valid snappy block", errMalformed)
	}
	if int64(size) > o.maxBytes() {
		return fmt.Errorf("%w: decompressed, the body has %d bytes; the maximum is %d",
			adapter.ErrTooLarge, size, o.maxBytes())
	}
	if err := b.share.Claim(int64(size)); err != nil {
		return err
	}
	plain, err := snappy.Decode(nil, compressed)
	if err != nil {
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	b.share.Release() // The compressed bytes are garbage now. Memory for the rest is claimed again.
	left := o.MaxWeight
	if err := b.share.Claim(int64(size)); err != nil {
		return err
	}
	b.series, b.buckets, err = decodeBody(plain, func(weight int64) error {
		if left -= weight; left < 0 {
			return fmt.Errorf("%w: its series have more than %d bytes", adapter.ErrTooLarge, o.MaxWeight)
		}
		return b.share.Claim(weight)
	})
	return err
}

func (s *Server) answer(w http.ResponseWriter, result any) {
	text, err := json.Marshal(result)
	if err != nil {
		s.opts.Logger.Error("can't write the response to an import", "err", err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(append(text, '\n')) // A client that has disconnected needs no response.
}

// fail responds with an error. A part of the body may already be durable; the client can send the whole body again.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	code := statusOf(err)
	switch code {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		w.Header().Set("Retry-After", strconv.Itoa(int(s.opts.Retry/time.Second)))
	case http.StatusInternalServerError:
		s.opts.Logger.Error("import over HTTP failed", "tenant", tenant.FromContext(r.Context()), "err", err)
	}
	http.Error(w, storage.PlainText(err.Error()), code)
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, errMethod):
		return http.StatusMethodNotAllowed
	case errors.Is(err, errMedia), errors.Is(err, errVersion):
		return http.StatusUnsupportedMediaType
	case errors.Is(err, errMalformed):
		return http.StatusBadRequest
	case errors.Is(err, errRetentionChanged):
		return http.StatusPreconditionFailed
	case errors.Is(err, errReads):
		return http.StatusServiceUnavailable
	}
	return adapter.HTTPStatus(err)
}
