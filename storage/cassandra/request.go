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
	// slowReader is when another node is asked for a page that doesn't come: later than healthy nodes
	// answer, sooner than a person minds.
	slowReader = 250 * time.Millisecond
	// silentWriter is when another node is sent a write that isn't answered. Cassandra's nodes answer within
	// 2 s (write_request_timeout), with an error if need be: one that hasn't by now is gone, not slow, and
	// the cluster isn't burdened with writes that were only late.
	silentWriter = 2500 * time.Millisecond
)

// knockEvery is how often the driver tries to connect to nodes that are down.
const knockEvery = 2 * time.Second

// darkTime is how long a request is sent again where no node is up: connections may break for a moment. The driver has
// knocked in vain by then.
const darkTime = knockEvery + time.Second

var errNoAnswer = errors.New("request timed out")

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
			return last // The error before the deadline is more specific.
		case !again(err):
			return err
		case e.nodes.darkFor() > e.opts.dark:
			return err // Nobody is there to answer. The driver knocks by itself, and who asked may come again.
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

// alsoAsk makes gocql ask one more node, when the first one hasn't answered after delay; the first answer
// counts. With a single node up gocql would take its absence for the answer, so then there is no second.
func (e *Engine) alsoAsk(delay time.Duration) gocql.SpeculativeExecutionPolicy {
	if up, _ := e.nodes.count(); up < 2 {
		return gocql.NonSpeculativeExecution{}
	}
	return &gocql.SimpleSpeculativeExecution{NumAttempts: 1, TimeoutDelay: min(delay, e.opts.Timeout/4)}
}

// elsewhere makes gocql send a request that may be sent twice to another node at once if the first one is
// lost or can't serve now. Errors that concern the whole cluster are left to request, which
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
