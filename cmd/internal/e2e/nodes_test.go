package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/cmd/internal/bench"
	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
	"github.com/cassia-db/cassia/storage/cassandra/cassandratest"
)

const (
	// clusterTimeout is the processes' timeout for requests to the cluster.
	clusterTimeout = 8 * time.Second
	// refusedWithin is the max time until a request is rejected. The request may have to wait for the previous one, and
	// the machine may be busy.
	refusedWithin = clusterTimeout + cassiatest.Patience
	// clientTimeout is how long senders and readers retry a request, at either process.
	clientTimeout = cassiatest.Patience
)

// nodesRig consists of two processes on a cluster of three real nodes with a replication factor of three, and loads on
// both processes.
type nodesRig struct {
	*killed
	binary  string
	cluster *cassandratest.Cluster
	flags   []string // of the engine
	// sending is the client that sends the loads, and reading the client that concurrently reads them.
	sending, reading *patient
}

// TestCassandraNodesDie kills nodes of a cluster of three under load. While one node is down, all requests must
// succeed. While two are down, all requests must be rejected in time with clear errors, and senders retry until the
// nodes are back. Acknowledged samples are compared bit by bit during the whole test.
func TestCassandraNodesDie(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs three Cassandra nodes for minutes: leave -short out")
	}
	underLoadAlone(t)
	r := newNodesRig(t)
	r.oneCopy()
	r.start()
	stopLoads := r.startLoads()
	r.oneDies()
	r.twoDie()
	stopLoads()
	r.verifyAll("at the end")
	r.seal(1)
	r.verifyAll("all sealed")
	for i := range r.processes {
		r.stop(i)
	}
	requireSound(r.ctx, t, r.binary, r.flags)
}

func newNodesRig(t *testing.T) *nodesRig {
	r := &nodesRig{cluster: cassandratest.StartCluster(t, 3, cassandratest.Options{Heap: "512M"})}
	r.flags = []string{
		"--storage.engine=cassandra", "--cassandra.hosts=" + strings.Join(r.cluster.Hosts(), ","),
		"--cassandra.timeout=" + clusterTimeout.String(),
	}
	r.binary = builtCassia(t)
	flags := append([]string{
		"--storage.slot=1h", "--storage.settle=1s", "--retention.raw=90d", "--storage.partitions=2",
		"--no-self-monitoring",
	}, r.flags...)
	r.killed = newKilled(t, sharedLoads(t),
		promrig.Cassia(r.binary, t.TempDir(), cassiatest.FreeAddress(t), flags...),
		promrig.Cassia(r.binary, t.TempDir(), cassiatest.FreeAddress(t), flags...))
	addresses := []string{r.programs[0].Address, r.programs[1].Address}
	r.sending, r.reading = newPatient(clientTimeout, addresses...), newPatient(clientTimeout, addresses...)
	for _, l := range r.loads {
		l.rate /= 3 // Each sample is written to three nodes.
		l.client = &http.Client{Transport: r.sending}
	}
	return r
}

// oneCopy checks the errors and warnings for two settings of the replication factor: more replicas than the cluster has
// nodes, and only one replica.
func (r *nodesRig) oneCopy() {
	flags := append([]string{"--cassandra.keyspace=single"}, r.flags...)
	_, stderr, status := cassiatest.Command(
		r.t, r.binary, append([]string{"serve", "--cassandra.replication=7"}, flags...)...,
	)
	require.Equal(r.t, 1, status)
	require.Contains(r.t, cassiatest.LastLine(stderr),
		"consistency level LOCAL_QUORUM of 7 copies needs 4 nodes, but the cluster has 3")
	require.Contains(r.t, cassiatest.LastLine(stderr), "lower the replication factor of keyspace single, or add nodes")

	p, err := promrig.Start(promrig.Cassia(r.binary, r.t.TempDir(), cassiatest.FreeAddress(r.t), append(
		[]string{"--cassandra.replication=1"}, flags...,
	)...))
	require.NoError(r.t, err)
	r.t.Cleanup(p.Kill)
	warning := waitLogged(r.t, p, "level=WARN", "keyspace single keeps 1 copy")
	require.Contains(r.t, warning,
		"keeps 1 copy in data center datacenter1, which has 3 nodes: while a node is down, its rows are unavailable")
	require.Contains(r.t, warning, "ALTER KEYSPACE")
	p.Kill()
}

// start starts both processes. One of them creates the tables, on three busy nodes.
func (r *nodesRig) start() {
	for _, p := range r.programs {
		process, err := promrig.Start(p)
		require.NoError(r.t, err)
		r.t.Cleanup(process.Kill)
		r.processes = append(r.processes, process)
	}
	for _, p := range r.processes {
		require.NoError(r.t, p.WaitReady(r.ctx))
	}
}

