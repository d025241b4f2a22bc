package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// startTraced starts a scrape target with a counter, a classic histogram and a native histogram. Each has new exemplars
// in every scrape.
func startTraced(t *testing.T) *httptest.Server {
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "traced_requests_total", Help: "Requests of the test.",
	})
	classic := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "traced_classic_seconds", Help: "A classic histogram.", Buckets: []float64{0.1, 1, 10},
	})
	native := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "traced_native_seconds", Help: "A native histogram.", NativeHistogramBucketFactor: 1.1,
		NativeHistogramMaxExemplars: 4,
	})
	registry.MustRegister(counter, classic, native)
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
	var mu sync.Mutex
	scrapes := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		scrapes++
		trace := prometheus.Labels{"trace_id": strconv.Itoa(scrapes), "ünïcode": "ä"}
		counter.(prometheus.ExemplarAdder).AddWithExemplar(float64(scrapes), trace)
		for i, v := range []float64{0.05, 0.5, 5, 50} {
			if (scrapes+i)%3 > 0 { // Not every counter has a new exemplar in each scrape.
				classic.(prometheus.ExemplarObserver).ObserveWithExemplar(v, trace)
				native.(prometheus.ExemplarObserver).ObserveWithExemplar(v*float64(scrapes), trace)
			}
		}
		metrics.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv
}

// tracedJob returns the configuration of jobs that scrape this target: as OpenMetrics and, for native histograms, as
// protobuf.
func tracedJob(traced *httptest.Server) string {
	return fmt.Sprintf(`
  - job_name: traced-text
    scrape_protocols: [OpenMetricsText1.0.0]
    static_configs: [{targets: ["%[1]s"]}]
  - job_name: traced-native
    scrape_native_histograms: true
    static_configs: [{targets: ["%[1]s"]}]
`, strings.TrimPrefix(traced.URL, "http://"))
}

// tracedQueries contains queries for all kinds of exemplars.
var tracedQueries = []string{
	`traced_requests_total`,
	`rate(traced_requests_total{job="traced-text"}[5m])`,
	`histogram_quantile(0.9, sum by (le) (rate(traced_classic_seconds_bucket[5m]))) / traced_requests_total`,
	`traced_native_seconds`,
	`{__name__=~"traced_.+"}`,
}

// exemplarsOf returns the exemplars that a server returns for a query, as text, one per line.
func exemplarsOf(ctx context.Context, t *testing.T, server, query string, start, end time.Time) (lines []string) {
	params := url.Values{
		"query": {query}, "start": {strconv.FormatInt(start.Unix(), 10)}, "end": {strconv.FormatInt(end.Unix(), 10)},
	}
	var data []struct {
		SeriesLabels json.RawMessage   `json:"seriesLabels"`
		Exemplars    []json.RawMessage `json:"exemplars"`
	}
	getJSON(ctx, t, server+"/api/v1/query_exemplars?"+params.Encode(), &data)
	for _, series := range data {
		for _, e := range series.Exemplars {
			lines = append(lines, string(series.SeriesLabels)+" "+string(e))
		}
	}
	// The order of exemplars with the same time and value is undefined in both servers.
	slices.Sort(lines)
	return lines
}

// getJSON decodes the data field of an API response.
func getJSON(ctx context.Context, t *testing.T, url string, data any) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, "%s: %s", url, body)
	require.NoError(t, json.Unmarshal(body, &struct{ Data any }{data}))
}

// compareExemplars requires that Prometheus and Cassia return the same exemplars.
func (s *stack) compareExemplars(ctx context.Context, t *testing.T, when string, began, end time.Time) {
	total := 0
	for _, query := range tracedQueries {
		want := exemplarsOf(ctx, t, s.writer.URL(), query, began, end)
		require.NotEmpty(t, want, "%s has no exemplars, so it shows nothing", query)
		var got []string
		// Exemplars are sent separately and may arrive after the samples.
		for asked := time.Now(); time.Since(asked) < cassiatest.Patience; time.Sleep(500 * time.Millisecond) {
			if got = exemplarsOf(ctx, t, s.cassia.URL(), query, began, end); len(got) >= len(want) {
				break
			}
		}
		if !slices.Equal(want, got) {
			require.Fail(t, "exemplars differ",
				"%s: %s: %d wanted, %d got\nmissing: %q\nbesides: %q\n%s", when, query, len(want), len(got),
				without(want, got), without(got, want), s.exemplarCounts(ctx, t)+s.logs(t))
		}
		total += len(want)
	}
	t.Logf("%s: %d queries gave the same %d exemplars", when, len(tracedQueries), total)
}

// without returns the lines that aren't in others.
func without(lines, others []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return slices.Contains(others, line) })
}

// exemplarCounts returns the metrics about exemplars of all programs of the stack.
func (s *stack) exemplarCounts(ctx context.Context, t *testing.T) (out string) {
	for _, p := range append([]*promrig.Process{s.writer}, s.cassias()...) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL()+"/metrics", nil)
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		for line := range strings.Lines(string(body)) {
			if strings.Contains(line, "exemplar") && !strings.HasPrefix(line, "#") {
				out += filepath.Base(p.Log) + ": " + line
			}
		}
	}
	return out
}

// compareMetadata requires that both servers return the same metadata for some metrics. It compares nothing if the
// protocol is 2.0: Prometheus 3.15 doesn't pass its feature metadata-wal-records to its storage, so all its 2.0
// requests have the type "unspecified".
func (s *stack) compareMetadata(ctx context.Context, t *testing.T) {
	if s.name != "1.0" {
		return
	}
	type metadata map[string][]struct{ Type, Help, Unit string }
	for _, metric := range []string{"traced_requests_total", "traced_native_seconds", "go_goroutines", "node_load1"} {
		var want, got metadata
		getJSON(ctx, t, s.writer.URL()+"/api/v1/metadata?metric="+metric, &want)
		require.NotEmpty(t, want[metric], metric)
		for asked := time.Now(); time.Since(asked) < cassiatest.Patience; time.Sleep(500 * time.Millisecond) {
			got = nil
			if getJSON(ctx, t, s.cassia.URL()+"/api/v1/metadata?metric="+metric,
				&got); len(got[metric]) >= len(want[metric]) {
				break
			}
		}
		require.Equal(t, want, got, metric)
	}
}
