package api

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
)

// encoder compresses its input.
type encoder interface {
	io.WriteCloser
	Flush() error
	Reset(to io.Writer)
}

// encoders are pools of encoders, by content encoding. An encoder takes some hundreds of kilobytes. Prometheus creates
// an encoder for every answer, which costs more than a small query.
var encoders = map[string]*sync.Pool{
	"gzip":    {New: func() any { return fastest(gzip.NewWriterLevel(nil, gzip.BestSpeed)) }},
	"deflate": {New: func() any { return fastest(zlib.NewWriterLevel(nil, zlib.BestSpeed)) }},
}

func fastest[E encoder](e E, err error) E {
	if err != nil {
		panic(err) // The level is valid.
	}
	return e
}

// uncompressed are the routes whose answers aren't compressed, as in Prometheus.
var uncompressed = map[string]bool{
	"/read": true, "/write": true, "/otlp/v1/metrics": true, "/notifications": true, "/notifications/live": true,
	"/openapi.yaml":     true,
	"/status/walreplay": true, "/search/metric_names": true, "/search/label_names": true, "/search/label_values": true,
}

// compressed returns a handler that compresses answers of any size as Prometheus does: with the first supported
// encoding that the client accepts. It removes the accepted encodings from the request that h gets, so that h doesn't
// compress.
func compressed(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := &compressedWriter{ResponseWriter: w, encoding: accepted(r.Header.Get("Accept-Encoding"))}
		if c.encoding == "" {
			h(c, r)
			c.begin()
			return
		}
		c.encoder = encoders[c.encoding].Get().(encoder)
		c.encoder.Reset(w)
		takes := r.Header["Accept-Encoding"]
		delete(r.Header, "Accept-Encoding")
		// The header is restored for code that logs the request.
		defer func() { r.Header["Accept-Encoding"] = takes }()
		h(c, r)
		c.end() // Not after a panic: the code that recovers it writes the answer or aborts it.
	}
}

// accepted returns the first supported encoding in a header's list, or "" if there is none. Weights are ignored, as in
// Prometheus.
func accepted(list string) string {
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); encoders[name] != nil {
			return name
		}
	}
	return ""
}

// compressedWriter compresses an answer.
type compressedWriter struct {
	http.ResponseWriter
	encoding string
	encoder  encoder // nil: the client accepts none
	begun    bool
}

// WriteHeader implements http.ResponseWriter.
func (w *compressedWriter) WriteHeader(code int) {
	w.begin()
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *compressedWriter) Write(p []byte) (int, error) {
	w.begin()
	if w.encoder == nil {
		return w.ResponseWriter.Write(p)
	}
	return w.encoder.Write(p)
}

// Flush implements http.Flusher.
func (w *compressedWriter) Flush() {
	w.begin()
	if w.encoder != nil {
		_ = w.encoder.Flush() // As in end.
	}
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

// begin sets the headers of a compressed answer. Prometheus' handlers have already set Vary.
func (w *compressedWriter) begin() {
	if w.begun {
		return
	}
	w.begun = true
	header := w.Header()
	if vary := header["Vary"]; !slices.Contains(vary, "Accept-Encoding") {
		header["Vary"] = append([]string{"Accept-Encoding"}, vary...)
	}
	if w.encoder != nil {
		header.Set("Content-Encoding", w.encoding)
		header.Del("Content-Length") // It is the length of the uncompressed text.
	}
}

// end writes the rest and returns the encoder to its pool. Errors of disconnected clients are ignored, because net/http
// handles them.
func (w *compressedWriter) end() {
	w.begin()
	_ = w.encoder.Close()
	w.encoder.Reset(nil)
	encoders[w.encoding].Put(w.encoder)
}

// Unwrap is used by http.ResponseController.
func (w *compressedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