// oneDies kills a node and restarts it. Every request must succeed within clientTimeout, including its retries.
func (r *nodesRig) oneDies() {
	stopReading := r.keepReading()
	time.Sleep(3 * time.Second)
	r.progress("three nodes")
	require.NoError(r.t, r.cluster.Kill(2))
	for range 3 {
		time.Sleep(3 * time.Second)
		r.progress("one node killed")
	}
	require.NoError(r.t, r.cluster.Revive(2))
	r.progress("revived")
	time.Sleep(3 * time.Second)
	stopReading()
	r.progress("three nodes again")
	for name, p := range map[string]*patient{"writes": r.sending, "reads": r.reading} {
		tries, failed, gaveUp, slowest := p.counts()
		r.t.Logf("%s: %d tries, %d failed, the slowest request took %s; the last failure: %s",
			name, tries, failed, slowest, p.lastFailure())
		require.Positive(r.t, tries, name)
		require.Zero(r.t, gaveUp, "%s failed though they were tried for %s", name, clientTimeout)
	}
	r.verifyAll("one node killed and revived")
}

// progress waits until new samples of every load are acknowledged.
func (r *nodesRig) progress(when string) {
	began := time.Now()
	before := make([]int64, len(r.loads))
	for i, l := range r.loads {
		before[i] = l.acks.Count()
	}
	require.Eventually(r.t, func() bool {
		for i, l := range r.loads {
			if l.acks.Count() == before[i] {
				return false
			}
		}
		return true
	}, cassiatest.Patience, 10*time.Millisecond, when)
	r.t.Logf("%s: all loads went on after %s", when, time.Since(began).Round(10*time.Millisecond))
}

// keepReading repeatedly compares all acknowledged samples until the returned function is called.
func (r *nodesRig) keepReading() (stop func()) {
	ctx, cancel := context.WithCancel(r.ctx)
	r.t.Cleanup(cancel)
	done := make(chan error, 1)
	rounds := 0
	go func() {
		for ctx.Err() == nil {
			if err := r.compare(r.ctx, r.reading); err != nil {
				done <- err
				return
			}
			rounds++
			select { // Leave CPU time to the loads and the nodes.
			case <-ctx.Done():
			case <-time.After(2 * time.Second):
			}
		}
		done <- nil
	}()
	return func() {
		cancel()
		require.NoError(r.t, <-done)
		require.Positive(r.t, rounds)
		r.t.Logf("compared everything %d times meanwhile", rounds)
	}
}

// compare reads all acknowledged samples and compares them.
func (r *nodesRig) compare(ctx context.Context, by http.RoundTripper) error {
	var all errgroup.Group
	for _, l := range r.loads {
		all.Go(func() error {
			acks := l.acks.Snapshot()
			found, err := bench.Verify(ctx, l.g, acks, bench.Reader{
				URL: "http://" + r.programs[0].Address + "/api/v1/read", Tenant: l.name,
				Client: &http.Client{Transport: by},
			})
			if err == nil && (!found.IsOK() || found.Acknowledged != acks.Count()) {
				err = fmt.Errorf("%s", found)
			}
			if err != nil {
				return fmt.Errorf("load %s: %w", l.name, err)
			}
			return nil
		})
	}
	return all.Wait()
}

func (r *nodesRig) verifyAll(when string) {
	for i := range r.processes {
		r.verify(i, when)
	}
}

// twoDie kills two nodes at once, under load and while a real Prometheus writes.
func (r *nodesRig) twoDie() {
	t := r.t
	self := cassiatest.FreeAddress(t)
	writer := startPrometheus(r.ctx, t, self, impatientConfig(self, r.programs[0].Address))
	// Prometheus doesn't send samples that it scraped before its remote write started.
	require.Eventually(t, func() bool {
		answer, err := promrig.API{URL: r.processes[1].URL()}.Query(r.ctx, `up{job="prometheus"}`, time.Now())
		return err == nil && answer.Points() == 1
	}, cassiatest.Patience, 100*time.Millisecond, "Prometheus writes")
	began := time.Now().Truncate(time.Second)
	time.Sleep(8 * time.Second)

	var both errgroup.Group
	both.Go(func() error { return r.cluster.Kill(1) })
	both.Go(func() error { return r.cluster.Kill(3) })
	require.NoError(t, both.Wait())
	var asking errgroup.Group
	for _, p := range r.processes {
		asking.Go(func() error { return r.refuses("a write", oneSample(p.URL())) })
		asking.Go(func() error {
			return r.refuses("a query", func() (*http.Response, error) {
				return http.Get(p.URL() + "/api/v1/query?query=up&time=" + strconv.FormatInt(began.Unix(), 10))
			})
		})
	}
	require.NoError(t, asking.Wait())
	require.Eventually(t, func() bool { return r.sumOf(writer, "prometheus_remote_storage_samples_retried_total") > 0 },
		cassiatest.Patience, 100*time.Millisecond, "Prometheus should try again")
	for _, p := range r.processes {
		r.requireStatus(p.URL()+"/-/healthy", http.StatusOK)
	}

	both.Go(func() error { return r.cluster.Revive(1) })
	both.Go(func() error { return r.cluster.Revive(3) })
	require.NoError(t, both.Wait())
	r.progress("two nodes revived")
	end := time.Now().Truncate(time.Second)
	r.verifyAll("two nodes killed and revived")
	r.arrives(writer, began, end)
	for _, lost := range []string{"failed", "dropped"} {
		require.Zero(t, r.sumOf(writer, "prometheus_remote_storage_samples_"+lost+"_total"), lost)
	}
	t.Logf("Prometheus retried %v samples", r.sumOf(writer, "prometheus_remote_storage_samples_retried_total"))
	writer.Kill()
}

