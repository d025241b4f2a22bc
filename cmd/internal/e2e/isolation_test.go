package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/storage/tenant"
)

// TestTenantsNeverMix checks that tenants are isolated. Other tenants store samples, exemplars and metadata, both under
// the names that one tenant uses and under names of their own. They also run queries, reach their limits, and delete
// everything that they may delete. None of this may change a response to the first tenant, and no response may contain
// data of another tenant. It covers all calls and all ways to name the tenant.
func TestTenantsNeverMix(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("asks a thousand calls four times: leave -short out")
	}
	cassia := startServe(t, "--storage.path="+t.TempDir())
	require.Eventually(t, func() bool { code, _ := cassia.Get(t, "/-/ready"); return code == http.StatusOK },
		cassiatest.Patience, 5*time.Millisecond)
	to := time.Now().Truncate(time.Minute)
	w := isolation{t: t, url: cassia.URL, apiRig: apiRig{from: to.Add(-(apiSamples - 1) * apiInterval), to: to}}
	w.readCalls()

	w.write("mine", apiData(t, w.from))
	require.Eventually(t, func() bool { // Metadata may be stored a little later.
		answer := w.ask(apiCall{method: http.MethodGet, path: "/api/v1/metadata", header: http.Header{}}, "mine", false)
		return bytes.Contains(answer.body, []byte("native"))
	}, cassiatest.Patience, 10*time.Millisecond)
	alone := w.answers("mine")
	for _, other := range []string{"other", "default", "mine2"} {
		w.write(other, apiData(t, w.from.Add(time.Second)))
		w.write(other, w.marked(other))
	}
	w.same(alone, w.answers("mine"), "others have stored")
	w.sees("other")

	code, text := cassia.Post(t, "/-/seal", nil)
	require.Equal(t, http.StatusOK, code, text)
	sealed := w.answers("mine")
	w.same(alone, sealed, "all is sealed")
	w.sees("other")

	for _, other := range []string{"other", "default"} {
		for _, path := range []string{
			"/api/v1/admin/tsdb/delete_series?match[]={__name__=~\".%2B\"}", "/api/v1/admin/tsdb/clean_tombstones",
		} {
			answer := w.ask(
				apiCall{line: path, method: http.MethodPost, path: w.fill(path), header: http.Header{}}, other, false,
			)
			require.Equal(t, http.StatusNoContent, answer.code, "%s", answer.body)
		}
	}
	w.same(alone, w.answers("mine"), "others have deleted what is theirs")
}

// isolation sends requests as one tenant and checks that the responses contain no data of other tenants.
type isolation struct {
	apiRig
	t     *testing.T
	url   string
	calls []apiCall
}

// marker returns a text that all data contains that a tenant stores under separate names.
func marker(name string) string { return "only_of_" + name }

// moreCalls contains calls to endpoints that Prometheus doesn't have.
var moreCalls = []string{
	"GET /api/v1/status/tsdb", "GET /api/v1/status/tsdb?limit=1000", "GET /api/v1/status/limits",
	"GET /api/v1/status/ha", "GET /api/v1/status/active_queries", "GET /api/v1/status/top_queries",
	"GET /api/v1/cassia/relabel",
	"GET /api/v1/query_exemplars?query={__name__=~\".%2B\"}&start={from}&end={next}", "GET /api/v1/metadata",
	"GET /api/v1/metadata?limit=3", "GET /federate?match[]={__name__=~\".%2B\"}", "GET /api/v1/labels",
	"GET /api/v1/label/__name__/values", "GET /api/v1/label/owner/values",
	"GET /api/v1/series?match[]={__name__=~\".%2B\"}", "GET /api/v1/query?query={__name__=~\".%2B\"}&time={to}",
	"GET /api/v1/query_range?query={__name__=~\".%2B\"}&start={from}&end={to}&step=60&resolution=5m",
	"GET /api/v1/query?query=count({__name__=~\".%2B\"}) by (__name__, __tenant_id__)&time={to}",
	"GET /api/metadata/metricNames", "GET /api/metadata/metricNames?tenant=other",
	"GET /api/metadata/tagKeys?metricName=requests_total",
	"GET /api/metadata/tagValues?metricName=requests_total&tagKey=job",
	"GET /api/metadata/tagKeys?tenant=other&metricName=only_of_other_total",
	"GET /api/query?metricName=requests_total&start={fromRFC}&end={toRFC}",
	"GET /api/query?tenant=other&metricName=only_of_other_total&start={fromRFC}&end={toRFC}",
	"GET /api/query?metricName=requests_total&tag=job=api&start={fromRFC}&end={toRFC}&alignmentPeriod=60s&aligner=ALIGN_RATE&reducer=REDUCE_SUM&groupBy=job",
	"GET /t/other/api/v1/query?query=up&time={to}",
}

