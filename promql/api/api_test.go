package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/grafana/regexp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/features"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/promql"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/meter"
	"github.com/cassia-db/cassia/storage/storagetest"
	"github.com/cassia-db/cassia/storage/tenant"
)

type rig struct {
	http.Handler
	store *storage.Store
}

// newRig returns the API on a store in memory with two series of 300 samples each, one per second.
func newRig(t *testing.T, change func(*Options)) rig {
	return newRigOver(t, storagetest.KeepForever, change)
}

func newRigOver(t *testing.T, stored func(*storage.Options), change func(*Options)) rig {
	store := storagetest.Open(t, memory.New(), stored)
	for _, who := range []string{"default", "other"} {
		b := store.NewBatch(who)
		for i := range 2 {
			ls := labels.FromStrings(model.MetricNameLabel, "m", "i", fmt.Sprint(i), "tenant", who)
			storagetest.Add(t, b, ls, storagetest.Samples(0, 1000, 300, func(i int) float64 { return float64(i) })...)
		}
		require.NoError(t, b.Commit(t.Context()))
	}
	return rig{apiOver(t, store, change), store}
}

// apiOver returns the API on a store.
func apiOver(t testing.TB, store *storage.Store, change func(*Options)) http.Handler {
	registry := prometheus.NewRegistry()
	known := features.NewRegistry()
	po := promql.DefaultOptions()
	po.Features = known
	evaluator := promql.NewEngine(po)
	t.Cleanup(func() { require.NoError(t, evaluator.Close()) })
	o := Options{
		Engine: evaluator, Queryable: promql.NewQueryable(store), Parser: po.Parser, Ready: store.Ready,
		Exemplars: promql.NewExemplars(store), Version: Version{Cassia: "1.2.3"}, Started: time.Unix(1, 0),
		Now: time.Now, Retention: "30d", Flags: map[string]string{"a.b": "c"},
		ListenAddress: ":9201", ExternalURL: &url.URL{Scheme: "http", Host: "host:9201"},
		Cardinality: store.Counts().Cardinality, Features: known, Gatherer: registry, Registerer: registry,
		Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&o)
	}
	return New(o)
}

func (r rig) do(req *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	return w
}

func (r rig) get(path string) *httptest.ResponseRecorder {
	return r.do(httptest.NewRequest(http.MethodGet, path, nil))
}

// data returns the data of a successful answer, as JSON.
func data(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
	var a struct {
		Status string
		Data   json.RawMessage
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &a))
	require.Equal(t, "success", a.Status)
	return string(a.Data)
}

// failure returns the error of an unsuccessful answer.
func failure(t *testing.T, w *httptest.ResponseRecorder) (kind, message string) {
	t.Helper()
	var a answer
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &a), "%s", w.Body)
	require.Equal(t, "error", a.Status)
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	return a.ErrorType, a.Error
}

func TestAnswers(t *testing.T) {
	r := newRig(t, nil)
	for path, want := range map[string]string{
		"/query?query=m&time=10":                           `{"resultType":"vector","result":[{"metric":{"__name__":"m","i":"0","tenant":"default"},"value":[10,"10"]},{"metric":{"__name__":"m","i":"1","tenant":"default"},"value":[10,"10"]}]}`,
		"/query_range?query=sum(m)&start=1&end=2&step=1":   `{"resultType":"matrix","result":[{"metric":{},"values":[[1,"2"],[2,"4"]]}]}`,
		`/series?match[]=m{i="1"}`:                         `[{"__name__":"m","i":"1","tenant":"default"}]`,
		`/series?match[]=m&match[]=m{i="1"}&start=1&end=2`: `[{"__name__":"m","i":"0","tenant":"default"},{"__name__":"m","i":"1","tenant":"default"}]`,
		"/series?match[]=m&limit=1":                        `[{"__name__":"m","i":"0","tenant":"default"}]`,
		"/series?match[]=m&start=90000&end=90001":          `[]`,
		"/labels":                                   `["__name__","i","tenant"]`,
		"/labels?match[]=nothing":                   `[]`,
		"/labels?limit=1":                           `["__name__"]`,
		"/label/i/values":                           `["0","1"]`,
		`/label/i/values?match[]=m{i="1"}`:          `["1"]`,
		"/label/__name__/values?limit=1":            `["m"]`,
		"/format_query?query=sum(m)by(i)":           `"sum by (i) (m)"`,
		"/query_exemplars?query=m&start=1&end=2":    `[]`,
		"/metadata":                                 `{}`,
		"/targets/metadata":                         `[]`,
		"/rules":                                    `{"groups":[]}`,
		"/alerts":                                   `{"alerts":[]}`,
		"/alertmanagers":                            `{"activeAlertmanagers":[],"droppedAlertmanagers":[]}`,
		"/targets":                                  `{"activeTargets":[],"droppedTargets":[],"droppedTargetCounts":{}}`,
		"/scrape_pools":                             `{"scrapePools":[]}`,
		"/notifications":                            `[]`,
		"/status/flags":                             `{"a.b":"c"}`,
		"/status/tsdb/blocks":                       `{"blocks":[]}`,
		"/status/walreplay":                         `{"min":0,"max":0,"current":0}`,
		"/query?query=m&time=10&limit=1":            `{"resultType":"vector","result":[{"metric":{"__name__":"m","i":"0","tenant":"default"},"value":[10,"10"]}]}`,
		"/query_range?query=3&start=1&end=2&step=1": `{"resultType":"matrix","result":[{"metric":{},"values":[[1,"3"],[2,"3"]]}]}`,
		"/query?query=m[2s]&time=1&lookback_delta=1m&timeout=1": `{"resultType":"matrix","result":[{"metric":{"__name__":"m","i":"0","tenant":"default"},"values":[[0,"0"],[1,"1"]]},{"metric":{"__name__":"m","i":"1","tenant":"default"},"values":[[0,"0"],[1,"1"]]}]}`,
	} {
		got := data(t, r.get(Prefix+path))
		if strings.Contains(path, "limit=1") && strings.Contains(path, "match[]=m") ||
			strings.HasPrefix(path, "/series") {
			require.ElementsMatch(t, objects(t, want), objects(t, got), path)
			continue
		}
		require.JSONEq(t, want, got, path)
	}
}

