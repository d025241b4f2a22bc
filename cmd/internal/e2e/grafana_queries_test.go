package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// grafana is a client of Grafana's own Prometheus data source. The back end of the data source runs as a separate
// process, see docker/grafana.
type grafana struct {
	// url is the URL of the data source's back end.
	url      string
	from, to time.Time
	// variables contains the values of the dashboard's variables, in the form in which they are used in queries.
	variables map[string]string
	// resolution is a string with the resolution of the last response.
	resolution atomic.Value
}

// grafanaPoints is the max number of points that a panel can show.
const grafanaPoints = 1000

// newGrafana starts a data source for a Prometheus API, behind a proxy that records headers that the data source
// doesn't forward.
func newGrafana(t *testing.T, api string) *grafana {
	t.Helper()
	to, err := url.Parse(api)
	require.NoError(t, err)
	g := &grafana{}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
		// The proxy reads the whole response before it forwards it, so that an interrupted response becomes an error
		// (502). The data source closes its connection at the last brace. A proxy that still waits for the end of the
		// response would then cancel the request to Cassia.
		ModifyResponse: func(r *http.Response) error {
			g.resolution.Store(r.Header.Get("X-Cassia-Resolution"))
			body, err := io.ReadAll(r.Body)
			if err = errors.Join(err, r.Body.Close()); err == nil {
				r.Body = io.NopCloser(bytes.NewReader(body))
			}
			return err
		},
	})
	t.Cleanup(proxy.Close)
	path := cassiatest.Binary(t, "CASSIA_TEST_GRAFANA_DATASOURCE", "grafana-datasource")
	listen := cassiatest.FreeAddress(t)
	source := start(t.Context(), t, promrig.Program{
		Name: "grafana-datasource", Path: path, Args: []string{"--url=" + proxy.URL, "--listen=" + listen},
		Address: listen, ReadyPath: "/api/health", Log: filepath.Join(t.TempDir(), "grafana.log"),
	})
	g.url = source.URL()
	var health struct{ Status, Message string }
	g.get(t, "/api/health", nil, &health)
	require.Equal(t, "OK", health.Status, health.Message)
	return g
}

// get sends a request to an endpoint that doesn't return frames and decodes the response.
func (g *grafana) get(t *testing.T, path string, form url.Values, into any) {
	t.Helper()
	answer, err := http.Get(g.url + path + "?" + form.Encode())
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.StatusCode, "%s: %s", form, body)
	require.NoError(t, json.Unmarshal(body, into))
}

// fill replaces the dashboard's variables in a query, as a browser does. The back end replaces the built-in variables.
func (g *grafana) fill(query string) string {
	var pairs []string
	for name, value := range g.variables {
		pairs = append(pairs, "${"+name+"}", value, "$"+name, value)
	}
	return strings.NewReplacer(pairs...).Replace(query)
}

// grafanaAnswer is the result of a query.
type grafanaAnswer struct {
	series, samples, numbers int
	resolution               string
	// notices contains the notices that the panel shows in its corner.
	notices []string
	// expr and step are the last query that was executed.
	expr string
	step time.Duration
}

// grafanaFrame is the data frame that the back end creates from a series.
type grafanaFrame struct {
	Schema struct {
		Meta struct {
			ExecutedQueryString string
			Notices             []struct{ Severity, Text string }
		}
		Fields []struct{ Name, Type string }
	}
	Data struct{ Values [][]any }
}

var executedQuery = regexp.MustCompile(`(?s)^Expr: (.+)\nStep: (\S+)$`)

// movedEdges matches the only notice that a panel may have: that the edges of windows were moved, with the percentage
// of their range.
var movedEdges = regexp.MustCompile(
	`^PromQL info: edges of \S+ windows are moved by up to \S+ \((\S+) % of the range\)`,
)

// grafanaResult is the back end's result of one query, with unparsed frames.
type grafanaResult struct {
	Status int
	Error  string
	Frames []json.RawMessage
}

// send sends a query with the given fields. panel is the panel's min interval, or "" for the default of the data
// source.
func (g *grafana) send(t *testing.T, panel string, query map[string]any) (r grafanaResult) {
	t.Helper()
	query["refId"] = "A"
	body, err := json.Marshal(map[string]any{
		"from": fmt.Sprint(g.from.UnixMilli()), "to": fmt.Sprint(g.to.UnixMilli()), "minInterval": panel,
		"maxDataPoints": grafanaPoints, "queries": []any{query},
	})
	require.NoError(t, err)
	response, err := http.Post(g.url+"/api/ds/query", "application/json", bytes.NewReader(body))
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, "%s: %s", query, text)
	var answer struct{ Results map[string]grafanaResult }
	require.NoError(t, json.Unmarshal(text, &answer))
	require.Contains(t, answer.Results, "A")
	return answer.Results["A"]
}

