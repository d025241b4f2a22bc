package e2e

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// The phases of the load: the node exporter runs, is stopped, and runs again.
const (
	beforeOutage = 40 * time.Second
	outage       = 16 * time.Second
	afterOutage  = 30 * time.Second
)

// scrapeInterval is short, so that a short run results in many samples.
const scrapeInterval = 2 * time.Second

// stack consists of a Prometheus that scrapes and writes to its own cassia, and a second Prometheus without data that
// reads from this cassia.
type stack struct {
	name                 string
	writer, cassia, back *promrig.Process
	// written, if not nil, is the cassia that receives the writes, on the same data as the queried one.
	written *promrig.Process
	// traced is the scrape target with exemplars.
	traced *httptest.Server
	// jobs is the number of jobs that writer scrapes. Each has one target.
	jobs    int
	queries []string
}

// cassias returns the cassia that receives the writes and the cassia that is queried. They may be the same.
func (s *stack) cassias() []*promrig.Process {
	if s.written == nil {
		return []*promrig.Process{s.cassia}
	}
	return []*promrig.Process{s.written, s.cassia}
}

// scrapeConfig returns the configuration of a Prometheus that scrapes itself with native histograms, and the node
// exporter, and writes all samples to cassia. job is the text of further jobs, or empty.
func scrapeConfig(self, exporter, cassia, message, job string) string {
	return fmt.Sprintf(`
global: {scrape_interval: %[1]s, scrape_timeout: %[1]s}
scrape_configs:
  - job_name: prometheus
    scrape_native_histograms: true
    always_scrape_classic_histograms: true
    static_configs: [{targets: ["%[2]s"]}]
  - job_name: node
    static_configs: [{targets: ["%[3]s"]}]
%[6]s
remote_write:
  - url: http://%[4]s/api/v1/write
    protobuf_message: %[5]s
    send_exemplars: true
    send_native_histograms: true
    metadata_config: {send_interval: 2s}
    queue_config: {batch_send_deadline: 500ms, max_backoff: 500ms}
`, scrapeInterval, self, exporter, cassia, message, job)
}

// customBuckets returns the text of a further job, whose classic histograms Prometheus converts to native histograms
// with custom buckets. Prometheus doesn't send such native histograms with protocol 1.0.
func customBuckets(self string) string {
	return fmt.Sprintf(`
  - job_name: custom-buckets
    convert_classic_histograms_to_nhcb: true
    scrape_protocols: [OpenMetricsText1.0.0]
    static_configs: [{targets: ["%s"]}]
`, self)
}

func readConfig(cassia string) string {
	return fmt.Sprintf("remote_read: [{url: \"http://%s/api/v1/read\", read_recent: true}]\n", cassia)
}

// comparedQueries contains queries on every kind of metric. Cassia and Prometheus must return exactly the same results.
// The shortest range contains two scrapes.
var comparedQueries = []string{
	// Selectors. While the exporter is down, its series must end immediately, without the five-minute lookback.
	`up`,
	`node_load1`,
	`{job="node",__name__=~"node_memory_.*_bytes"}`,
	`scrape_samples_scraped{job!="node"}`,
	`absent(up{job="node"} == 1)`,
	`absent_over_time(node_load1[5s])`,
	`timestamp(node_time_seconds)`,
	// Counters.
	`rate(node_cpu_seconds_total{mode=~"idle|user|system"}[10s])`,
	`sum by (mode) (rate(node_cpu_seconds_total[15s]))`,
	`irate(node_network_receive_bytes_total[10s])`,
	`increase(prometheus_http_requests_total[20s])`,
	`topk(3, rate(process_cpu_seconds_total[10s]))`,
	`resets(process_cpu_seconds_total{job="node"}[30s])`,
	// Gauges.
	`node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes`,
	`avg_over_time(node_load1[20s])`,
	`quantile_over_time(0.9, go_goroutines[20s])`,
	`stddev_over_time(go_memstats_heap_alloc_bytes[20s])`,
	`changes(node_time_seconds[10s])`,
	`deriv(node_memory_MemFree_bytes[20s])`,
	`predict_linear(node_memory_MemFree_bytes[20s], 60)`,
	// Classic and native histograms.
	`histogram_quantile(0.9, sum by (le) (rate(prometheus_http_request_duration_seconds_bucket{job="prometheus"}[20s])))`,
	`histogram_quantile(0.9, sum(rate(prometheus_http_request_duration_seconds{job="prometheus"}[20s])))`,
	`prometheus_http_request_duration_seconds{job="prometheus"}`,
	`histogram_fraction(0, 0.01, increase(prometheus_http_request_duration_seconds{job="prometheus"}[10s]))`,
	// Summaries.
	`go_gc_duration_seconds`,
	`rate(prometheus_target_interval_length_seconds_sum[20s]) / rate(prometheus_target_interval_length_seconds_count[20s])`,
	// Aggregations and joins.
	`count by (__name__) ({job="node"})`,
	`count({__name__=~".+"})`,
	`quantile by (job) (0.5, scrape_duration_seconds)`,
	`node_uname_info * on (instance) group_left () node_load5`,
	`up == 0 or node_load1 unless node_load5 > 1e9`,
	// Modified times.
	`node_load1 offset 20s`,
	`rate(node_cpu_seconds_total{mode="idle"}[10s] offset -10s)`,
	`sum(rate(process_cpu_seconds_total[10s] @ end()))`,
	`node_memory_MemFree_bytes @ start()`,
	`max_over_time(rate(node_cpu_seconds_total{mode="user"}[10s])[20s:5s])`,
}

