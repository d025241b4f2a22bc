package overhttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/cassia-db/cassia/adapter/importer"
	"github.com/cassia-db/cassia/adapter/importer/fetch"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/tenant"
)

// Client sends history to a server. It implements importer.Destination. Its methods must not be called concurrently.
type Client struct {
	// To makes the requests. Its URL is the URL of the server.
	To fetch.Client
	// Patience is the maximum time for which a request is repeated while the server is unreachable or busy.
	Patience time.Duration
	// Wait waits for a duration before a request is repeated, or until ctx ends. Now is the clock.
	Wait func(ctx context.Context, d time.Duration) error
	Now  func() time.Time
	// Waiting, if not nil, is called with the error that caused each wait.
	Waiting func(err error)

	terms *Terms
}

// requestTimeout bounds one request. A busy server may need minutes for a large body.
const requestTimeout = 30 * time.Minute

// maxAnswer is the maximum size of a response, in bytes.
const maxAnswer = 16 << 20

var (
	// errUnsupported means that the server doesn't accept imports from this version.
	errUnsupported = errors.New("overhttp: the server doesn't accept imports")
	// errUnavailable means that the server was unreachable or busy for longer than Patience.
	errUnavailable = errors.New("overhttp: gave up waiting for the server")
)

// Terms requests the server's terms at its first call and returns the cached terms afterwards.
func (c *Client) Terms(ctx context.Context, name string) (Terms, error) {
	if c.terms != nil {
		return *c.terms, nil
	}
	var t Terms
	err := c.retryWhileBusy(ctx, func(ctx context.Context) error {
		return c.sendRequest(ctx, http.MethodGet, name, "", nil, nil, &t)
	})
	var status *fetch.StatusError
	if errors.As(err, &status) && (status.Code == http.StatusNotFound || status.Code == http.StatusMethodNotAllowed) {
		return t, fmt.Errorf("%w; check that it is Cassia of this version or later, with --target=all or write: %w",
			errUnsupported, err)
	}
	if err != nil {
		return t, err
	}
	if t.Version != bodyVersion || t.MaxBytes <= 0 || t.MaxWeight <= 0 || t.Store == "" {
		return t, fmt.Errorf("%w: it accepts bodies of version %d, not %d", errUnsupported, t.Version, bodyVersion)
	}
	c.terms = &t
	return t, nil
}

// Identity implements importer.Destination.
func (c *Client) Identity(ctx context.Context, name string) (string, error) {
	terms, err := c.Terms(ctx, name)
	return terms.Store, err
}

// Import implements importer.Destination.
func (c *Client) Import(
	ctx context.Context, name string, list []storage.ImportedSeries,
) (all storage.ImportStats, err error) {
	err = c.sendSeries(ctx, name, list, &all, c.importInto(name, &all))
	return all, err
}

// importInto returns a function that sends a body and adds the server's stats to all.
func (c *Client) importInto(name string, all *storage.ImportStats) func(context.Context, []byte) error {
	return func(ctx context.Context, body []byte) error {
		var answer importResponse
		if err := c.sendRequest(ctx, http.MethodPost, name, "", nil, body, &answer); err != nil {
			return err
		}
		all.Add(answer.stats())
		return nil
	}
}

// ImportBuckets implements importer.Destination. Each body holds buckets of one resolution.
func (c *Client) ImportBuckets(
	ctx context.Context, name string, list []storage.ImportedBuckets,
) (all storage.ImportStats, err error) {
	terms, err := c.Terms(ctx, name)
	if err != nil {
		return all, err
	}
	for _, res := range rollup.Resolutions {
		p := &packer{
			most: terms, stats: &all,
			send: func(series [][]byte) error { return c.sendAll(ctx, res, series, c.importInto(name, &all)) },
		}
		for _, s := range list {
			if s.Labels = s.Labels.WithoutEmpty(); s.Resolution == res {
				if err := p.addBuckets(s); err != nil {
					return all, err
				}
			}
		}
		if err := p.flush(); err != nil {
			return all, err
		}
	}
	return all, nil
}