// ask sends a query of a panel, either over the time range or at its end.
func (g *grafana) ask(t *testing.T, query, panel string, instant bool) (a grafanaAnswer) {
	t.Helper()
	result := g.send(t, panel, map[string]any{"expr": g.fill(query), "instant": instant, "range": !instant})
	require.Equal(t, http.StatusOK, result.Status, "%s: %s", query, result.Error)
	for _, text := range result.Frames {
		var f grafanaFrame
		require.NoError(t, json.Unmarshal(text, &f))
		a.count(t, f)
	}
	require.NotContains(t, a.expr, "$", "a variable that there isn't")
	a.resolution = g.resolution.Load().(string)
	if strings.Contains(a.resolution, "snapped") {
		require.NotEmpty(t, a.notices,
			"%s: from %s, %d series with %d numbers", query, a.resolution, a.series, a.numbers)
	}
	for _, n := range a.notices {
		require.Contains(t, a.resolution, "snapped", n)
		moved := movedEdges.FindStringSubmatch(n)
		require.NotNil(t, moved, n)
		share, err := strconv.ParseFloat(moved[1], 64)
		require.NoError(t, err)
		require.LessOrEqual(t, share, 1.0, n)
	}
	return a
}

// count adds the numbers of series and samples in a frame to the result.
func (a *grafanaAnswer) count(t *testing.T, f grafanaFrame) {
	t.Helper()
	for _, n := range f.Schema.Meta.Notices {
		a.notices = append(a.notices, n.Text)
	}
	if found := executedQuery.FindStringSubmatch(f.Schema.Meta.ExecutedQueryString); found != nil {
		step, err := time.ParseDuration(found[2])
		require.NoError(t, err)
		a.expr, a.step = found[1], step
	}
	if len(f.Schema.Fields) == 0 {
		return // This frame means that the response is empty.
	}
	require.Len(t, f.Schema.Fields, 2)
	require.Len(t, f.Data.Values, 2)
	a.series++
	for _, v := range f.Data.Values[1] {
		a.samples++
		if _, ok := v.(float64); ok { // Values that aren't finite are null.
			a.numbers++
		}
	}
}

var labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

// choose queries the values of a dashboard's variables, one after another, and selects the defaults.
func (g *grafana) choose(t *testing.T, d dashboard) {
	t.Helper()
	g.variables = map[string]string{}
	for _, v := range d.Templating.List[1:] {
		query, err := v.query()
		require.NoError(t, err)
		found := labelValues.FindStringSubmatch(query)
		require.NotNil(t, found, query)
		match := g.fill(found[1])
		require.NotContains(t, match, "$")
		asked := url.Values{"match[]": {match}, "start": {fmt.Sprint(g.from.Unix())}, "end": {fmt.Sprint(g.to.Unix())}}
		var values struct{ Data []string }
		g.get(t, "/api/resources/api/v1/label/"+found[2]+"/values", asked, &values)
		require.NotEmpty(t, values.Data, "%s: %s has no values", d.UID, v.Name)
		if v.IncludeAll {
			g.variables[v.Name] = v.AllValue
			continue
		}
		g.variables[v.Name] = values.Data[0]
	}
}

// selectors returns the vector selectors in an expression, as separate queries.
func selectors(t *testing.T, expr string) (list []string) {
	t.Helper()
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	require.NoError(t, err, expr)
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			alone := *v
			alone.OriginalOffset, alone.Offset = 0, 0
			list = append(list, alone.String())
		}
		return nil
	})
	return list
}

// metricOf returns the name of the metric in a selector.
func metricOf(t *testing.T, selector string) string {
	t.Helper()
	matchers, err := parser.NewParser(parser.Options{}).ParseMetricSelector(selector)
	require.NoError(t, err, selector)
	for _, m := range matchers {
		if m.Name == labels.MetricName {
			return m.Value
		}
	}
	return ""
}

// requireInSources requires that the name of a metric occurs in the source code. It is used for metrics that a test
// can't produce.
func requireInSources(t *testing.T, metric string) {
	t.Helper()
	for _, ending := range []string{"_bucket", "_sum", "_count"} {
		metric = strings.TrimSuffix(metric, ending)
	}
	for _, dir := range []string{"storage", "adapter", "cmd/internal/server", "downsample", "promql"} {
		found := false
		err := filepath.WalkDir("../../../"+dir, func(path string, _ os.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			found = found || strings.Contains(string(text), `"`+metric+`"`)
			return err
		})
		require.NoError(t, err)
		if found {
			return
		}
	}
	t.Fatalf("Cassia has no metric %s", metric)
}
