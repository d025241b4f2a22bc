package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// startCounter serves a counter that rises by one a second, at every scrape to what the time says.
func startCounter(t *testing.T) string {
	began := time.Now()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		fmt.Fprintf(w, "# TYPE work_total counter\nwork_total %.3f\n", time.Since(began).Seconds())
	}))
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// replicaConfig has a Prometheus scrape the counter each second and write it on; replica may be "".
func replicaConfig(target, cassia, cluster, replica string) string {
	external := fmt.Sprintf("cluster: %q", cluster)
	if replica != "" {
		external += fmt.Sprintf(", __replica__: %q", replica)
	}
	return fmt.Sprintf(`
global: {scrape_interval: 1s, scrape_timeout: 1s, external_labels: {%s}}
scrape_configs:
  - job_name: work
    static_configs: [{targets: ["%s"]}]
remote_write:
  - url: http://%s/api/v1/write
    queue_config: {batch_send_deadline: 200ms, max_backoff: 500ms}
`, external, target, cassia)
}

// number asks for one value; ok is false where there is none.
func number(ctx context.Context, t *testing.T, url, query string, at time.Time) (value float64, ok bool) {
	t.Helper()
	answer, err := promrig.API{URL: url}.Query(ctx, query, at)
	require.NoError(t, err)
	if len(answer.Series) == 0 {
		return 0, false
	}
	require.Len(t, answer.Series, 1, "%s: a series of each replica", query)
	var pair [2]any
	require.NoError(t, json.Unmarshal([]byte(answer.Series[0].Floats[0]), &pair))
	value, err = strconv.ParseFloat(pair[1].(string), 64)
	require.NoError(t, err)
	return value, true
}

// TestPairOfPrometheus kills one of two real Prometheus, revives it, and kills the other. A third one, undisturbed,
// says what the counter did.
func TestPairOfPrometheus(t *testing.T) {
	if testing.Short() {
		t.Skip("runs real programs for a minute: leave -short out")
	}
	t.Parallel() // most of the time is spent waiting for scrapes
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	binary := builtCassia(t)
	cassia := start(ctx, t, promrig.Cassia(binary, t.TempDir(), address(t), "--ha.enabled", "--ha.failover-timeout=3s"))
	target := startCounter(t)
	start2 := func(cluster, replica string) *promrig.Process {
		return startPrometheus(ctx, t, address(t), replicaConfig(target, cassia.Address, cluster, replica))
	}
	a := start2("pair", "a")
	elected := func() string {
		var answer struct {
			Data []struct {
				Cluster, Elected, State string
			}
		}
		response, err := http.Get(cassia.URL() + "/api/v1/status/ha")
		require.NoError(t, err)
		defer response.Body.Close()
		require.NoError(t, json.NewDecoder(response.Body).Decode(&answer))
		for _, c := range answer.Data {
			if c.Cluster == "pair" && c.State == "settled" {
				return c.Elected
			}
		}
		return ""
	}
	until := func(replica string) {
		t.Helper()
		require.Eventually(t, func() bool { return elected() == replica }, time.Minute, 100*time.Millisecond, "%s isn't elected", replica)
	}
	until("a")
	b := start2("pair", "b")
	start2("alone", "")

	span := func(from, to time.Time) string { return fmt.Sprintf("%dms", max(1, to.Sub(from).Milliseconds())) }
	has := func(cluster string, since time.Time, samples float64) {
		t.Helper()
		require.Eventually(t, func() bool {
			now := time.Now()
			n, ok := number(ctx, t, cassia.URL(), fmt.Sprintf(`count_over_time(work_total{cluster=%q}[%s])`, cluster, span(since, now)), now)
			return ok && n >= samples
		}, time.Minute, 200*time.Millisecond)
	}
	has("alone", time.Now(), 3)
	began := time.Now()
	has("pair", began, 5)
	a.Kill()
	until("b")
	has("pair", time.Now(), 4)
	start(ctx, t, a.Program)
	has("alone", time.Now(), 5)
	require.Equal(t, "b", elected(), "nothing changes while the elected one is there")
	b.Kill()
	until("a")
	has("pair", time.Now(), 4)
	has("alone", time.Now(), 1)
	end := time.Now().Add(-time.Second)

	ask := func(function, cluster string) float64 {
		value, ok := number(ctx, t, cassia.URL(), fmt.Sprintf(`%s(work_total{cluster=%q}[%s])`, function, cluster, span(began, end)), end)
		require.True(t, ok)
		return value
	}
	require.InDelta(t, ask("increase", "alone"), ask("increase", "pair"), 1.2, "more than one scrape interval apart")
	require.Zero(t, ask("resets", "pair"))
	alone, pair := ask("count_over_time", "alone"), ask("count_over_time", "pair")
	require.InDelta(t, alone, pair, 4, "samples are missing, or stored twice")
	t.Logf("%.0f samples of the undisturbed one, %.0f of the pair", alone, pair)
	found, err := promrig.API{URL: cassia.URL()}.Values(ctx, "__replica__", began, end)
	require.NoError(t, err)
	require.Empty(t, found, "the label of the replica is left out")
}
