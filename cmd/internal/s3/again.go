package s3

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/cassia-db/cassia/cmd/internal/lasting"
)

// The client retries a request itself, up to maxTries times, after any connection error. It stops when the request's
// context ends. stopAtLasting therefore cancels the context after an error that a retry can't fix.

// stopKey is the context key of the function that cancels the request's context.
type stopKey struct{}

// withStop returns a context that stopAtLasting can cancel. The caller must call stop after the request.
func withStop(ctx context.Context) (_ context.Context, stop context.CancelCauseFunc) {
	ctx, stop = context.WithCancelCause(ctx)
	return context.WithValue(ctx, stopKey{}, stop), stop
}

// stopAtLasting is a transport that cancels the request's context after an error that a retry can't fix, with the error
// as the cause. A response that isn't from S3 is treated as such an error.
type stopAtLasting struct{ next http.RoundTripper }

func (s stopAtLasting) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := s.next.RoundTrip(r)
	if err == nil {
		err = checkAnswer(r, answer)
	}
	if lasts := lasting.ErrorOf(err, "ca-file in the URL"); lasts != nil {
		if stop, ok := r.Context().Value(stopKey{}).(context.CancelCauseFunc); ok {
			stop(lasts)
		}
		return nil, lasts
	}
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// retryInterrupted repeats a request if its response was interrupted. After other temporary errors, the client itself
// retries. The context passed to request is canceled afterwards, unless ctx is already from withStop.
func retryInterrupted(ctx context.Context, request func(context.Context) error) error {
	if ctx.Value(stopKey{}) == nil {
		var stop context.CancelCauseFunc
		ctx, stop = withStop(ctx)
		defer stop(nil)
	}
	for breaks := 0; ; breaks++ {
		err := request(ctx)
		var lasts *lasting.Error
		if err != nil && errors.As(context.Cause(ctx), &lasts) {
			return lasts
		}
		var cut *xml.SyntaxError
		if err == nil || breaks == maxBreaks || !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) &&
			!errors.As(err, &cut) {
			return err
		}
		if err := waitBeforeRetry(ctx, breaks); err != nil {
			return err
		}
	}
}

// maxBreaks is the max number of consecutive interrupted responses.
const maxBreaks = 6

// firstPause is the pause after the first interruption. Tests shorten it.
var firstPause = 100 * time.Millisecond

// waitBeforeRetry waits before the next attempt. The time doubles with the number of interruptions.
func waitBeforeRetry(ctx context.Context, breaks int) error {
	select {
	case <-time.After(firstPause << breaks):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// isTriedAgain reports whether the client retries a request after this error response.
func isTriedAgain(r minio.ErrorResponse) bool {
	switch r.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable,
		http.StatusGatewayTimeout, 499, 520: // Proxies use the last two.
		return true
	}
	switch r.Code {
	case "RequestTimeout", "Throttling", "ThrottlingException", "RequestLimitExceeded", "RequestThrottled", "SlowDown",
		"SlowDownRead", "SlowDownWrite":
		return true
	}
	return false
}
