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

// encoders has those that aren't in use, by the content encoding that they write. An encoder takes some hundreds of kilobytes:
// Prometheus, which makes one for each answer, spends more on it than on a small query.
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
	"/read": true, "/write": true, "/otlp/v1/metrics": true, "/notifications": true, "/notifications/live": true, "/openapi.yaml": true,
	"/status/walreplay": true, "/search/metric_names": true, "/search/label_names": true, "/search/label_values": true,
}

// compressed makes a handler whose answer is compressed as Prometheus' are: with the first encoding of those that the client
// takes, however small the answer is. h is made not to compress.
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
		defer func() { r.Header["Accept-Encoding"] = takes }() // Whoever logs the request goes on seeing its header.
		h(c, r)
		c.end() // Not where it panics: whoever recovers answers, or cuts the answer off.
	}
}

// accepted is the first encoding of a header's list that is supported; empty: there is none. Weights aren't looked at, as in
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
	encoder  encoder // nil: the client takes none
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

// begin sets the header. Prometheus' handlers have set what the answer varies with.
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
		header.Del("Content-Length") // That of the text.
	}
}

// end writes the rest and gives the encoder back. An answer whose client is gone can't be written; net/http notices.
func (w *compressedWriter) end() {
	w.begin()
	_ = w.encoder.Close()
	w.encoder.Reset(nil)
	encoders[w.encoding].Put(w.encoder)
}

// Unwrap is what http.ResponseController asks for.
func (w *compressedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
