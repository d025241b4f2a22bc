package e2e

import (
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

// absentHere contains metrics, or parts of selectors, that don't exist in the server of TestCassiaOnItsDashboard, each
// with the reason.
var absentHere = map[string]string{
	"cassia_cassandra_":               "it keeps a directory",
	"cassia_store_corrupt_rows_total": "no row is corrupt",
	"cassia_panics_total":             "nothing panics",
	`code=~"5..`:                      "no request fails",
}

func absent(selector string) bool {
	for part := range absentHere {
		if strings.Contains(selector, part) {
			return true
		}
	}
	return false
}

// TestCassiaOnItsDashboard checks the queries of the dashboard and of the rules on a server that stores its own metrics
// and on which exercise has used every measured feature.
func TestCassiaOnItsDashboard(t *testing.T) {
	if testing.Short() {
		t.Skip("starts Grafana's data source: leave -short out")
	}
	t.Parallel()
	dir := t.TempDir()
	limits := filepath.Join(dir, "limits.yml")
	require.NoError(t, os.WriteFile(limits, []byte("tenants: {small: {active_series: 1}}"), 0o600))
	r := startServe(t, "--storage.path="+filepath.Join(dir, "data"), "--storage.partitions=16", "--self-monitoring",
		"--ha.enabled", "--limits.file="+limits, "--backup.to="+filepath.Join(dir, "backups"))
	g := newGrafana(t, r.URL+"/t/cassia")
	stored := func() float64 {
		_, metrics := r.Get(t, "/metrics")
		return cassiatest.Metric(t, metrics, `cassia_self_monitoring_rounds_total{result="stored"}`)
	}
	for round := 0; ; round++ {
		before := stored()
		r.exercise(t, round)
		require.Eventually(t, func() bool { return stored() > before }, cassiatest.Patience, 100*time.Millisecond)
		g.from, g.to = time.Now().Add(-time.Hour), time.Now()
		if g.allHold(t, workStored) {
			break
		}
		require.Less(t, round, 10, "its own metrics aren't stored")
	}
	t.Run("dashboard", func(t *testing.T) { askDashboard(t, g, readDashboards(t)["cassia-itself"], nil) })
	t.Run("rules", func(t *testing.T) { askRules(t, g) })
}

// workStored contains queries that return a result only after the server has stored the metrics that exercise changes.
// These metrics must have been stored at least twice, because a rate can't be computed from a single sample. On a slow
// machine, metrics may be stored in the middle of a call.
var workStored = []string{
	`min(count_over_time({__name__=~"cassia_(query_answers|write_rejected_samples|tenant_limit_refused)_total"}[10m])) >= 2`,
	`increase(cassia_write_rejected_samples_total{reason!="maybe_ahead"}[10m]) > 0`,
	`increase(cassia_write_rejected_samples_total{reason="maybe_ahead"}[10m]) > 0`,
	`increase(cassia_tenant_limit_refused_total[10m]) > 0`,
	`increase(cassia_store_seal_seconds_count[10m]) > 0`,
}

// exercise uses each feature that the metrics measure.
func (r running) exercise(t *testing.T, round int) {
	t.Helper()
	now := time.Now()
	before := now.Add(-26 * time.Hour).Add(time.Duration(round) * time.Second)
	r.Write(t, "m", now, float64(round))
	r.Write(t, "m", before, float64(round))
	code, _ := r.Post(t, "/api/v1/write", oneSampleOf("", now))
	require.Equal(t, http.StatusBadRequest, code, "without a name")
	code, _ = r.Post(t, "/api/v1/write", oneSampleOf("m", now.Add(time.Hour)))
	require.Equal(t, http.StatusServiceUnavailable, code, "ahead, or the clock is slow")
	r.Post(t, "/t/small/api/v1/write", oneSampleOf("a", now))
	code, _ = r.Post(t, "/t/small/api/v1/write", oneSampleOf("b", now))
	require.Equal(t, http.StatusBadRequest, code, "over the limit")
	code, text := r.Post(t, "/-/seal", nil)
	require.Equal(t, http.StatusOK, code, text)
	for query, want := range map[string]int{
		"query=m": http.StatusOK, "query=(": http.StatusBadRequest,
		"query=" + url.QueryEscape("max_over_time(m[1h])") + "&time=" + before.Truncate(time.Hour).Format(time.RFC3339): http.StatusOK,
	} {
		code, text := r.Get(t, "/api/v1/query?"+query)
		require.Equal(t, want, code, text)
	}
}

func oneSampleOf(metric string, at time.Time) []byte {
	body, err := (&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
		Labels:  []prompb.Label{{Name: "__name__", Value: metric}},
		Samples: []prompb.Sample{{Timestamp: at.UnixMilli(), Value: 1}},
	}}}).Marshal()
	if err != nil {
		panic(err) // All values are constants.
	}
	return snappy.Encode(nil, body)
}

