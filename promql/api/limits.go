package api

import (
	"context"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cassia-db/cassia/promql"
	"github.com/cassia-db/cassia/storage/tenant"
)

// limits answers with the limits of a request's tenants, and with their use.
func (a *api) limits(w http.ResponseWriter, r *http.Request) {
	a.respond(w, r, a.Limits(tenant.All(r.Context())))
}

// enter makes a read wait for its turn among its tenants' queries. Those of the evaluator wait there. What it answers counts
// until the client has read it.
func (a *api) enter(name string, h http.HandlerFunc) http.HandlerFunc {
	switch {
	case a.Enter == nil:
		return h
	case name == "/query" || name == "/query_range":
		return expectSmall(h)
	}
	entered := func(w http.ResponseWriter, r *http.Request) {
		ctx, leave, err := a.Enter(r.Context())
		if err != nil {
			a.fail(w, r, refusal(w, err), "execution", err.Error())
			return
		}
		defer leave()
		answer := &answerWriter{ResponseWriter: w, ctx: ctx}
		h(answer, r.WithContext(ctx))
		answer.begin()
	}
	if smallReads[name] {
		return expectSmall(entered)
	}
	return entered
}

// smallReads are the reads whose answers are usually small.
var smallReads = map[string]bool{"/labels": true, "/label/:name/values": true, "/metadata": true}

// expectSmall calls h as for an answer that may be small, and so doesn't wait for others' answers to be read. If the answer isn't small,
// and there is no room for it, h is called again, and waits.
func expectSmall(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm() // So that h can be called twice. It reports the error.
		first := &firstWriter{ResponseWriter: w, header: w.Header().Clone(), expected: promql.NewExpectation(r.URL.Path + "?" + r.Form.Encode())}
		h(first, r.WithContext(first.expected.Into(r.Context())))
		if first.expected.Refused() {
			h(w, r)
		}
	}
}

// firstWriter drops an answer that there is no room for.
type firstWriter struct {
	http.ResponseWriter
	header   http.Header // until the answer has begun
	expected *promql.Expectation
}

// Header implements http.ResponseWriter.
func (w *firstWriter) Header() http.Header {
	if w.header != nil {
		return w.header
	}
	return w.ResponseWriter.Header()
}

// begin hands over the headers, unless the answer is to be dropped.
func (w *firstWriter) begin() bool {
	if w.expected.Refused() {
		return false
	}
	if w.header != nil {
		clear(w.ResponseWriter.Header())
		maps.Copy(w.ResponseWriter.Header(), w.header)
		w.header = nil
	}
	return true
}

// WriteHeader implements http.ResponseWriter.
func (w *firstWriter) WriteHeader(code int) {
	if w.begin() {
		w.ResponseWriter.WriteHeader(code)
	}
}

// Write implements http.ResponseWriter.
func (w *firstWriter) Write(p []byte) (int, error) {
	if !w.begin() {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap is what http.ResponseController asks for.
func (w *firstWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// answerWriter counts answers, which Prometheus' handlers make as a whole and then write at once.
type answerWriter struct {
	http.ResponseWriter
	ctx context.Context
	// code is the status that the handler set, 0: none. It is sent with the first bytes, once they are counted.
	code int
}

// answerCost is how much memory an answer takes for each byte of it: its text, and what that was made of.
const answerCost = 2

// WriteHeader implements http.ResponseWriter.
func (w *answerWriter) WriteHeader(code int) { w.code = code }

// begin sends the status, once.
func (w *answerWriter) begin() {
	if w.code != 0 {
		w.ResponseWriter.WriteHeader(w.code)
		w.code = 0
	}
}

// Write implements http.ResponseWriter. The frames of a streamed answer count only if the client reads slowly: each is made when the one before was
// read.
func (w *answerWriter) Write(p []byte) (int, error) {
	bytes := int64(len(p)) * answerCost
	if strings.HasPrefix(w.Header().Get("Content-Type"), "application/x-streamed-protobuf") {
		w.begin()
		return promql.Streamed(w.ctx, bytes, func() (int, error) { return w.ResponseWriter.Write(p) })
	}
	if err := promql.Answered(w.ctx, bytes); err != nil {
		return 0, err
	}
	w.begin()
	return w.ResponseWriter.Write(p)
}

// Flush implements http.Flusher, which streamed answers need.
func (w *answerWriter) Flush() {
	w.begin()
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap is what http.ResponseController asks for.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// refusal is the code for a request that could not enter, with the time to try again.
func refusal(w http.ResponseWriter, err error) int {
	code, known := statusOf(0, err)
	if !known { // The client is gone, or its time is over.
		code = http.StatusServiceUnavailable
	}
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", strconv.Itoa(int(retryQuery/time.Second)))
	}
	return code
}

// retryQuery is when a read may be tried again that a tenant's full queue refused.
const retryQuery = time.Second
