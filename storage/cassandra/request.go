package cassandra

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/gocql/gocql"
)

const (
	// firstPause is the approximate pause before the first retry. It doubles with each retry, up to lastPause.
	firstPause = 25 * time.Millisecond
	lastPause  = time.Second
	// maxOtherHosts is the number of other nodes that are tried immediately when a connection breaks.
	maxOtherHosts = 2
	// slowReader is the delay after which a second node is queried for a page. It is longer than healthy nodes take,
	// and too short for users to notice.
	slowReader = 250 * time.Millisecond
	// silentWriter is the delay after which a write is sent to a second node. Cassandra's nodes respond within 2 s
	// (write_request_timeout), possibly with an error. A node that hasn't responded by then is down rather than slow,
	// so the second request doesn't add load to overloaded nodes.
	silentWriter = 2500 * time.Millisecond
)

// reconnectInterval is the interval between the driver's attempts to connect to nodes that are down.
const reconnectInterval = 2 * time.Second

// noNodeTimeout is the time for which requests are retried while no node is up, because all connections may break for a
// moment. It is long enough for the driver to try to reconnect at least once.
const noNodeTimeout = reconnectInterval + time.Second

var errNoAnswer = errors.New("request timed out")

// sendRequest calls do, which sends a request to Cassandra once, until do succeeds or Options.Timeout has passed. After
// an error it repeats the call only if the function again returns true for the error. sendRequest uses one of the
// engine's slots, see Options.MaxInFlight. do returns the number of gocql's attempts.
func (e *Engine) sendRequest(
	ctx context.Context, op operation, again func(error) bool, do func(context.Context) (int, error),
) (err error) {
	if err := e.acquire(); err != nil {
		return err
	}
	defer e.release()
	ctx, cancel := context.WithTimeoutCause(ctx, e.opts.Timeout, errNoAnswer)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	start := time.Now()
	defer func() { e.metrics.observeRequest(op, time.Since(start), err) }()

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
		e.metrics.countRetries(op, attempts-1)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil && last == nil:
			return context.Cause(ctx)
		case ctx.Err() != nil:
			return last // The error before the deadline is more specific.
		case !again(err):
			return err
		case e.nodes.noNodeFor() > e.opts.noNodeTimeout:
			return err // No node can respond. The driver reconnects in the background, and the caller may retry.
		}
		last = err
		// Randomize the pause, so that requests that failed together aren't all retried together.
		select {
		case <-time.After(pause/2 + rand.N(pause)):
			e.metrics.countRetries(op, 1)
		case <-ctx.Done():
			return last
		}
	}
}

// querySecond makes gocql query one more node if the first one hasn't responded after delay; the first response counts.
// If only one node is up, there is no second query, because gocql would return the failure to find a second node as the
// response.
func (e *Engine) querySecond(delay time.Duration) gocql.SpeculativeExecutionPolicy {
	if up, _ := e.nodes.count(); up < 2 {
		return gocql.NonSpeculativeExecution{}
	}
	return &gocql.SimpleSpeculativeExecution{NumAttempts: 1, TimeoutDelay: min(delay, e.opts.Timeout/4)}
}

// retryOnOtherNode is the retry policy of idempotent requests: it sends a request to another node immediately if the
// connection to the first node is lost or the first node can't serve the request now. Errors that concern the whole
// cluster are left to sendRequest, which waits between attempts.
type retryOnOtherNode struct{}

var _ gocql.RetryPolicy = retryOnOtherNode{}

func (retryOnOtherNode) Attempt(q gocql.RetryableQuery) bool { return q.Attempts() <= maxOtherHosts }

func (retryOnOtherNode) GetRetryType(err error) gocql.RetryType {
	var request gocql.RequestError
	if errors.As(err, &request) {
		switch request.Code() {
		case gocql.ErrCodeOverloaded, gocql.ErrCodeBootstrapping:
			return gocql.RetryNextHost
		}
		return gocql.Rethrow
	}
	if isTransient(err) {
		return gocql.RetryNextHost
	}
	return gocql.Rethrow
}