// readCalls adds the calls that are compared with Prometheus, those in moreCalls, and a remote read of all series.
func (w *isolation) readCalls() {
	text, err := os.ReadFile("testdata/api-calls.txt")
	require.NoError(w.t, err)
	for _, line := range append(strings.Split(string(text), "\n"), moreCalls...) {
		if line == "" || line[0] == '#' {
			continue
		}
		call, err := w.parseAPICall(line)
		require.NoError(w.t, err, line)
		call.shape = call.shape || strings.Contains(call.path, "/status/") || strings.Contains(call.path, "stats=") ||
			strings.HasSuffix(call.path, "/snapshot") || // Each snapshot has a different name.
			// With a limit, it is undefined which series are returned.
			strings.HasPrefix(call.path, "/api/v1/series?") && strings.Contains(call.path, "limit=")
		w.calls = append(w.calls, call)
	}
	request := prompb.ReadRequest{Queries: []*prompb.Query{{
		StartTimestampMs: w.from.UnixMilli(), EndTimestampMs: w.to.UnixMilli(),
		Matchers: []*prompb.LabelMatcher{{Type: prompb.LabelMatcher_RE, Name: labels.MetricName, Value: ".+"}},
	}}}
	body, err := request.Marshal()
	require.NoError(w.t, err)
	w.calls = append(w.calls, apiCall{
		line: "remote read", method: http.MethodPost, path: "/api/v1/read", form: string(snappy.Encode(nil, body)),
		header: http.Header{"Content-Encoding": {"snappy"}, "Content-Type": {"application/x-protobuf"}},
	})
	require.Greater(w.t, len(w.calls), 500)
}

// ask sends a call as a tenant, which is named in the header or in the path.
func (w *isolation) ask(call apiCall, name string, inPath bool) apiAnswer {
	call.header = call.header.Clone()
	if inPath {
		call.path = "/t/" + name + call.path
	} else {
		call.header.Set(tenant.Header, name)
	}
	answer, err := call.ask(w.t.Context(), w.url)
	require.NoError(w.t, err, call.line)
	return answer
}

func (w *isolation) answers(name string) []apiAnswer {
	out := make([]apiAnswer, len(w.calls))
	for i, call := range w.calls {
		out[i] = w.ask(
			call, name, i%2 == 1 && !strings.HasPrefix(call.path, "/t/") && !strings.Contains(call.path, "/status/"),
		)
	}
	return out
}

// same requires that the responses are unchanged and contain no data of other tenants.
func (w *isolation) same(before, after []apiAnswer, when string) {
	w.t.Helper()
	for i, call := range w.calls {
		for _, word := range []string{marker("other"), marker("default"), marker("mine2")} {
			if strings.Contains(call.line, word) {
				continue // Responses may repeat parts of the request.
			}
			require.False(w.t, bytes.Contains(after[i].body, []byte(word)),
				"%s: %s has %q: %.500s", when, call.line, word, after[i].body)
		}
		require.Equal(w.t, before[i].code, after[i].code, "%s: %s: %.300s", when, call.line, after[i].body)
		if !call.shape {
			require.Empty(w.t, differences(call, before[i], after[i]), "%s: %s", when, call.line)
		}
	}
}

