package promql

import (
	"context"
	"errors"

	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/util/stats"

	"github.com/cassia-db/cassia/promql/resolution"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/meter"
	"github.com/cassia-db/cassia/storage/tenant"
)

// apiError wraps err together with an error of a type that Prometheus' API maps to a response code: timeout, canceled
// or unavailable if the query was ended, internal if the store couldn't answer it.
type apiError struct{ err, as error }

func (e apiError) Error() string   { return storage.PlainText(e.err.Error()) }
func (e apiError) Unwrap() []error { return []error{e.err, e.as} }

// asPrometheus converts an error of the store to one that Prometheus' API reports with the right response code and a
// text for users. The API returns 422, as for a faulty query, for errors of unknown types. So errors that are faults of
// the server, such as damage, are given a type for 500.
func asPrometheus(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, storage.ErrNotReady), errors.Is(err, engine.ErrUnavailable), errors.Is(err, ErrTooManyQueries):
		return asUnavailable(err)
	case isQueryFault(err):
		return storage.PlainError(err)
	}
	return apiError{err, promengine.ErrStorage{Err: err}}
}

// isQueryFault reports whether err is caused by the query or its client: the query needs too much, can't be answered,
// was ended, or contains a name that is longer than any stored name.
func isQueryFault(err error) bool {
	var limit *tenant.LimitError
	var samples promengine.ErrTooManySamples
	return errors.As(err, &limit) || errors.As(err, &samples) || errors.Is(err, meter.ErrQueryTooLarge) ||
		errors.Is(err, resolution.ErrRawExpired) ||
		errors.Is(err, engine.ErrBadKey) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// asUnavailable returns an error that Prometheus' API reports with 503 and the type unavailable.
func asUnavailable(err error) error {
	if errors.Is(err, tsdb.ErrNotReady) {
		return err
	}
	return apiError{err, tsdb.ErrNotReady}
}

// asQueryError is asPrometheus for errors that end a query. It also converts context errors that reads return, because
// the evaluator converts only context errors that it detects itself.
func asQueryError(err error) error {
	var canceled promengine.ErrQueryCanceled
	var timeout promengine.ErrQueryTimeout
	switch {
	case err == nil || errors.As(err, &canceled) || errors.As(err, &timeout):
		return err
	case errors.Is(err, storage.ErrNotReady), errors.Is(err, engine.ErrUnavailable), errors.Is(err, ErrTooManyQueries):
		return asUnavailable(err)
	case errors.Is(err, context.DeadlineExceeded):
		return promengine.ErrQueryTimeout("query execution")
	case errors.Is(err, context.Canceled):
		return promengine.ErrQueryCanceled("query execution")
	}
	return storage.PlainError(err)
}

// errorTracker is the QueryTracker that the evaluator uses. Its Insert converts errors of the wrapped tracker to errors
// of the evaluator, wrapped in notAdmittedError.
type errorTracker struct{ promengine.QueryTracker }

// notAdmittedError is the error of a query that wasn't admitted.
type notAdmittedError struct{ error }

func (e notAdmittedError) Unwrap() error { return e.error }

// Insert implements promql.QueryTracker.
func (q errorTracker) Insert(ctx context.Context, text string) (int, error) {
	insert := func(ctx context.Context) (int, error) { return q.QueryTracker.Insert(ctx, text) }
	if g, ok := q.QueryTracker.(*gate); ok && readOf(ctx) == nil {
		// The evaluator also calls Insert before it parses a query.
		insert = g.enterParsing
	}
	i, err := insert(ctx)
	switch {
	case err == nil:
		return i, nil
	case errors.Is(err, context.DeadlineExceeded):
		err = promengine.ErrQueryTimeout("query queue")
	case errors.Is(err, context.Canceled):
		err = promengine.ErrQueryCanceled("query queue")
	default:
		err = asUnavailable(err)
	}
	return i, notAdmittedError{err}
}

// refusedQuery is a query that wasn't admitted to parsing. Its error is returned by Exec, because Prometheus' API would
// report an error of NewInstantQuery or NewRangeQuery as a syntax error.
type refusedQuery struct{ err error }

// Exec implements promql.Query.
func (q refusedQuery) Exec(context.Context) *promengine.Result { return &promengine.Result{Err: q.err} }

// Close implements promql.Query.
func (refusedQuery) Close() {}

// Cancel implements promql.Query.
func (refusedQuery) Cancel() {}

// Statement implements promql.Query.
func (refusedQuery) Statement() parser.Statement { return nil }

// Stats implements promql.Query.
func (refusedQuery) Stats() *stats.Statistics { return &stats.Statistics{} }

// String implements promql.Query.
func (refusedQuery) String() string { return "" }
