package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
	"github.com/cassia-db/cassia/storage/ha"
)

// startCounter starts a scrape target with a counter that increases by one per second. Each sample has the time of its
// scrape, so its value can be computed from its timestamp, for every scraper and delay. It returns the counter's start
// time in milliseconds.
func startCounter(t *testing.T) (address string, began int64) {
	began = time.Now().UnixMilli()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		now := time.Now().UnixMilli()
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		fmt.Fprintf(w, "# TYPE work_total counter\nwork_total %.3f %d\n", float64(now-began)/1000, now)
	}))
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String(), began
}

// replicaConfig returns the configuration of a Prometheus that scrapes the counter every second and writes it to
// cassia.
func replicaConfig(target, cassia, replica string) string {
	return fmt.Sprintf(`
global: {scrape_interval: 1s, scrape_timeout: 1s, external_labels: {cluster: pair, __replica__: %s}}
scrape_configs:
  - job_name: work
    static_configs: [{targets: ["%s"]}]
remote_write:
  - url: http://%s/api/v1/write
    queue_config: {batch_send_deadline: 200ms, max_backoff: 500ms}
`, replica, target, cassia)
}

// prometheusPair consists of two real Prometheus replicas that write to one cassia.
type prometheusPair struct {
	t      *testing.T
	ctx    context.Context
	cassia *promrig.Process
}

// status returns the HA status of the pair.
func (p *prometheusPair) status() ha.ClusterStatus {
	p.t.Helper()
	var answer struct{ Data []ha.ClusterStatus }
	_, body := cassiatest.Server{URL: p.cassia.URL()}.Get(p.t, "/api/v1/status/ha")
	require.NoError(p.t, json.Unmarshal([]byte(body), &answer))
	if len(answer.Data) == 0 {
		return ha.ClusterStatus{}
	}
	require.Len(p.t, answer.Data, 1)
	return answer.Data[0]
}

// wait waits until the status of the pair fulfills a condition.
func (p *prometheusPair) wait(why string, condition func(ha.ClusterStatus) bool) {
	p.t.Helper()
	for began := time.Now(); !condition(p.status()); time.Sleep(100 * time.Millisecond) {
		require.Less(p.t, time.Since(began), cassiatest.Patience, why)
	}
}

// elects waits until a replica is elected, and then for some samples.
func (p *prometheusPair) elects(replica string) {
	p.t.Helper()
	p.wait(replica+" isn't elected", func(s ha.ClusterStatus) bool {
		return s.Elected == replica && s.State == "settled"
	})
	p.goesOn()
}

// goesOn waits until samples of the next seconds are stored.
func (p *prometheusPair) goesOn() {
	p.t.Helper()
	since := time.Now()
	p.wait("no samples come", func(s ha.ClusterStatus) bool { return s.Watermark.After(since.Add(4 * time.Second)) })
}

// hears waits until new samples of a replica are received.
func (p *prometheusPair) hears(replica string) {
	p.t.Helper()
	since := time.Now()
	p.wait(replica+" isn't heard", func(s ha.ClusterStatus) bool {
		return slices.ContainsFunc(s.Replicas, func(r ha.ReplicaHeard) bool {
			return r.Replica == replica && r.Heard.After(since)
		})
	})
}

// samples returns the samples of the counter: those that cassia has stored for the pair, or those that a Prometheus has
// scraped.
func (p *prometheusPair) samples(of *promrig.Process, selector string) []stamped {
	p.t.Helper()
	answer, err := promrig.API{URL: of.URL()}.Query(p.ctx, selector+"[1h]", time.Now())
	require.NoError(p.t, err)
	require.Len(p.t, answer.Series, 1, "a series of each replica")
	return parsePoints(p.t, answer.Series[0].Floats)
}

// TestPairOfPrometheus kills one of two real Prometheus replicas, restarts it, and then kills the other. All samples
// that each of them scraped while it was elected must be stored.
func TestPairOfPrometheus(t *testing.T) {
	if testing.Short() {
		t.Skip("runs real programs for a minute: leave -short out")
	}
	t.Parallel() // most of the time is spent waiting for scrapes
	binary := builtCassia(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	cassia := start(ctx, t,
		promrig.Cassia(binary, t.TempDir(), cassiatest.FreeAddress(t), "--ha.enabled", "--ha.failover-timeout=15s"))
	p := &prometheusPair{t: t, ctx: ctx, cassia: cassia}
	target, zero := startCounter(t)
	replica := func(name string) *promrig.Process {
		return startPrometheus(ctx, t, cassiatest.FreeAddress(t), replicaConfig(target, cassia.Address, name))
	}
	a := replica("a")
	p.elects("a")
	b := replica("b")
	p.hears("b")
	began := time.Now().UnixMilli()
	p.goesOn()
	a.Kill()
	p.elects("b")
	a = start(ctx, t, a.Program)
	p.hears("a")
	p.goesOn()
	require.Equal(t, "b", p.status().Elected, "nothing changes while the elected one is there")
	own := map[string][]stamped{"b": p.samples(b, "work_total")}
	b.Kill()
	p.elects("a")
	p.wait("what was held isn't stored", func(s ha.ClusterStatus) bool { return s.Held.Rows == 0 })

	stored := p.samples(cassia, `work_total{cluster="pair"}`)
	end := stored[len(stored)-1].at
	own["a"] = p.samples(a, "work_total")
	there := map[int64]bool{}
	for _, s := range stored {
		require.Equal(t, float64(s.at-zero)/1000, s.v, "a sample at %d", s.at)
		there[s.at] = true
	}
	spans := p.status().Spans
	elected := func(at int64) (replica, before string) {
		for _, s := range spans {
			if at > s.From.UnixMilli() {
				replica, before = s.Replica, replica
			}
		}
		return replica, before
	}
	scraped, missing := map[int64]string{}, 0
	for name, samples := range own {
		for _, s := range samples {
			scraped[s.at] += name
			if by, _ := elected(s.at); by == name && s.at > began && s.at <= end && !there[s.at] {
				missing++
			}
		}
	}
	require.Zero(t, missing,
		"samples that the elected replica has scraped: %v, not %v, elected: %v", stored, own, spans)
	askedB, both := own["b"][len(own["b"])-1].at, 0
	for _, s := range stored {
		by, before := elected(s.at)
		switch {
		case strings.Contains(scraped[s.at], by), scraped[s.at] == "" && s.at > askedB && by == "b":
		case before != "" && strings.Contains(scraped[s.at], before):
			// The sample was stored, but its sender was killed before it recorded this.
			both++
		default:
			require.Fail(t, "a sample that the elected replica hasn't scraped",
				"%d: %v of %v, elected: %v", s.at, stored, own, spans)
		}
	}
	t.Logf("%d samples of the pair, %d of them of the one that was elected before", len(stored), both)
	found, err := promrig.API{URL: cassia.URL()}.Values(ctx, "__replica__", time.UnixMilli(began), time.UnixMilli(end))
	require.NoError(t, err)
	require.Empty(t, found, "the label of the replica is left out")
}
