package cassandra

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/gocql/gocql"
)

const (
	// firstPause is about how long is waited before a request is sent again; it doubles up to lastPause.
	firstPause = 25 * time.Millisecond
	lastPause  = time.Second
	// nextHosts is how many other nodes are tried at once when a connection breaks.
	nextHosts = 2
)

var errNoAnswer = errors.New("no answer in time")

// request runs do, which sends something to Cassandra once, as often as it takes and as again allows,
// within the bounds: a slot of the engine's, and Options.Timeout. do returns how often gocql tried.
func (e *Engine) request(ctx context.Context, op operation, again func(error) bool, do func(context.Context) (int, error)) (err error) {
	if err := e.use(); err != nil {
		return err
	}
	defer e.release()
	ctx, cancel := context.WithTimeoutCause(ctx, e.opts.Timeout, errNoAnswer)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	start := time.Now()
	defer func() { e.metrics.done(op, time.Since(start), err) }()

	select {
	case e.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	e.metrics.inFlight.Inc()
	defer func() {
		e.metrics.inFlight.Dec()
		<-e.slots
	}()
	var last error
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		attempts, err := do(ctx)
		e.metrics.retried(op, attempts-1)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil && last == nil:
			return context.Cause(ctx)
		case ctx.Err() != nil:
			return last // What went wrong before time was up says more.
		case !again(err):
			return err
		}
		last = err
		// Some randomness keeps those that failed together from coming back together.
		select {
		case <-time.After(pause/2 + rand.N(pause)):
			e.metrics.retried(op, 1)
		case <-ctx.Done():
			return last
		}
	}
}

// elsewhere makes gocql send a request that may be sent twice to another node at once if the first one is
// lost or knows that it can't serve now. What is a matter of the whole cluster is left to request, which
// gives it time.
type elsewhere struct{}

var _ gocql.RetryPolicy = elsewhere{}

// Attempt implements gocql.RetryPolicy.
func (elsewhere) Attempt(q gocql.RetryableQuery) bool { return q.Attempts() <= nextHosts }

// GetRetryType implements gocql.RetryPolicy.
func (elsewhere) GetRetryType(err error) gocql.RetryType {
	var request gocql.RequestError
	if errors.As(err, &request) {
		switch request.Code() {
		case gocql.ErrCodeOverloaded, gocql.ErrCodeBootstrapping:
			return gocql.RetryNextHost
		}
		return gocql.Rethrow
	}
	if transient(err) {
		return gocql.RetryNextHost
	}
	return gocql.Rethrow
}