// Compare implements importer.Destination.
func (c *Client) Compare(
	ctx context.Context, name string, list []storage.ImportedSeries, within query.Span,
	report func(importer.Difference),
) (all importer.VerifyStats, err error) {
	var unsent storage.ImportStats
	err = c.sendSeries(ctx, name, list, &unsent, func(ctx context.Context, body []byte) error {
		var answer compareResponse
		if err := c.sendRequest(ctx, http.MethodPost, name, "compare", spanQuery(within), body, &answer); err != nil {
			return err
		}
		all.Add(answer.Stats)
		for _, d := range answer.Differences {
			report(d.difference())
		}
		return nil
	})
	return all, err
}

// sendSeries sends series in bodies within the server's terms. unsent counts the samples that aren't sent, because
// every store would reject them.
func (c *Client) sendSeries(
	ctx context.Context, name string, list []storage.ImportedSeries, unsent *storage.ImportStats,
	send func(context.Context, []byte) error,
) error {
	terms, err := c.Terms(ctx, name)
	if err != nil {
		return err
	}
	p := &packer{
		most: terms, stats: unsent,
		send: func(series [][]byte) error { return c.sendAll(ctx, rollup.Raw, series, send) },
	}
	for _, s := range mergeSeries(list) {
		if err := p.add(s); err != nil {
			return err
		}
	}
	return p.flush()
}

// sendAll sends series as one body. If the server or a proxy rejects the body as too large, it splits the series into
// two bodies, and splits these again if necessary.
func (c *Client) sendAll(
	ctx context.Context, res rollup.Resolution, series [][]byte, send func(context.Context, []byte) error,
) error {
	body := encodeRollups(res, series)
	err := c.retryWhileBusy(ctx, func(ctx context.Context) error { return send(ctx, body) })
	var status *fetch.StatusError
	if !errors.As(err, &status) || status.Code != http.StatusRequestEntityTooLarge || len(series) == 1 {
		return err
	}
	c.terms.MaxBytes = max(1, min(c.terms.MaxBytes, int64(len(body)))/2)
	for _, half := range [][][]byte{series[:len(series)/2], series[len(series)/2:]} {
		if err := c.sendAll(ctx, res, half, send); err != nil {
			return err
		}
	}
	return nil
}

// retryWhileBusy repeats a request while the server is unreachable or busy, for at most Patience.
func (c *Client) retryWhileBusy(ctx context.Context, request func(context.Context) error) error {
	began := c.Now()
	for try := 1; ; try++ {
		err := func() error {
			ctx, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			return request(ctx)
		}()
		var busy *fetch.BusyError
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.As(err, &busy):
			return err
		}
		wait := min(busy.Wait(try), maxWait)
		if c.Now().Add(wait).Sub(began) > c.Patience {
			return fmt.Errorf("%w after %s: %w", errUnavailable, c.Patience, err)
		}
		if c.Waiting != nil {
			c.Waiting(err)
		}
		if err := c.Wait(ctx, wait); err != nil {
			return err
		}
	}
}

// maxWait is the maximum wait between two tries. A killed server usually restarts within seconds.
const maxWait = 10 * time.Second

// sendRequest sends a request for a tenant and decodes the response.
func (c *Client) sendRequest(
	ctx context.Context, method, name, what string, query url.Values, body []byte, into any,
) error {
	u := c.To.URL.JoinPath(Path, what)
	if len(query) > 0 {
		u.RawQuery = query.Encode()
	}
	h := http.Header{tenant.Header: {name}}
	if method == http.MethodPost {
		h.Set("Content-Type", contentType)
		h.Set("Content-Encoding", contentEncoding)
		h.Set(retentionHeader, c.terms.retentionText())
	}
	answer, err := c.To.Do(ctx, method, u, bytes.NewReader(body), h)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return fetch.MarkRetryable(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%w: %s returned %s", errUnsupported, u.Redacted(), importer.Shorten(string(text)))
	}
	return nil
}

// Path is the path of the import endpoint.
const Path = "/api/v1/cassia/import"

// Location returns the URL of the server for people and checkpoints.
func (c *Client) Location() string { return c.To.URL.String() }
