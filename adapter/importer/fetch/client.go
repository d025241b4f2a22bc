package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cassia-db/cassia/adapter/importer"
)

// Client sends requests.
type Client struct {
	// HTTP sends the requests. Errors of its transport are wrapped in a BusyError and so retried, except errors with a
	// method Lasting() bool that returns true.
	HTTP *http.Client
	// URL is the URL of the server. Header is added to each request, for example for authentication.
	URL    *url.URL
	Header http.Header
}

// ParseURL parses the URL of a server. A user and password in it are moved to h.
func ParseURL(text string, h http.Header) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("fetch: %s must be a URL such as http://localhost:9090/api/v1/read",
			importer.Shorten(text))
	}
	if u.User != nil {
		password, _ := u.User.Password()
		r := http.Request{Header: h}
		r.SetBasicAuth(u.User.Username(), password)
		u.User = nil
	}
	return u, nil
}

// BusyError means that a server is temporarily unavailable or a connection broke: the request may be retried.
type BusyError struct {
	Err error
	// After is the server's Retry-After, 0 if it sent none.
	After time.Duration
}

func (e *BusyError) Error() string { return e.Err.Error() }
func (e *BusyError) Unwrap() error { return e.Err }

// StatusError is a response with a status other than 200.
type StatusError struct {
	Code int
	Err  error
}

func (e *StatusError) Error() string { return e.Err.Error() }
func (e *StatusError) Unwrap() error { return e.Err }

// maxWait bounds the wait between two attempts.
const maxWait = time.Minute

// Wait returns the wait after the given attempt, counted from 1.
func (e *BusyError) Wait(try int) time.Duration {
	if e.After > 0 {
		return min(e.After, maxWait)
	}
	return min(time.Second<<(try-1), maxWait)
}

// maxErrorBody bounds the part of an error response that is read.
const maxErrorBody = 4 << 10

// Do sends a request and returns a response with status 200. The caller must close its body.
func (c *Client) Do(
	ctx context.Context, method string, u *url.URL, body io.Reader, h http.Header,
) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, err
	}
	for _, headers := range []http.Header{h, c.Header} {
		for name, values := range headers {
			r.Header[name] = values
		}
	}
	answer, err := c.HTTP.Do(r)
	if err != nil {
		var e *url.Error
		if errors.As(err, &e) {
			err = fmt.Errorf("%s: %w", u.Redacted(), e.Err)
		}
		var lasts interface{ Lasting() bool }
		if errors.As(err, &lasts) && lasts.Lasting() {
			return nil, err
		}
		return nil, &BusyError{Err: err}
	}
	if answer.StatusCode == http.StatusOK {
		return answer, nil
	}
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxErrorBody))
	err = &StatusError{answer.StatusCode, fmt.Errorf("%s returned %s: %s", u.Redacted(), answer.Status,
		importer.Shorten(strings.Join(strings.Fields(string(text)), " ")))}
	if cerr := answer.Body.Close(); cerr != nil {
		err = errors.Join(err, cerr)
	}
	if answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode >= 500 {
		seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
		return nil, &BusyError{err, time.Duration(seconds) * time.Second}
	}
	return nil, err
}

// MarkRetryable marks an error of reading a response as retryable.
func MarkRetryable(err error) error {
	if err == nil {
		return nil
	}
	return &BusyError{Err: fmt.Errorf("the response was interrupted: %w", err)}
}