func objects(t *testing.T, s string) (out []any) {
	require.NoError(t, json.Unmarshal([]byte(s), &out))
	return out
}

func TestFormsMayBePosted(t *testing.T) {
	r := newRig(t, nil)
	for path, form := range map[string]string{
		"/query": "query=m&time=10", "/query_range": "query=m&start=1&end=2&step=1", "/series": "match[]=m",
		"/labels": "match[]=m",
	} {
		req := httptest.NewRequest(http.MethodPost, Prefix+path, strings.NewReader(form))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		require.Equal(t, data(t, r.get(Prefix+path+"?"+form)), data(t, r.do(req)), path)
	}
}

func TestTenantOfTheContext(t *testing.T) {
	r := newRig(t, nil)
	req := httptest.NewRequest(http.MethodGet, Prefix+"/label/tenant/values", nil)
	require.Equal(t, `["other"]`, data(t, r.do(req.WithContext(tenant.NewContext(t.Context(), "other")))))
	require.Equal(t, `["default"]`, data(t, r.do(req)))
}

func TestStatusTellsTheTruth(t *testing.T) {
	r := newRig(t, nil)
	var build map[string]string
	require.NoError(t, json.Unmarshal([]byte(data(t, r.get(Prefix+"/status/buildinfo"))), &build))
	require.Equal(t, "Cassia", build["application"])
	require.Equal(t, "1.2.3", build["cassiaVersion"])
	require.Equal(t, PrometheusVersion, build["version"])
	var runtime struct{ StorageRetention, StartTime string }
	require.NoError(t, json.Unmarshal([]byte(data(t, r.get(Prefix+"/status/runtimeinfo"))), &runtime))
	require.Equal(t, "30d", runtime.StorageRetention)
	require.Contains(t, data(t, r.get(Prefix+"/status/config")), "no configuration file")
	require.JSONEq(t, `{"headStats":{"numSeries":2,"numLabelPairs":4,"chunkCount":8,"minTime":0,"maxTime":299000},
		"seriesCountByMetricName":[{"name":"m","value":2}],"labelValueCountByLabelName":[{"name":"i","value":2}],
		"memoryInBytesByLabelName":[{"name":"tenant","value":30}],"seriesCountByLabelValuePair":[{"name":"__name__=m","value":2}]}`,
		data(t, r.get(Prefix+"/status/tsdb?limit=1")), "of the asking tenant only")
	var known map[string]map[string]bool
	require.NoError(t, json.Unmarshal([]byte(data(t, r.get(Prefix+"/features"))), &known))
	require.True(t, known["promql"]["duration_expr"])
	require.True(t, known["templating_functions"]["humanize"])
	for category, names := range map[string][]string{
		// These are the features of Prometheus 3.15, except for scraping, the WAL and the web page.
		"api": {"admin", "exclude_alerts", "label_values_match", "lifecycle", "openapi_3.1", "openapi_3.2",
			"otlp_write_receiver", "query_stats", "query_warnings",
			"remote_write_receiver", "search", "search_fuzz_alg_jarowinkler", "search_fuzz_alg_subsequence",
			"time_range_labels", "time_range_series"},
		"otlp_receiver": {"delta_conversion", "native_delta_ingestion"},
		"rules":         {"concurrent_rule_eval", "keep_firing_for", "query_offset"},
		"tsdb":          {"exemplar_storage", "native_histograms"},
	} {
		require.ElementsMatch(t, names, slices.Collect(maps.Keys(known[category])), category)
	}
	require.True(t, known["api"]["otlp_write_receiver"])
	spec := r.get(Prefix + "/openapi.yaml")
	require.Equal(t, http.StatusOK, spec.Code)
	require.Contains(t, spec.Body.String(), "/query_range")
	require.NotContains(t, spec.Body.String(), "/admin/")
	require.Equal(t, http.StatusNoContent, r.get(Prefix+"/notifications/live").Code)
}

