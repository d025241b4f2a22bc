package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

const killedRules = `
groups:
- name: every other second
  interval: 2s
  rules:
  - record: tick
    expr: vector(time())
  - alert: Loaded
    expr: load > 5
    for: 4s
    labels: {severity: page}
    annotations: {summary: 'load is {{ $value }} in {{ $externalLabels.zone }}'}
`

// webhook records the notifications of an Alertmanager.
type webhook struct {
	mu    sync.Mutex
	heard []string
}

func (w *webhook) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var told struct {
		Alerts []struct {
			Status              string
			Labels, Annotations map[string]string
			GeneratorURL        string
		}
	}
	if json.NewDecoder(r.Body).Decode(&told) != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range told.Alerts {
		w.heard = append(
			w.heard, fmt.Sprint(a.Status, " ", a.Labels, " ", a.Annotations["summary"], " ", a.GeneratorURL),
		)
	}
}

func (w *webhook) has(parts ...string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, text := range w.heard {
		missing := false
		for _, part := range parts {
			missing = missing || !strings.Contains(text, part)
		}
		if !missing {
			return true
		}
	}
	return false
}

// startAlertmanager starts a real Alertmanager that notifies the webhook immediately.
func startAlertmanager(ctx context.Context, t *testing.T, w *webhook) *promrig.Process {
	path := cassiatest.Binary(t, "CASSIA_TEST_ALERTMANAGER", "alertmanager")
	hook := httptest.NewServer(w)
	t.Cleanup(hook.Close)
	program, err := promrig.Alertmanager(path, t.TempDir(), cassiatest.FreeAddress(t), fmt.Sprintf(`
route: {receiver: hook, group_wait: 0s, group_interval: 1s, repeat_interval: 1h}
receivers: [{name: hook, webhook_configs: [{url: %q, send_resolved: true}]}]
`, hook.URL))
	require.NoError(t, err)
	return start(ctx, t, program)
}

// TestRulesOutliveKills kills the process that evaluates rules. No evaluation may be missing, and a real Alertmanager
// must be notified when an alert starts and stops firing.
func TestRulesOutliveKills(t *testing.T) {
	if testing.Short() {
		t.Skip("runs real programs for half a minute: leave -short out")
	}
	t.Parallel() // most of the time is spent waiting
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	heard := &webhook{}
	alerts := startAlertmanager(ctx, t, heard)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rules.yml"), []byte(killedRules), 0o600))
	binary := builtCassia(t)
	cassia := start(ctx, t, promrig.Cassia(binary, dir, cassiatest.FreeAddress(t), "--rule.files=team-a="+dir+"/*.yml",
		"--alertmanager.url="+
			alerts.URL(), "--rule.external-label=zone=z1", "--web.external-url=https://cassia.example.org"))
	of := promrig.API{URL: cassia.URL() + "/t/team-a"}
	load := func(v float64) { cassiatest.Server{URL: of.URL}.Write(t, "load", time.Now(), v) }
	latest := func(query string) float64 {
		answer, err := of.Query(ctx, query, time.Now())
		if err != nil || len(answer.Series) != 1 {
			return 0
		}
		_, v := parsePoint(t, answer.Series[0].Floats[0])
		return v
	}
	wait := func(why string, condition func() bool) {
		t.Helper()
		require.Eventually(t, condition, cassiatest.Patience, 100*time.Millisecond, why)
	}

	load(9)
	wait("it fires", func() bool {
		return heard.has("firing", "alertname:Loaded", "severity:page", "tenant:team-a", "zone:z1", "load is 9 in z1",
			"https://cassia.example.org/t/team-a/graph")
	})
	wait("it is seen as firing", func() bool {
		code, body := cassiatest.Server{URL: of.URL}.Get(t, "/api/v1/alerts")
		return code == http.StatusOK && strings.Contains(body, `"state":"firing"`)
	})
	_, body := cassiatest.Server{URL: of.URL}.Get(t, "/api/v1/alertmanagers")
	require.Contains(t, body, alerts.URL()+"/api/v2/alerts")
	_, body = cassiatest.Server{URL: cassia.URL()}.Get(t, "/api/v1/rules")
	require.Contains(t, body, `"groups":[]`, "other tenants have none")

	wait("it is stored", func() bool { return latest(`count_over_time(ALERTS{alertstate="firing"}[1m])`) >= 3 })
	gaps := ruleGaps{interval: 2 * time.Second, dying: time.Now()}
	missed, failed := leftOut(t, cassia.URL())
	cassia.Kill()
	gaps.killed = time.Now()
	start(ctx, t, cassia.Program)
	gaps.began = time.Now() // The start waits for senders before it evaluates.
	wait("the rules go on", func() bool { return latest(`timestamp(tick)`) > float64(gaps.began.Unix())+15 })
	ended := latest(`timestamp(tick)`)
	for _, query := range []string{`tick`, `ALERTS{alertstate="firing"}`, `ALERTS_FOR_STATE`} {
		answer, err := of.Query(ctx, query+`[1h]`, time.Unix(int64(ended), 0))
		require.NoError(t, err)
		require.Len(t, answer.Series, 1, query)
		samples := parsePoints(t, answer.Series[0].Floats)
		require.Less(t, samples[0].at, gaps.killed.UnixMilli(), query)
		require.Greater(t, samples[len(samples)-1].at, gaps.killed.UnixMilli(), query)
		before, after := gaps.count(t, query, samples)
		missedNow, failedNow := leftOut(t, cassia.URL())
		require.LessOrEqual(t, before, missed+failed+failedNow, "%s has gaps that aren't made up for", query)
		require.LessOrEqual(t, after, missedNow+failedNow, "%s has gaps after the process took over", query)
	}
	require.False(t, heard.has("resolved"), "the alert went on")

	load(1)
	wait("it ends", func() bool { return heard.has("resolved", "alertname:Loaded") })
}