// customBucketQueries contains additional queries for stacks in which custom buckets are sent.
var customBucketQueries = []string{
	`prometheus_http_request_duration_seconds{job="custom-buckets"}`,
	`histogram_quantile(0.5, rate(prometheus_http_request_duration_seconds{job="custom-buckets"}[20s]))`,
	`histogram_avg(prometheus_http_response_size_bytes{job="custom-buckets"})`,
}

func TestRealPrometheus(t *testing.T) {
	if testing.Short() {
		t.Skip("runs real programs for two minutes: leave -short out")
	}
	t.Parallel() // most of the time is spent waiting for scrapes
	compareWithPrometheus(t, []bool{false, true}, func(binary string) []promrig.Program {
		return []promrig.Program{promrig.Cassia(binary, t.TempDir(), cassiatest.FreeAddress(t))}
	})
}

// compareWithPrometheus runs a stack for each protocol of remote write: true stands for 2.0, false for 1.0. cassias
// returns the cassia programs of a stack.
func compareWithPrometheus(t *testing.T, protocols []bool, cassias func(binary string) []promrig.Program) {
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Minute)
	t.Cleanup(cancel) // The parallel tests below continue after this function has returned.
	binary := builtCassia(t)
	exporterBinary := cassiatest.Binary(t, "CASSIA_TEST_NODE_EXPORTER", "node_exporter")
	exporter := start(ctx, t, promrig.NodeExporter(exporterBinary, t.TempDir(), cassiatest.FreeAddress(t)))

	var stacks []*stack
	for _, protocol2 := range protocols {
		stacks = append(stacks, startStack(ctx, t, exporter.Address, protocol2, cassias(binary)))
	}
	for _, s := range stacks {
		s.flows(ctx, t)
	}
	began := time.Now().Add(2 * scrapeInterval).Truncate(time.Second)
	time.Sleep(beforeOutage)
	exporter.Kill()
	time.Sleep(outage)
	start(ctx, t, exporter.Program)
	time.Sleep(afterOutage)
	end := time.Now().Truncate(time.Second)
	for _, s := range stacks {
		s.scrapedAfter(ctx, t, end)
		// Stop producing exemplars, because only a limited number of exemplars of a series is kept. The tests below may
		// wait for minutes, in which newer exemplars would replace the compared ones.
		s.traced.Close()
	}

	for i, s := range stacks {
		t.Run("remote write "+s.name, func(t *testing.T) {
			t.Parallel()
			s.caughtUp(ctx, t, began, end)
			s.compareExemplars(ctx, t, "before sealing", began, end)
			s.compareMetadata(ctx, t)
			s.compare(ctx, t, "before sealing", began, end)
			require.NoError(t, promrig.PostEmpty(ctx, s.cassias()[i%len(s.cassias())].URL()+"/-/seal"))
			s.compare(ctx, t, "sealed", began, end)
			s.compareExemplars(ctx, t, "sealed", began, end)
			s.compareInGrafana(t, began, end)
			for _, c := range s.cassias() {
				require.NoError(t, c.Terminate(cassiatest.StopWithin))
			}
			for _, c := range s.cassias() {
				start(ctx, t, c.Program)
			}
			s.compare(ctx, t, "after a restart", began, end)
			s.compareExemplars(ctx, t, "after a restart", began, end)
		})
	}
}

// start starts a program that runs until the test ends.
func start(ctx context.Context, t *testing.T, p promrig.Program) *promrig.Process {
	ready, cancel := context.WithTimeout(ctx, cassiatest.ReadyWithin)
	defer cancel()
	process, err := promrig.StartReady(ready, p)
	require.NoError(t, err)
	t.Cleanup(process.Kill)
	return process
}

// startAll starts programs concurrently, so that programs that share their data may all try to create the data.
func startAll(ctx context.Context, t *testing.T, programs ...promrig.Program) (processes []*promrig.Process) {
	ready, cancel := context.WithTimeout(ctx, cassiatest.ReadyWithin)
	defer cancel()
	for _, p := range programs {
		process, err := promrig.Start(p)
		require.NoError(t, err)
		t.Cleanup(process.Kill)
		processes = append(processes, process)
	}
	for _, p := range processes {
		require.NoError(t, p.WaitReady(ready))
	}
	return processes
}

func startPrometheus(ctx context.Context, t *testing.T, address, config string, args ...string) *promrig.Process {
	binary := cassiatest.Binary(t, "CASSIA_TEST_PROMETHEUS", "prometheus")
	program, err := promrig.Prometheus(binary, t.TempDir(), address, config, args...)
	require.NoError(t, err)
	return start(ctx, t, program)
}