func TestFailures(t *testing.T) {
	r := newRig(t, func(o *Options) { o.AdminAPI = true })
	closed := newRig(t, nil)
	const get, post, put = http.MethodGet, http.MethodPost, http.MethodPut
	for _, c := range []struct {
		r            rig
		method, path string
		code         int
		kind, part   string
	}{
		{r, get, "/query?query=m{", 400, "bad_data", "parse error"},
		{r, get, "/query_range?query=m&start=1&end=2&step=0", 400, "bad_data", "step"},
		{r, get, "/series", 400, "bad_data", "match[]"},
		{r, get, "/query?query=m+%2B+on()+m&time=10", 422, "execution", "many-to-many"},
		{r, get, "/metadata?limit=x", 400, "bad_data", "limit must be a number"},
		{r, get, "/status/tsdb?limit=0", 400, "bad_data", "positive"},
		{r, get, "/scrape_pools/config?scrapePool=a", 400, "bad_data", "not found"},
		{r, get, "/search/metric_names", 501, "unavailable", "search API"},
		{r, post, "/otlp/v1/metrics", 501, "unavailable", "remote write"},
		{r, post, "/admin/tsdb/snapshot", 501, "unavailable", "not supported"},
		{r, put, "/admin/tsdb/delete_series?match[]=m", 500, "internal", "not supported"},
		{r, post, "/admin/tsdb/clean_tombstones", 501, "unavailable", "not supported"},
		{closed, post, "/admin/tsdb/delete_series?match[]=m", 403, "unavailable", "--web.enable-admin-api"},
	} {
		w := c.r.do(httptest.NewRequest(c.method, Prefix+c.path, nil))
		require.Equal(t, c.code, w.Code, "%s: %s", c.path, w.Body)
		kind, message := failure(t, w)
		require.Equal(t, c.kind, kind, c.path)
		require.Contains(t, message, c.part, c.path)
	}
}

func TestNothingIsReadBeforeTheStoreIsReady(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Ready = func() error { return storage.ErrNotReady } })
	for _, path := range []string{"/query?query=m", "/query_range?query=m&start=1&end=2&step=1", "/series?match[]=m",
		"/labels", "/label/i/values", "/query_exemplars?query=m"} {
		w := r.get(Prefix + path)
		require.Equal(t, http.StatusServiceUnavailable, w.Code, path)
		kind, message := failure(t, w)
		require.Equal(t, "unavailable", kind)
		require.Equal(t, storage.PlainText(storage.ErrNotReady.Error()), message)
	}
	require.Equal(t, http.StatusServiceUnavailable,
		r.do(httptest.NewRequest(http.MethodPost, Prefix+"/read", nil)).Code)
	for _, path := range []string{"/status/buildinfo", "/status/runtimeinfo", "/rules", "/format_query?query=m"} {
		data(t, r.get(Prefix+path))
	}
}

func TestMetadataHook(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Metadata = func(_ context.Context, tenant, metric string, limit int) (map[string][]MetricMetadata, error) {
			if metric == "broken" {
				return nil, errors.New("no such row")
			}
			require.Equal(t, []any{"default", "m", 7}, []any{tenant, metric, limit})
			return map[string][]MetricMetadata{"m": {{Type: "counter", Help: "h", Unit: "u"}, {Type: "gauge"}}}, nil
		}
	})
	require.JSONEq(t, `{"m":[{"type":"counter","help":"h","unit":"u"}]}`,
		data(t, r.get(Prefix+"/metadata?metric=m&limit=7&limit_per_metric=1")))
	w := r.get(Prefix + "/metadata?metric=broken")
	require.Equal(t, http.StatusInternalServerError, w.Code)
}