// count returns the number of series in the result of an instant query.
func (g *grafana) count(t *testing.T, query string) int {
	t.Helper()
	return g.ask(t, query, "", true).series
}

// allHold reports whether every query has a result.
func (g *grafana) allHold(t *testing.T, queries []string) bool {
	t.Helper()
	return !slices.ContainsFunc(queries, func(q string) bool { return g.count(t, q) == 0 })
}

// askDashboard runs all queries of a dashboard and calls each with the result of each query in a panel.
func askDashboard(t *testing.T, g *grafana, d dashboard, each func(dashboardPanel, dashboardTarget, grafanaAnswer)) {
	g.choose(t, d)
	for _, a := range d.Annotations.List {
		if a.BuiltIn == 0 {
			require.Positive(t, g.ask(t, a.Expr, "", false).numbers, a.Name)
		}
	}
	for _, p := range d.Panels {
		numbers := 0
		for _, target := range p.Targets {
			answer := g.ask(t, target.Expr, p.Interval, target.Instant)
			numbers += answer.numbers
			if each != nil {
				each(p, target, answer)
			}
			if answer.samples > 0 {
				continue
			}
			missing := 0
			for _, s := range selectors(t, answer.expr) {
				if absent(s) {
					missing++
					requireInSources(t, metricOf(t, s))
				}
			}
			require.Positive(t, missing, "%s, %s: no data for %s", d.UID, p.Title, target.Expr)
		}
		require.True(t, p.Type == "row" || numbers > 0, "%s, %s: the panel is empty", d.UID, p.Title)
	}
}

// askRules runs the queries of all rules. A rule must fire if and only if exercise caused its condition.
func askRules(t *testing.T, g *grafana) {
	records, rules := map[string]bool{}, map[string]string{}
	for _, file := range ruleFiles(t) {
		groups, errs := rulefmt.ParseFile(
			file, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler),
		)
		require.Empty(t, errs, file)
		for _, group := range groups.Groups {
			for _, rule := range group.Rules {
				if rule.Record != "" {
					records[rule.Record] = true
					require.Positive(t, g.count(t, rule.Expr), rule.Record)
				}
				rules[rule.Alert+rule.Record] = rule.Expr
			}
		}
	}
	caused := map[string]bool{
		"CassiaRejectsSamples": true, "CassiaTenantAtItsLimit": true, "CassiaClockMaybeSlow": true,
	}
	// These rules detect a slow machine, so they may fire if the test's machine is slow. With few writes, a single
	// write that waited for two seconds is enough.
	slow := map[string]bool{
		"CassiaAcknowledgesSlowly": true, "CassiaQueriesWait": true, "CassiaDiskSlow": true, "CassiaWritesStall": true,
	}
	for name, expr := range rules {
		if fires := g.count(t, expr) > 0; !records[name] && !slow[name] {
			require.Equal(t, caused[name], fires, name)
		}
		for _, s := range selectors(t, expr) {
			switch metric := metricOf(t, s); {
			case records[metric]:
			case absent(s):
				requireInSources(t, metric)
			default:
				require.Positive(t, g.count(t, s), "%s: nothing has %s", name, s)
			}
		}
	}
}
