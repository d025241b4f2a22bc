// Package remoteread reads history through Prometheus' remote read protocol, which Prometheus, Thanos, Mimir and others
// implement. cmd/cassia runs its source through package importer; package fetch does retries and positions.
//
//	a day and selector ─► request ─► streamed chunks, or else samples ─► Gatherer
//
// Specification: https://prometheus.io/docs/specs/prw/remote_read_spec/
package remoteread

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/adapter/importer"
	"github.com/cassia-db/cassia/adapter/importer/fetch"
	"github.com/cassia-db/cassia/storage/chunk"
)

const (
	// maxFrame bounds a frame of streamed chunks, and maxAnswer a response with samples, encoded and decoded, in bytes.
	maxFrame  = 64 << 20
	maxAnswer = 512 << 20

	streamedType = "application/x-streamed-protobuf"
)

// Options select what to read.
type Options struct {
	Client fetch.Client
	importer.Selection
	// Width is the time range of a request. A day must be a multiple of it.
	Width time.Duration
	Now   func() time.Time
}

// New returns a source.
func New(o Options) *fetch.Days {
	r := &reader{Options: o}
	return &fetch.Days{
		Words: "remote read from " + o.Client.URL.Redacted(), Selection: o.Selection, Width: o.Width, Now: o.Now,
		Wait: fetch.Sleep, Fetch: r.fetch,
	}
}

type reader struct{ Options }

// fetch sends one request per selector and skips series that an earlier selector returned.
func (r *reader) fetch(
	ctx context.Context, minMS, maxMS int64, g *importer.Gatherer, take func(importer.Tail) error,
) error {
	selectors := r.Matchers
	if len(selectors) == 0 {
		selectors = [][]*labels.Matcher{{labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, ".+")}}
	}
	for i, ms := range selectors {
		before := importer.Selection{Matchers: selectors[:i]}
		q := &query{g: g, take: take, known: func(ls labels.Labels) bool { return i > 0 && before.Wants(ls) }}
		if err := r.request(ctx, minMS, maxMS, ms, q); err != nil {
			return err
		}
	}
	return nil
}

// request sends one request.
func (r *reader) request(ctx context.Context, minMS, maxMS int64, ms []*labels.Matcher, q *query) error {
	pq, err := remote.ToQuery(minMS, maxMS, ms, nil)
	if err != nil {
		return err
	}
	request := prompb.ReadRequest{
		Queries: []*prompb.Query{pq},
		AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{
			prompb.ReadRequest_STREAMED_XOR_CHUNKS, prompb.ReadRequest_SAMPLES,
		},
	}
	text, err := request.Marshal()
	if err != nil {
		return err
	}
	answer, err := r.Client.Do(
		ctx, http.MethodPost, r.Client.URL, bytes.NewReader(snappy.Encode(nil, text)), http.Header{
			"Content-Type": {"application/x-protobuf"}, "Content-Encoding": {"snappy"}, "Accept-Encoding": {"snappy"},
			"X-Prometheus-Remote-Read-Version": {"0.1.0"}, "User-Agent": {"cassia"},
		},
	)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // the body was only read
	switch kind := answer.Header.Get("Content-Type"); {
	case strings.HasPrefix(kind, streamedType):
		return q.readChunks(answer.Body)
	case strings.HasPrefix(kind, "application/x-protobuf"):
		return q.readSamples(answer.Body)
	default:
		return fmt.Errorf("the response of %s is %q, so the server doesn't support remote read",
			r.Client.URL.Redacted(), importer.Shorten(kind))
	}
}

// query decodes the response for one selector.
type query struct {
	g     *importer.Gatherer
	take  func(importer.Tail) error
	known func(labels.Labels) bool

	b    labels.ScratchBuilder
	name []byte
	into *chunk.Samples
	it   chunkenc.Iterator
}

