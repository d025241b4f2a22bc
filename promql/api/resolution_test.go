package api

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

func TestQueriesTellFromWhatTheyWereAnswered(t *testing.T) {
	var registry prometheus.Gatherer
	r := newRig(t, func(o *Options) { registry = o.Gatherer })
	require.NoError(t, r.store.SealAll(t.Context()))
	ask := func(path string, params url.Values) *httptest.ResponseRecorder {
		w := r.do(httptest.NewRequest(http.MethodGet, Prefix+path+"?"+params.Encode(), nil))
		return w
	}
	query := url.Values{"query": {"max_over_time(m[5h])"}, "time": {"300"}}
	with := func(more ...string) url.Values {
		v := url.Values{}
		for k, list := range query {
			v[k] = list
		}
		for i := 0; i < len(more); i += 2 {
			v.Set(more[i], more[i+1])
		}
		return v
	}
	for _, c := range []struct {
		params url.Values
		want   string
	}{
		{with(), "5m"},
		{with("resolution", "raw"), "raw"},
		{with("resolution", "auto"), "5m"},
		{with("max_source_resolution", "0s"), "raw"},
		{with("max_source_resolution", "5m"), "5m"},
		{with("max_source_resolution", "300"), "5m"},
		{with("max_source_resolution", "299.5"), "raw"},
		{with("max_source_resolution", "0"), "raw"},
		{with("max_source_resolution", "auto"), "5m"},
		{with("time", "301"), "raw"},
		{with("resolution", "1h"), "1h snapped"},
		{with("query", "1"), ""},
		{with("query", "m + max_over_time(m[5h])", "resolution", "raw"), "raw"},
	} {
		w := ask("/query", c.params)
		require.Equal(t, http.StatusOK, w.Code, w.Body.String())
		require.Equal(t, c.want, w.Header().Get(ResolutionHeader), c.params.Encode())
	}
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
		# HELP cassia_query_answers_total Queries by the resolutions they read, and by window edges: exact, snapped to bucket edges, or widened to buckets. A query that reads multiple resolutions counts for each.
		# TYPE cassia_query_answers_total counter
		cassia_query_answers_total{edges="exact",resolution="5m"} 5
		cassia_query_answers_total{edges="exact",resolution="raw"} 6
		cassia_query_answers_total{edges="snapped",resolution="1h"} 1
	`), "cassia_query_answers_total"))
	w := ask("/query_range", url.Values{"query": {"sum(max_over_time(m[5h]))"}, "start": {"0"}, "end": {"300"},
		"step": {"300"}, "stats": {"all"}})
	require.Equal(t, "5m", w.Header().Get(ResolutionHeader))
	var body struct {
		Data struct {
			Stats struct {
				Samples map[string]any
				Parts   []struct {
					Expr     string
					Series   int
					Samples  int
					Segments []struct{ From, Resolution, Edges string }
				}
			}
		}
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &body))
	require.NotEmpty(t, body.Data.Stats.Samples)
	require.Len(t, body.Data.Stats.Parts, 1)
	p := body.Data.Stats.Parts[0]
	require.Equal(t, "sum(max_over_time(m[5h]))", p.Expr)
	require.Equal(t, 2, p.Series)
	require.Equal(t, 4, p.Samples, "buckets")
	require.Equal(t, "5m", p.Segments[0].Resolution)
	require.Equal(t, "exact", p.Segments[0].Edges)
	require.Equal(t, "1970-01-01T00:00:00Z", p.Segments[0].From)

	for _, wrong := range [][2]string{{"resolution", "2m"}, {"max_source_resolution", "x"},
		{"max_source_resolution", "-1"}, {"max_source_resolution", "NaN"}, {"max_source_resolution", "1e12"}} {
		param := wrong[0]
		w := ask("/query", with(param, wrong[1]))
		require.Equal(t, http.StatusBadRequest, w.Code)
		require.Contains(t, w.Body.String(), `invalid parameter \"`+param)
		require.Contains(t, w.Body.String(), `"errorType":"bad_data"`)
	}
	require.NotContains(t, ask("/query", with("stats", "true")).Body.String(), `"parts"`)
}