func TestCORS(t *testing.T) {
	r := newRig(t, nil)
	for _, path := range []string{"/query?query=m", "/status/buildinfo"} {
		for _, method := range []string{http.MethodGet, http.MethodOptions} {
			req := httptest.NewRequest(method, Prefix+path, nil)
			req.Header.Set("Origin", "http://elsewhere")
			w := r.do(req)
			require.Equal(t, "http://elsewhere", w.Header().Get("Access-Control-Allow-Origin"), "%s %s", method, path)
		}
	}
}

// TestOriginsThatMayRead checks that pages whose origin doesn't match as a whole can't read answers, and that no page
// can read answers to requests with passwords.
func TestOriginsThatMayRead(t *testing.T) {
	r := newRig(t, func(o *Options) { o.CORSOrigin = regexp.MustCompile(`^(?s:https://grafana\.example)$`) })
	for origin, want := range map[string]string{"https://grafana.example": "https://grafana.example",
		"https://grafana.example.evil": "", "null": ""} {
		for _, path := range []string{"/query?query=m", "/status/buildinfo", "/query?query=("} {
			req := httptest.NewRequest(http.MethodGet, Prefix+path, nil)
			req.Header.Set("Origin", origin)
			header := r.do(req).Header()
			require.Equal(t, want, header.Get("Access-Control-Allow-Origin"), "%s %s", origin, path)
			require.Empty(t, header.Values("Access-Control-Allow-Credentials"))
		}
	}
}

func TestEveryRouteIsInstrumented(t *testing.T) {
	var routes []string
	r := newRig(t, func(o *Options) {
		o.Instrument = func(route string, h http.HandlerFunc) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				routes = append(routes, route)
				h(w, r)
			}
		}
	})
	r.get(Prefix + "/label/i/values")
	r.get(Prefix + "/status/buildinfo")
	require.Equal(t, []string{Prefix + "/label/:name/values", Prefix + "/status/buildinfo"}, routes)
}

// TestEveryRouteIsInTheManual checks that the manual documents every route.
func TestEveryRouteIsInTheManual(t *testing.T) {
	page, err := os.ReadFile("../../cmd/internal/manual/http-api.md")
	require.NoError(t, err)
	var routes []string
	r := newRig(t, func(o *Options) {
		o.Queries = o.Engine.(*promql.Engine)
		o.Limits = func([]string) any { return nil }
		o.Instrument = func(route string, h http.HandlerFunc) http.HandlerFunc {
			routes = append(routes, route)
			return h
		}
	})
	r.get(Prefix + "/status/buildinfo") // This creates the routes.
	require.Greater(t, len(routes), 30)
	for _, route := range routes {
		route = regexp.MustCompile(`[:*](\w+)`).ReplaceAllString(route, "{$1}")
		require.Contains(t, string(page), "`"+route+"`", "give it a line in the manual's http-api.md")
	}
}

func TestAQueryThatNeedsTooMuchFails(t *testing.T) {
	r := newRigOver(t, func(o *storage.Options) { o.Retention, o.QueryBytes = 0, 100 }, nil)
	require.NoError(t, r.store.SealAll(t.Context()))
	w := r.get(Prefix + "/query_range?query=m&start=1&end=299&step=1")
	require.Equal(t, http.StatusUnprocessableEntity, w.Code, "%s", w.Body)
	kind, message := failure(t, w)
	require.Equal(t, "execution", kind)
	require.Contains(t, message, storage.PlainText(meter.ErrQueryTooLarge.Error()))
}

func TestStatusOfErrors(t *testing.T) {
	for err, want := range map[error]int{
		fmt.Errorf("expanding series: %w", meter.ErrQueryTooLarge): 422,
		fmt.Errorf("x: %w", storage.ErrNotReady):                   503,
		fmt.Errorf("x: %w", membership.ErrClock):                   503,
		fmt.Errorf("x: %w", promql.ErrTooManyQueries):              503,
	} {
		code, override := statusOf(0, err)
		require.True(t, override)
		require.Equal(t, want, code)
	}
	_, override := statusOf(0, errors.New("any other"))
	require.False(t, override)
}

func readRequest(t *testing.T, kinds ...prompb.ReadRequest_ResponseType) *http.Request {
	body, err := (&prompb.ReadRequest{
		AcceptedResponseTypes: kinds,
		Queries: []*prompb.Query{{StartTimestampMs: 5000, EndTimestampMs: 290_000,
			Matchers: []*prompb.LabelMatcher{{Name: model.MetricNameLabel, Value: "m"}}}},
	}).Marshal()
	require.NoError(t, err)
	return httptest.NewRequest(http.MethodPost, Prefix+"/read", strings.NewReader(string(snappy.Encode(nil, body))))
}