// startSeries starts a series, or continues the current one.
func (q *query) startSeries(ls []prompb.Label) error {
	q.b.Reset()
	for _, l := range ls {
		if err := adapter.CheckLabelText(l.Name, l.Value); err != nil {
			return err
		}
		q.b.Add(l.Name, l.Value)
	}
	q.b.Sort()
	all := q.b.Labels()
	if name, twice := all.HasDuplicateLabelNames(); twice {
		return fmt.Errorf("the response has a series with the label %q twice", importer.Shorten(name))
	}
	if q.known(all) {
		q.into = nil
		return nil
	}
	q.name = all.Bytes(q.name)
	var ok bool
	if q.into, ok = q.g.Known(q.name); ok {
		return nil
	}
	if q.g.Full() {
		if err := q.take(importer.Tail{}); err != nil {
			return err
		}
	}
	q.into = q.g.Series(q.name, all)
	return nil
}

// readChunks decodes streamed chunks. A series may be split across consecutive frames.
func (q *query) readChunks(r io.Reader) error {
	frames := remote.NewChunkedReader(r, maxFrame, nil)
	for {
		text, err := frames.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fetch.MarkRetryable(err)
		}
		var answer prompb.ChunkedReadResponse
		if err := answer.Unmarshal(text); err != nil {
			return fmt.Errorf("invalid frame in the response: %w", err)
		}
		for _, s := range answer.ChunkedSeries {
			if err := q.startSeries(s.Labels); err != nil {
				return err
			}
			for i := range s.Chunks {
				if err := q.addChunk(&s.Chunks[i]); err != nil {
					return fmt.Errorf("chunk of %s: %w", importer.Shorten(q.b.Labels().String()), err)
				}
			}
		}
	}
}

// addChunk adds the samples of a chunk.
func (q *query) addChunk(c *prompb.Chunk) error {
	if q.into == nil {
		return nil
	}
	decoded, err := chunkenc.FromData(chunkenc.Encoding(c.Type), c.Data)
	if err != nil {
		return err
	}
	q.it = decoded.Iterator(q.it)
	for {
		switch q.it.Next() {
		case chunkenc.ValNone:
			return q.it.Err()
		case chunkenc.ValFloat:
			t, v := q.it.At()
			q.g.Float(q.into, t, q.it.AtST(), v)
		case chunkenc.ValHistogram:
			t, h := q.it.AtHistogram(nil)
			q.g.Histogram(q.into, chunk.Histogram{T: t, ST: q.it.AtST(), Int: h})
		case chunkenc.ValFloatHistogram:
			t, h := q.it.AtFloatHistogram(nil)
			q.g.Histogram(q.into, chunk.Histogram{T: t, ST: q.it.AtST(), Float: h})
		}
	}
}

// readSamples decodes a response that isn't streamed.
func (q *query) readSamples(r io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(r, maxAnswer+1))
	if err != nil {
		return fetch.MarkRetryable(err)
	}
	n, err := snappy.DecodedLen(text)
	if err == nil && (n > maxAnswer || len(text) > maxAnswer) {
		return fmt.Errorf(
			"the response has more than %d MiB, and the server doesn't stream; reduce it with --match or --piece",
			maxAnswer>>20,
		)
	}
	if err == nil {
		text, err = snappy.Decode(nil, text)
	}
	var answer prompb.ReadResponse
	if err == nil {
		err = answer.Unmarshal(text)
	}
	if err != nil {
		return fmt.Errorf("invalid response: %w", err)
	}
	for _, result := range answer.Results {
		for _, s := range result.Timeseries {
			if err := q.startSeries(s.Labels); err != nil {
				return err
			}
			if q.into == nil {
				continue
			}
			for _, x := range s.Samples {
				q.g.Float(q.into, x.Timestamp, 0, x.Value)
			}
			for _, h := range s.Histograms {
				if h.IsFloatHistogram() {
					q.g.Histogram(q.into, chunk.Histogram{T: h.Timestamp, Float: h.ToFloatHistogram()})
				} else {
					q.g.Histogram(q.into, chunk.Histogram{T: h.Timestamp, Int: h.ToIntHistogram()})
				}
			}
		}
	}
	return nil
}
