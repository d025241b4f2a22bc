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
	// MaxWeight bounds what the series of a body take in memory, bytes. Half as much bounds the body, and twice as much
	// bounds all bodies together that are being read, stored or compared: further ones have to wait. Default 128 MiB.
	MaxWeight int64
	// Bodies bounds the bodies of all endpoints; nil: nothing does.
	Bodies *adapter.Budget
	// Retention returns how long the series of a tenant are kept.
	Retention func(tenant string) importer.Kept
	// Ready returns nil once samples can be stored and asked for.
	Ready func() error
	// Retry is the Retry-After of a 503: one body may take some seconds. Default 2 s.
	Retry time.Duration
	// Logger gets events for operators.
	Logger *slog.Logger
}

// DefaultOptions returns the documented defaults. Retention and Ready must be set.
func DefaultOptions() Options {
	return Options{MaxWeight: 128 << 20, Retry: 2 * time.Second, Logger: slog.New(slog.DiscardHandler)}
}

// Server takes history for a store. The tenant of a request is the one that its context carries. Whoever may import is
// for others to check: the limits of tenants don't count.
type Server struct {
	into   importer.Destination
	opts   Options
	budget *adapter.Budget
	// comparing has a place for one comparison.
	comparing chan struct{}
}

// NewServer returns what takes history into a destination, whose methods it may call side by side.
func NewServer(into importer.Destination, o Options) *Server {
	return &Server{into: into, opts: o, budget: o.Bodies.Part(2 * o.MaxWeight), comparing: make(chan struct{}, 1)}
}

// maxBytes bounds a body, compressed or not.
func (o *Options) maxBytes() int64 { return o.MaxWeight / 2 }

var (
	errMethod = errors.New("use POST to send series, or GET to list the supported formats")
	errMedia  = errors.New("the body must be " + contentType + " with encoding " + contentEncoding)
	errReads  = errors.New("overhttp: reading the body")
	errOther  = errors.New("the retention of this server has changed since the import started: run the import again")
)

// Import answers GET with the Terms, and POST when the body's series are durable.
func (s *Server) Import(w http.ResponseWriter, r *http.Request) {
	name := tenant.From(r.Context())
	if r.Method == http.MethodGet {
		identity, err := s.into.Identity(r.Context(), name)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		terms := Terms{Version: bodyVersion, MaxBytes: s.opts.maxBytes(), MaxWeight: s.opts.MaxWeight, Store: identity}
		terms.setKept(s.opts.Retention(name))
		s.answer(w, terms)
		return
	}
	var terms Terms // Clients decide by the retention which samples they may send.
	terms.setKept(s.opts.Retention(name))
	if text := r.Header.Get(retentionHeader); text != "" && text != terms.retentionText() {
		s.fail(w, r, errOther)
		return
	}
	s.post(w, r, func(ctx context.Context, b *body) (any, error) {
		stats, err := s.into.Import(ctx, name, b.series)
		if err == nil && len(b.buckets) > 0 {
			stats, err = s.into.ImportBuckets(ctx, name, b.buckets)
		}
		return storedOf(stats), err
	})
}

// Compare answers POST with what differs from the body's series.
func (s *Server) Compare(w http.ResponseWriter, r *http.Request) {
	name := tenant.From(r.Context())
	s.post(w, r, func(ctx context.Context, b *body) (any, error) {
		select { // One needs as much memory as a large query.
		case s.comparing <- struct{}{}:
			defer func() { <-s.comparing }()
		default:
			return nil, fmt.Errorf("%w: another comparison is in progress", adapter.ErrBusy)
		}
		if len(b.buckets) > 0 {
			return nil, fmt.Errorf("%w: buckets can't be compared", ErrMalformed)
		}
		var c compared
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

// post reads a body and answers with what became of it.
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
	b := &body{share: s.budget.Share(r.Context())}
	defer b.share.Give()
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

// body is what one request brought.
type body struct {
	share  adapter.Share
	series []storage.ImportedSeries
	// buckets are in place of series.
	buckets []storage.ImportedBuckets
}

// read reads and decodes it, within the bounds.
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
	// Snappy's densest element copies 64 bytes and takes 3.
	if err != nil || size > len(compressed)/3*64+64 {
		return fmt.Errorf("%w: not a valid snappy block", ErrMalformed)
	}
	if int64(size) > o.maxBytes() {
		return fmt.Errorf("%w: decompressed, the body has %d bytes; the maximum is %d", adapter.ErrTooLarge, size, o.maxBytes())
	}
	if err := b.share.Take(int64(size)); err != nil {
		return err
	}
	plain, err := snappy.Decode(nil, compressed)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	b.share.Give() // The compressed bytes are garbage from here on, and memory for the rest is claimed anew.
	left := o.MaxWeight
	if err := b.share.Take(int64(size)); err != nil {
		return err
	}
	b.series, b.buckets, err = decode(plain, func(weight int64) error {
		if left -= weight; left < 0 {
			return fmt.Errorf("%w: its series have more than %d bytes", adapter.ErrTooLarge, o.MaxWeight)
		}
		return b.share.Take(weight)
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
	_, _ = w.Write(append(text, '\n')) // Whoever is gone needs no answer.
}

// fail answers with an error. All that isn't durable is to be sent again.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	code := statusOf(err)
	switch code {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		w.Header().Set("Retry-After", strconv.Itoa(int(s.opts.Retry/time.Second)))
	case http.StatusInternalServerError:
		s.opts.Logger.Error("import over HTTP failed", "tenant", tenant.From(r.Context()), "err", err)
	}
	http.Error(w, storage.Plain(err.Error()), code)
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, errMethod):
		return http.StatusMethodNotAllowed
	case errors.Is(err, errMedia), errors.Is(err, ErrVersion):
		return http.StatusUnsupportedMediaType
	case errors.Is(err, ErrMalformed):
		return http.StatusBadRequest
	case errors.Is(err, errOther):
		return http.StatusPreconditionFailed
	case errors.Is(err, errReads):
		return http.StatusServiceUnavailable
	}
	return adapter.Status(err)
}