func TestRemoteReadOfSamples(t *testing.T) {
	w := newRig(t, nil).do(readRequest(t))
	require.Equal(t, http.StatusOK, w.Code)
	body, err := snappy.Decode(nil, w.Body.Bytes())
	require.NoError(t, err)
	var answer prompb.ReadResponse
	require.NoError(t, answer.Unmarshal(body))
	require.Len(t, answer.Results[0].Timeseries, 2)
	for _, series := range answer.Results[0].Timeseries {
		require.Len(t, series.Samples, 286)
		require.EqualValues(t, 5000, series.Samples[0].Timestamp)
		require.EqualValues(t, 290, series.Samples[285].Value)
	}
}

// together is a Queryable whose reads wait until the given number of reads run at once.
type together struct {
	promstorage.SampleAndChunkQueryable
	inside chan struct{}
	most   int
}

func (t *together) Querier(mint, maxt int64) (promstorage.Querier, error) {
	t.inside <- struct{}{}
	for len(t.inside) < t.most {
		time.Sleep(time.Millisecond)
	}
	return t.SampleAndChunkQueryable.Querier(mint, maxt)
}

// TestRemoteReadsAtOnce checks that remote reads wait only for their turn among all reads. In Prometheus' handler, they
// would also wait for each other, while they hold places that others need.
func TestRemoteReadsAtOnce(t *testing.T) {
	const most = 40
	r := newRig(t, func(o *Options) {
		o.Queryable = &together{o.Queryable, make(chan struct{}, most), most}
	})
	var g errgroup.Group
	for range most {
		req := readRequest(t)
		g.Go(func() error {
			if w := r.do(req); w.Code != http.StatusOK {
				return fmt.Errorf("%d: %s", w.Code, w.Body)
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
}

func TestRemoteReadOfChunks(t *testing.T) {
	server := httptest.NewServer(newRig(t, nil))
	defer server.Close()
	req := readRequest(t, prompb.ReadRequest_STREAMED_XOR_CHUNKS)
	answer, err := http.Post(server.URL+Prefix+"/read", "application/x-protobuf", req.Body)
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, http.StatusOK, answer.StatusCode)
	samples := map[string]int{}
	frames := remote.NewChunkedReader(answer.Body, 1<<20, nil)
	for {
		var frame prompb.ChunkedReadResponse
		if err := frames.NextProto(&frame); err != nil {
			require.ErrorContains(t, err, "EOF")
			break
		}
		for _, series := range frame.ChunkedSeries {
			for _, c := range series.Chunks {
				decoded, err := chunkenc.FromData(chunkenc.Encoding(c.Type), c.Data)
				require.NoError(t, err)
				require.LessOrEqual(t, decoded.NumSamples(), 120)
				samples[fmt.Sprint(series.Labels)] += decoded.NumSamples()
			}
		}
	}
	require.Len(t, samples, 2)
	for series, n := range samples {
		require.Equal(t, 286, n, series)
	}
}

func TestMethodsAndRoutesThatDontExist(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Limits = func([]string) any { return 1 }
	})
	for _, c := range []struct {
		method, path string
		code         int
		allow        string
	}{
		{http.MethodPost, "/metadata", 405, "GET, OPTIONS"},
		{http.MethodHead, "/status/tsdb", 405, "GET, OPTIONS"},
		{http.MethodGet, "/admin/tsdb/snapshot", 405, "OPTIONS, POST, PUT"},
		{http.MethodPut, "/query", 405, "GET, OPTIONS, POST"},
		{http.MethodGet, "/nothing", 404, ""},
		{http.MethodGet, "/status/limits", 200, ""},
		{http.MethodOptions, "/status/limits", 204, ""},
	} {
		w := r.do(httptest.NewRequest(c.method, Prefix+c.path, nil))
		require.Equal(t, c.code, w.Code, "%s %s", c.method, c.path)
		require.Equal(t, c.allow, w.Header().Get("Allow"), "%s %s", c.method, c.path)
	}
}

func TestAQueryWhoseTimeIsOver(t *testing.T) {
	r := newRig(t, nil)
	for _, path := range []string{"/query?query=m&timeout=0", "/query_range?query=m&start=1&end=9&step=1&timeout=0"} {
		w := r.get(Prefix + path)
		kind, _ := failure(t, w)
		require.Equal(t, http.StatusServiceUnavailable, w.Code, path)
		require.Equal(t, "timeout", kind, path)
	}
}
