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

// encoderPools are pools of encoders, by content encoding. An encoder takes some hundreds of kilobytes. Prometheus
// creates an encoder for every answer, which costs more than a small query.
var encoderPools = map[string]*sync.Pool{
	"gzip":    {New: func() any { return mustEncoder(gzip.NewWriterLevel(nil, gzip.BestSpeed)) }},
	"deflate": {New: func() any { return mustEncoder(zlib.NewWriterLevel(nil, zlib.BestSpeed)) }},
}

func mustEncoder[E encoder](e E, err error) E {
	if err != nil {
		panic(err) // The level is valid.
	}
	return e
}

// uncompressedRoutes are the routes whose answers aren't compressed, as in Prometheus.
var uncompressedRoutes = map[string]bool{
	"/read": true, "/write": true, "/otlp/v1/metrics": true, "/notifications": true, "/notifications/live": true,
	"/openapi.yaml":     true,
	"/status/walreplay": true, "/search/metric_names": true, "/search/label_names": true, "/search/label_values": true,
}

// withCompression returns a handler that compresses answers of any size as Prometheus does: with the first supported
// encoding that the client accepts. It removes the accepted encodings from the request that h gets, so that h doesn't
// compress.
func withCompression(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := &compressedWriter{ResponseWriter: w, encoding: acceptedEncoding(r.Header.Get("Accept-Encoding"))}
		if c.encoding == "" {
			h(c, r)
			c.setHeaders()
			return
		}
		c.encoder = encoderPools[c.encoding].Get().(encoder)
		c.encoder.Reset(w)
		takes := r.Header["Accept-Encoding"]
		delete(r.Header, "Accept-Encoding")
		// The header is restored for code that logs the request.
		defer func() { r.Header["Accept-Encoding"] = takes }()
		h(c, r)
		c.finish() // Not after a panic: the code that recovers it writes the answer or aborts it.
	}
}

// acceptedEncoding returns the first supported encoding in a header's list, or "" if there is none. Weights are
// ignored, as in Prometheus.
func acceptedEncoding(list string) string {
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); encoderPools[name] != nil {
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
	w.setHeaders()
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *compressedWriter) Write(p []byte) (int, error) {
	w.setHeaders()
	if w.encoder == nil {
		return w.ResponseWriter.Write(p)
	}
	return w.encoder.Write(p)
}

// Flush implements http.Flusher.
func (w *compressedWriter) Flush() {
	w.setHeaders()
	if w.encoder != nil {
		_ = w.encoder.Flush() // Errors are ignored as in finish.
	}
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

// setHeaders sets the headers of a compressed answer. Prometheus' handlers have already set Vary.
func (w *compressedWriter) setHeaders() {
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

// finish writes the rest and returns the encoder to its pool. Errors of disconnected clients are ignored, because
// net/http handles them.
func (w *compressedWriter) finish() {
	w.setHeaders()
	_ = w.encoder.Close()
	w.encoder.Reset(nil)
	encoderPools[w.encoding].Put(w.encoder)
}

// Unwrap is used by http.ResponseController.
func (w *compressedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
