package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

// testClientGolang calls all methods of client_golang's API client that return data, on both servers, and compares the
// results.
func testClientGolang(t *testing.T, r apiRig) {
	clients := make([]v1.API, 0, 2)
	for _, url := range []string{r.prometheus, r.cassia} {
		c, err := api.NewClient(api.Config{Address: url})
		require.NoError(t, err)
		clients = append(clients, v1.NewAPI(c))
	}
	span := v1.Range{Start: r.to.Add(-10 * time.Minute), End: r.to, Step: time.Minute}
	for name, ask := range map[string]func(context.Context, v1.API) (any, v1.Warnings, error){
		"Query": func(ctx context.Context, a v1.API) (any, v1.Warnings, error) {
			return a.Query(
				ctx, `sort(requests_total)`, r.to, v1.WithTimeout(time.Minute), v1.WithLookbackDelta(time.Minute),
			)
		},
		"Query with a limit": func(ctx context.Context, a v1.API) (any, v1.Warnings, error) {
			return a.Query(ctx, `sort(requests_total)`, r.to, v1.WithLimit(2))
		},
		"Query of what is wrong": func(ctx context.Context, a v1.API) (any, v1.Warnings, error) {
			return a.Query(ctx, `requests_total{`, r.to)
		},
		"Query that can't be executed": func(ctx context.Context, a v1.API) (any, v1.Warnings, error) {
			return a.Query(ctx, `label_replace(up, "a", "", "b", "(")`, r.to)
		},
		"QueryRange": func(ctx context.Context, a v1.API) (any, v1.Warnings, error) {
			return a.QueryRange(ctx, `sum by (job) (rate(requests_total[2m]))`, span, v1.WithStats(v1.AllStatsValue))
		},
		"QueryRange of histograms": func(ctx context.Context, a v1.API) (any, v1.Warnings, error) {
			return a.QueryRange(ctx, `native`, span)
		},
		"QueryExemplars": func(ctx context.Context, a v1.API) (any, v1.Warnings, error) {
			found, err := a.QueryExemplars(ctx, `requests_total`, r.from, r.to)
			return found, nil, err
		},
		"Series": func(ctx context.Context, a v1.API) (any, v1.Warnings, error) {
			found, warnings, err := a.Series(ctx, []string{"requests_total", "up"}, r.from, r.to)
			sort.Slice(found, func(i, j int) bool { return found[i].String() < found[j].String() })
			return found, warnings, err
		},
		"LabelNames": func(ctx context.Context, a v1.API) (any, v1.Warnings, error) {
			return a.LabelNames(ctx, []string{"requests_total"}, r.from, r.to)
		},
		"LabelValues": func(ctx context.Context, a v1.API) (any, v1.Warnings, error) {
			return a.LabelValues(ctx, "instance", nil, r.from, r.to, v1.WithLimit(10))
		},
		"LabelValues of a name outside of ASCII": func(ctx context.Context, a v1.API) (any, v1.Warnings, error) {
			return a.LabelValues(ctx, "weg", nil, r.from, r.to)
		},
		"Alerts": func(ctx context.Context, a v1.API) (any, v1.Warnings, error) {
			v, err := a.Alerts(ctx)
			return v, nil, err
		},
		"AlertManagers": func(ctx context.Context, a v1.API) (any, v1.Warnings, error) {
			v, err := a.AlertManagers(ctx)
			return v, nil, err
		},
		"Rules": func(ctx context.Context, a v1.API) (any, v1.Warnings, error) {
			v, err := a.Rules(ctx, nil)
			return v, nil, err
		},
		"Targets": func(ctx context.Context, a v1.API) (any, v1.Warnings, error) {
			v, err := a.Targets(ctx)
			return v, nil, err
		},
		"TargetsMetadata": func(ctx context.Context, a v1.API) (any, v1.Warnings, error) {
			v, err := a.TargetsMetadata(ctx, "", "", "")
			return v, nil, err
		},
		"WalReplay": func(ctx context.Context, a v1.API) (any, v1.Warnings, error) {
			v, err := a.WalReplay(ctx)
			return v.Min + v.Max + v.Current, nil, err
		},
		"TSDB": func(ctx context.Context, a v1.API) (any, v1.Warnings, error) {
			v, err := a.TSDB(ctx)
			return fmt.Sprint(
				v.HeadStats.NumSeries, v.HeadStats.NumLabelPairs, len(v.SeriesCountByMetricName),
			), nil, err
		},
	} {
		theirs, theirWarnings, theirErr := ask(t.Context(), clients[0])
		ours, warnings, err := ask(t.Context(), clients[1])
		require.Equal(t, theirErr, err, name)
		require.Equal(t, theirs, ours, name)
		require.Equal(t, theirWarnings, warnings, name)
	}
	testClientGolangStatus(t, clients[1])
}

// testClientGolangStatus checks that client_golang can decode Cassia's responses to the calls whose results differ
// between Prometheus and Cassia.
func testClientGolangStatus(t *testing.T, c v1.API) {
	build, err := c.Buildinfo(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, build.Version)
	runtime, err := c.Runtimeinfo(t.Context())
	require.NoError(t, err)
	require.Positive(t, runtime.GoroutineCount)
	_, err = c.Flags(t.Context())
	require.NoError(t, err)
	_, err = c.Config(t.Context())
	require.NoError(t, err)
	metadata, err := c.Metadata(t.Context(), "requests_total", "")
	require.NoError(t, err)
	require.Equal(t, []v1.Metadata{{Type: v1.MetricTypeCounter, Help: "Requests."}}, metadata["requests_total"])
}

// testPromtool runs queries of promtool on both servers and compares the output.
func testPromtool(t *testing.T, r apiRig) {
	path := cassiatest.Binary(t, "CASSIA_TEST_PROMTOOL", "promtool")
	from, to := fmt.Sprint(r.to.Add(-10*time.Minute).Unix()), fmt.Sprint(r.to.Unix())
	for _, c := range []struct {
		args []string
		// sorted is set if the order of the output's lines is undefined.
		sorted bool
	}{
		{[]string{"instant", "--time=" + to, "URL", "sort(requests_total)"}, false},
		{[]string{"instant", "--time=" + to, "-o", "json", "URL", "native"}, false},
		{[]string{"instant", "--time=" + to, "URL", "requests_total{"}, false},
		{[]string{"range", "--start=" + from, "--end=" + to, "--step=1m", "URL", "sum by (job) (rate(requests_total[2m]))"}, true},
		{[]string{"series", "--start=" + from, "--end=" + to, "--match=requests_total", "--match=up", "URL"}, true},
		{[]string{"labels", "--start=" + from, "--end=" + to, "URL", "job"}, false},
		{[]string{"labels", "URL", "weg"}, false},
		{[]string{"analyze", "--server=URL", "--type=histogram", "--time=" + to, "--match=latency_bucket"}, true},
		{[]string{"analyze", "--server=URL", "--type=histogram", "--time=" + to, "--match=native"}, true},
	} {
		answers := make([]string, 0, 2)
		for _, url := range []string{r.prometheus, r.cassia} {
			args := append([]string{"query"}, c.args...)
			for i := range args {
				args[i] = strings.Replace(args[i], "URL", url, 1)
			}
			out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
			lines := strings.Split(strings.ReplaceAll(string(out), url, "URL"), "\n")
			if c.sorted {
				sort.Strings(lines)
			}
			answers = append(answers, fmt.Sprint(strings.Join(lines, "\n"), err))
		}
		require.Equal(t, answers[0], answers[1], "%v", c.args)
		require.NotEmpty(t, strings.TrimSpace(answers[0]), "%v", c.args)
	}
}