// sees requires that a tenant finds its own data. Without this, the check that other tenants don't find the data would
// prove nothing.
func (w *isolation) sees(name string) {
	w.t.Helper()
	for _, line := range []string{
		"GET /api/v1/status/tsdb?limit=1000", "GET /api/v1/metadata", "GET /api/v1/labels",
		"GET /api/v1/label/owner/values", "GET /api/v1/label/__name__/values",
		"GET /federate?match[]={__name__=~\".%2B\"}",
		"GET /api/v1/query_exemplars?query={__name__=~\".%2B\"}&start={from}&end={next}",
		"GET /api/v1/series?match[]={__name__=~\".%2B\"}", "GET /api/v1/query?query={__name__=~\".%2B\"}&time={to}",
		"GET /api/metadata/metricNames", "GET /api/query?metricName=only_of_other_total&start={fromRFC}&end={toRFC}",
	} {
		call, err := w.parseAPICall(line)
		require.NoError(w.t, err)
		if line == "GET /api/v1/status/tsdb?limit=1000" &&
			!bytes.Contains(w.ask(call, name, false).body, []byte(marker(name))) {
			continue // It lists only unsealed slots.
		}
		require.Eventually(w.t, func() bool { // Metadata may be stored a little later.
			return bytes.Contains(w.ask(call, name, false).body, []byte(marker(name)))
		}, cassiatest.Patience, 10*time.Millisecond, line)
	}
}

// marked returns a write request in which every text contains the marker of the tenant.
func (w *isolation) marked(name string) []byte {
	word := marker(name)
	symbols := writev2.NewSymbolTable()
	meta := writev2.Metadata{
		Type: writev2.Metadata_METRIC_TYPE_COUNTER, HelpRef: symbols.Symbolize(word), UnitRef: symbols.Symbolize(word),
	}
	var request writev2.Request
	for _, metric := range []string{"requests_total", "up", word + "_total", word} {
		ls := labels.FromStrings(labels.MetricName, metric, "owner", word, word, "1", "job", "api")
		s := writev2.TimeSeries{LabelsRefs: symbols.SymbolizeLabels(ls, nil), Metadata: meta}
		for i := range apiSamples {
			ts := w.from.Add(time.Duration(i) * apiInterval).UnixMilli()
			if metric == word {
				s.Histograms = append(s.Histograms, writev2.FromIntHistogram(0, ts, &histogram.Histogram{
					Count: 2, Sum: 1, PositiveSpans: []histogram.Span{{Length: 1}}, PositiveBuckets: []int64{2},
				}))
			} else {
				s.Samples = append(s.Samples, writev2.Sample{Timestamp: ts, Value: float64(i)})
			}
		}
		s.Exemplars = []writev2.Exemplar{{
			LabelsRefs: symbols.SymbolizeLabels(labels.FromStrings("trace_id", word), nil), Value: 1,
			Timestamp: w.to.Add(-time.Minute).UnixMilli(),
		}}
		request.Timeseries = append(request.Timeseries, s)
	}
	request.Symbols = symbols.Symbols()
	body, err := request.Marshal()
	require.NoError(w.t, err)
	return snappy.Encode(nil, body)
}

func (w *isolation) write(name string, body []byte) {
	w.t.Helper()
	answer := w.ask(
		apiCall{line: "write", method: http.MethodPost, path: "/api/v1/write", form: string(body), header: http.Header{
			"Content-Type":     {"application/x-protobuf;proto=io.prometheus.write.v2.Request"},
			"Content-Encoding": {"snappy"},
		}}, name, false,
	)
	require.Equal(w.t, http.StatusNoContent, answer.code, "%s", fmt.Sprintf("%.300s", answer.body))
}
