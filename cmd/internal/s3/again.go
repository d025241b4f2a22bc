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

// The client makes requests again by itself, up to maxTries times, after whatever error of the connection there is. It stops when the
// request's context ends, so stopAtLasting ends that at an error that lasts.

// stopKey is of the function in a request's context that ends it.
type stopKey struct{}

// stoppable returns a context that stopAtLasting can end. stop must be called in the end.
func stoppable(ctx context.Context) (_ context.Context, stop context.CancelCauseFunc) {
	ctx, stop = context.WithCancelCause(ctx)
	return context.WithValue(ctx, stopKey{}, stop), stop
}

// stopAtLasting is a transport that ends the context of a request whose error lasts, with that error as the cause. An answer that isn't S3's is
// such an error.
type stopAtLasting struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (s stopAtLasting) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := s.next.RoundTrip(r)
	if err == nil {
		err = checkAnswer(r, answer)
	}
	if lasts := lasting.Of(err, "ca-file in the URL"); lasts != nil {
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

// again makes a request again if its answer broke off; whatever else may succeed at another time the client tries itself. The request is
// given a context that ends with it, unless ctx is one of stoppable already.
func again(ctx context.Context, request func(context.Context) error) error {
	if ctx.Value(stopKey{}) == nil {
		var stop context.CancelCauseFunc
		ctx, stop = stoppable(ctx)
		defer stop(nil)
	}
	for breaks := 0; ; breaks++ {
		err := request(ctx)
		var lasts *lasting.Error
		if err != nil && errors.As(context.Cause(ctx), &lasts) {
			return lasts
		}
		var cut *xml.SyntaxError
		if err == nil || breaks == maxBreaks || !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) && !errors.As(err, &cut) {
			return err
		}
		if err := pause(ctx, breaks); err != nil {
			return err
		}
	}
}

// maxBreaks bounds how often in a row an answer may break off.
const maxBreaks = 6

// firstPause is the pause after the first time; tests shorten it.
var firstPause = 100 * time.Millisecond

// pause waits longer each time.
func pause(ctx context.Context, breaks int) error {
	select {
	case <-time.After(firstPause << breaks):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// isTriedAgain reports whether the client makes a request again after such an answer.
func isTriedAgain(r minio.ErrorResponse) bool {
	switch r.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout, 499, 520: // The last two are proxies' own.
		return true
	}
	switch r.Code {
	case "RequestTimeout", "Throttling", "ThrottlingException", "RequestLimitExceeded", "RequestThrottled", "SlowDown", "SlowDownRead", "SlowDownWrite":
		return true
	}
	return false
}
