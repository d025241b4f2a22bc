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

// serveLimits returns the limits of a request's tenants, and the current use of each limit.
func (a *api) serveLimits(w http.ResponseWriter, r *http.Request) {
	a.respond(w, r, a.Limits(tenant.NamesFromContext(r.Context())))
}

// withPlace returns a handler whose reads wait for their turn among the queries of their tenants. Queries of the
// evaluator are excluded, because they wait in the evaluator. The answer counts as held memory until the client has
// read it.
func (a *api) withPlace(name string, h http.HandlerFunc) http.HandlerFunc {
	if a.Enter == nil || name == "/query" || name == "/query_range" {
		return h
	}
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, leave, err := a.Enter(r.Context())
		if err != nil {
			code := refusedStatus(w, err)
			a.fail(w, r, code, errorType(code), err.Error())
			return
		}
		defer leave()
		h(&answerWriter{ResponseWriter: w, ctx: ctx}, r.WithContext(ctx))
	}
}

// answerWriter counts the memory of answers. Prometheus' handlers encode an answer as a whole and then write it with a
// single call.
type answerWriter struct {
	http.ResponseWriter
	ctx context.Context
}

// streamedFrames is the prefix of the content type of streamed remote read.
const streamedFrames = "application/x-streamed-protobuf"

// answerCost is the memory of an answer per byte of its text. It includes the data that is encoded.
const answerCost = 2

// Write implements http.ResponseWriter. The frames of a streamed answer count only if the client reads slowly: each
// frame is encoded after the client has read the previous one.
func (w *answerWriter) Write(p []byte) (int, error) {
	bytes := int64(len(p)) * answerCost
	if strings.HasPrefix(w.Header().Get("Content-Type"), streamedFrames) {
		return promql.StreamAnswer(w.ctx, bytes, func() (int, error) { return w.ResponseWriter.Write(p) })
	}
	promql.HoldAnswer(w.ctx, bytes)
	return w.ResponseWriter.Write(p)
}

// Flush implements http.Flusher, which streamed answers need.
func (w *answerWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap is used by http.ResponseController.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// refusedStatus returns the status code for a request that wasn't admitted. If the request should be retried, it also
// sets the Retry-After header.
func refusedStatus(w http.ResponseWriter, err error) int {
	code, known := statusOf(0, err)
	if !known { // The client has disconnected, or the request has timed out.
		code = http.StatusServiceUnavailable
	}
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", strconv.Itoa(int(queryRetryDelay/time.Second)))
	}
	return code
}

// queryRetryDelay is the time after which to retry a read that was rejected because its tenant's queue was full.
const queryRetryDelay = time.Second