// arrives waits until all samples that Prometheus scraped in a time range can be read through the process to which it
// doesn't write, with identical digits. It ignores samples of other senders, because rejected samples may or may not
// have been stored.
func (r *nodesRig) arrives(writer *promrig.Process, began, end time.Time) {
	everything := fmt.Sprintf(`{job="prometheus"}[%ds]`, int(end.Sub(began).Seconds()))
	difference := ""
	for since := time.Now(); time.Since(since) < cassiatest.Patience; time.Sleep(500 * time.Millisecond) {
		// Query the writer again each time, because on a busy machine Prometheus also appends samples late.
		want, err := promrig.API{URL: writer.URL()}.Query(r.ctx, everything, end)
		require.NoError(r.t, err)
		got, err := promrig.API{URL: r.processes[1].URL()}.Query(r.ctx, everything, end)
		if busy(err) {
			continue
		}
		require.NoError(r.t, err)
		if difference = want.Difference(got); difference == "" {
			require.Greater(r.t, want.Points(), 10000)
			r.t.Logf("all of Prometheus' %d samples of %d series came, %s after the last",
				want.Points(), len(want.Series), time.Since(end).Round(time.Second))
			return
		}
	}
	require.Fail(r.t, "samples of Prometheus' are missing", difference)
}

// impatientConfig returns the configuration of a Prometheus that scrapes itself often, and writes with short pauses
// between attempts.
func impatientConfig(self, cassia string) string {
	return fmt.Sprintf(`
global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
  - job_name: prometheus
    scrape_native_histograms: true
    always_scrape_classic_histograms: true
    static_configs: [{targets: ["%s"]}]
remote_write:
  - url: http://%s/api/v1/write
    protobuf_message: io.prometheus.write.v2.Request
    send_native_histograms: true
    queue_config: {batch_send_deadline: 500ms, max_backoff: 500ms}
`, self, cassia)
}

// sumOf returns the sum of a metric that Prometheus scrapes from itself.
func (r *nodesRig) sumOf(p *promrig.Process, metric string) float64 {
	answer, err := promrig.API{URL: p.URL()}.Query(r.ctx, "sum("+metric+") or vector(0)", time.Now())
	require.NoError(r.t, err)
	require.Len(r.t, answer.Series, 1, metric)
	_, text, _ := strings.Cut(answer.Series[0].Floats[0], ",")
	v, err := strconv.ParseFloat(strings.Trim(text, `"]`), 64)
	require.NoError(r.t, err)
	return v
}

// oneSample returns a function that sends a sample of a metric that isn't in any load.
func oneSample(url string) func() (*http.Response, error) {
	return func() (*http.Response, error) {
		body, err := (&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
			Labels:  []prompb.Label{{Name: "__name__", Value: "refused"}},
			Samples: []prompb.Sample{{Timestamp: time.Now().UnixMilli(), Value: 1}},
		}}}).Marshal()
		if err != nil {
			return nil, err
		}
		return http.Post(url+"/api/v1/write", "application/x-protobuf", bytes.NewReader(snappy.Encode(nil, body)))
	}
}

// refuses requires that a request is rejected with status 503, in time, and with one line that names the missing nodes.
func (r *nodesRig) refuses(what string, ask func() (*http.Response, error)) error {
	began := time.Now()
	answer, err := ask()
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	took, text := time.Since(began), strings.TrimSpace(string(body))
	r.t.Logf("%s was answered after %s with %s: %s", what, took.Round(10*time.Millisecond), answer.Status, text)
	switch {
	case answer.StatusCode != http.StatusServiceUnavailable:
		return fmt.Errorf("%s: %s: %s", what, answer.Status, text)
	case took > refusedWithin:
		return fmt.Errorf("%s was refused after %s only", what, took)
	case strings.Contains(text, "\n") || !strings.Contains(text, "LOCAL_QUORUM") ||
		!strings.Contains(text, " of 3 nodes up"):
		return fmt.Errorf("%s: this doesn't say in one line what is missing: %s", what, text)
	}
	return nil
}

func (r *nodesRig) requireStatus(url string, want int) {
	answer, err := http.Get(url)
	require.NoError(r.t, err)
	defer answer.Body.Close()
	require.Equal(r.t, want, answer.StatusCode, url)
}