// startStack starts a Prometheus that writes to the first of the cassias, with protocol 2.0 (including metadata and
// start timestamps) or 1.0. The last cassia is queried.
func startStack(ctx context.Context, t *testing.T, exporter string, protocol2 bool, cassias []promrig.Program) *stack {
	processes := startAll(ctx, t, cassias...)
	s := &stack{name: "1.0", queries: comparedQueries, cassia: processes[len(processes)-1]}
	if len(processes) > 1 {
		s.written = processes[0]
	}
	self, written := cassiatest.FreeAddress(t), processes[0].Address
	s.traced = startTraced(t)
	traced := tracedJob(s.traced)
	s.back = startPrometheus(ctx, t, cassiatest.FreeAddress(t), readConfig(s.cassia.Address))
	config, features := scrapeConfig(self, exporter, written, "prometheus.WriteRequest", traced), "exemplar-storage"
	if protocol2 {
		s.name, s.queries = "2.0", append(customBucketQueries, comparedQueries...)
		config = scrapeConfig(self, exporter, written, "io.prometheus.write.v2.Request", customBuckets(self)+traced)
		features += ",metadata-wal-records,st-storage"
	}
	s.jobs = strings.Count(config, "job_name:")
	s.writer = startPrometheus(ctx, t, self, config, "--enable-feature="+features)
	return s
}

// flows waits until samples of every job have arrived. Prometheus starts remote write some time after its first
// scrapes, and doesn't send samples that it scraped before.
func (s *stack) flows(ctx context.Context, t *testing.T) {
	s.awaitJobs(ctx, t, s.cassia, `up`)
}

// scrapedAfter waits until Prometheus has scraped every job once more after end. By then, the samples of all earlier
// scrapes are stored in Prometheus. On a busy machine, Prometheus stores the samples of a scrape seconds after their
// timestamps, so without this wait, samples from before end could arrive during the comparison.
func (s *stack) scrapedAfter(ctx context.Context, t *testing.T, end time.Time) {
	s.awaitJobs(ctx, t, s.writer, fmt.Sprintf(`timestamp(up) > %d`, end.Unix()))
}

// awaitJobs waits until a query of up returns a series for every job.
func (s *stack) awaitJobs(ctx context.Context, t *testing.T, asked *promrig.Process, query string) {
	require.Eventually(t, func() bool {
		answer, err := promrig.API{URL: asked.URL()}.Query(ctx, query, time.Now())
		return err == nil && answer.Points() == s.jobs
	}, cassiatest.Patience, 100*time.Millisecond, query)
}

// caughtUp waits until Cassia has received all samples from Prometheus' queue, so that the raw samples of all series
// are equal.
func (s *stack) caughtUp(ctx context.Context, t *testing.T, began, end time.Time) {
	everything := fmt.Sprintf(`{__name__=~".+"}[%ds]`, int(end.Sub(began).Seconds()))
	var difference string
	for tried := time.Now(); time.Since(tried) < cassiatest.Patience; time.Sleep(500 * time.Millisecond) {
		want, err := promrig.API{URL: s.writer.URL()}.Query(ctx, everything, end)
		require.NoError(t, err)
		got, err := promrig.API{URL: s.cassia.URL()}.Query(ctx, everything, end)
		require.NoError(t, err)
		if difference = want.Difference(got); difference == "" {
			require.Greater(t, want.Points(), 10000)
			t.Logf("%d samples of %d series have come", want.Points(), len(want.Series))
			return
		}
	}
	require.Fail(t, "samples are missing", "%s\n%s", difference, s.logs(t))
}

func (s *stack) logs(t *testing.T) string {
	out := ""
	for _, p := range append([]*promrig.Process{s.writer}, s.cassias()...) {
		text, err := os.ReadFile(p.Log)
		require.NoError(t, err)
		out += filepath.Base(p.Log) + ":\n" + string(text[max(0, len(text)-2000):]) + "\n"
	}
	return out
}

// compare runs all queries on the writing Prometheus, on Cassia, and on the Prometheus that reads from Cassia.
func (s *stack) compare(ctx context.Context, t *testing.T, when string, began, end time.Time) {
	points := 0
	for _, query := range s.queries {
		// The step isn't a multiple of the scrape interval. The range starts after the first samples and ends before
		// the last ones, because some queries also read samples before the start or after the end.
		ask := func(p *promrig.Process) promrig.Answer {
			answer, err := promrig.API{URL: p.URL()}.QueryRange(
				ctx, query, began.Add(30*time.Second), end.Add(-10*time.Second), 3*time.Second,
			)
			require.NoError(t, err)
			return answer
		}
		want := ask(s.writer)
		require.NotEmpty(t, want.Series, "%s gives nothing, so it shows nothing", query)
		require.Empty(t, want.Difference(ask(s.cassia)), "%s, Cassia: %s", when, query)
		require.Empty(t, want.Difference(ask(s.back)), "%s, through remote read: %s", when, query)
		points += want.Points()
	}
	t.Logf("%s: %d queries gave the same %d points", when, len(s.queries), points)
}
