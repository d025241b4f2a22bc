package api

import (
	"context"
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
	if a.Enter == nil || name == "/query" || name == "/query_range" {
		return h
	}
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, leave, err := a.Enter(r.Context())
		if err != nil {
			a.fail(w, r, refusal(w, err), "execution", err.Error())
			return
		}
		defer leave()
		h(&answerWriter{ResponseWriter: w, ctx: ctx}, r.WithContext(ctx))
	}
}

// answerWriter counts answers, which Prometheus' handlers make as a whole and then write at once.
type answerWriter struct {
	http.ResponseWriter
	ctx context.Context
}

// streamedFrames is how the content type of streamed remote read begins.
const streamedFrames = "application/x-streamed-protobuf"

// answerCost is how much memory an answer takes for each byte of it: its text, and what that was made of.
const answerCost = 2

// Write implements http.ResponseWriter. The frames of a streamed answer count only if the client reads slowly: each is made when the one before was
// read.
func (w *answerWriter) Write(p []byte) (int, error) {
	bytes := int64(len(p)) * answerCost
	if strings.HasPrefix(w.Header().Get("Content-Type"), streamedFrames) {
		return promql.Streamed(w.ctx, bytes, func() (int, error) { return w.ResponseWriter.Write(p) })
	}
	promql.Answered(w.ctx, bytes)
	return w.ResponseWriter.Write(p)
}

// Flush implements http.Flusher, which streamed answers need.
func (w *answerWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

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
