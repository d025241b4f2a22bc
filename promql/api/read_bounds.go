package api

import (
	"fmt"
	"io"
	"net/http"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/remote"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/bounds"
)

// These constants bound a request of remote read. Decoded, an empty query takes 36 times the two bytes of its encoding,
// and compression makes the encoding 20 times smaller. So the request is checked before Prometheus' handler decodes it.
const (
	// maxReadBytes is the maximum size of the uncompressed request, in bytes.
	maxReadBytes = 1 << 20
	// maxReadQueries is the maximum number of queries of a request, and maxReadMatchers the maximum number of matchers
	// of a query.
	maxReadQueries  = 100
	maxReadMatchers = 1000
)

// serveRead serves remote read. It rejects requests that exceed the bounds above.
func (a *api) serveRead(w http.ResponseWriter, r *http.Request) {
	compressed, err := io.ReadAll(io.LimitReader(r.Body, maxReadBytes+1))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	request, code, problem := decodeRead(compressed)
	if problem != "" {
		http.Error(w, problem, code)
		return
	}
	kind, err := remote.NegotiateResponseType(request.AcceptedResponseTypes)
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	case kind == prompb.ReadRequest_STREAMED_XOR_CHUNKS:
		a.sendFrames(w, r, request)
	default:
		a.sendSamples(w, r, request)
	}
}

// hintsOf returns the hints of a query, or nil if it has none.
func hintsOf(q *prompb.Query) *promstorage.SelectHints {
	h := q.Hints
	if h == nil {
		return nil
	}
	return &promstorage.SelectHints{Start: h.StartMs, End: h.EndMs, Step: h.StepMs, Func: h.Func, Grouping: h.Grouping,
		Range: h.RangeMs, By: h.By}
}

// decodeRead decodes a request. If the request is invalid, it returns a status code and a text; otherwise the text is
// empty.
func decodeRead(compressed []byte) (*prompb.ReadRequest, int, string) {
	size, err := snappy.DecodedLen(compressed)
	switch {
	case len(compressed) > maxReadBytes, err == nil && size > maxReadBytes:
		return nil, http.StatusRequestEntityTooLarge, fmt.Sprintf("a remote read request may have at most %d bytes",
			maxReadBytes)
	case err != nil:
		return nil, http.StatusBadRequest, err.Error()
	}
	text, err := snappy.Decode(nil, compressed)
	if err != nil {
		return nil, http.StatusBadRequest, err.Error()
	}
	var request prompb.ReadRequest
	if err := request.Unmarshal(text); err != nil {
		return nil, http.StatusBadRequest, err.Error()
	}
	if n := len(request.Queries); n > maxReadQueries {
		return nil, http.StatusRequestEntityTooLarge, fmt.Sprintf("the request has %d queries; the maximum is %d", n,
			maxReadQueries)
	}
	for _, q := range request.Queries {
		if n := len(q.Matchers); n > maxReadMatchers {
			return nil, http.StatusRequestEntityTooLarge, fmt.Sprintf("the query has %d matchers; the maximum is %d", n,
				maxReadMatchers)
		}
		if err := checkRegexps(q.Matchers); err != nil {
			return nil, http.StatusUnprocessableEntity, storage.PlainText(err.Error())
		}
		if _, err := remote.FromLabelMatchers(q.Matchers); err != nil {
			// Without this check, Prometheus' handler would report an internal error.
			return nil, http.StatusBadRequest, err.Error()
		}
	}
	return &request, 0, ""
}

func checkRegexps(matchers []*prompb.LabelMatcher) error {
	var texts []string
	for _, m := range matchers {
		if m.Type == prompb.LabelMatcher_RE || m.Type == prompb.LabelMatcher_NRE {
			texts = append(texts, m.Value)
		}
	}
	return bounds.CheckRegexps(texts...)
}
