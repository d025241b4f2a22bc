package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

// grafana asks as Grafana's data source does.
type grafana struct {
	// url is that of the data source.
	url      string
	from, to time.Time
	// variables are those of the dashboard, as they go into queries.
	variables map[string]string
}

// scrape is the data source's interval, and points how many points a panel has room for.
const (
	grafanaScrape = 15 * time.Second
	grafanaPoints = 1000
)

// roundedInterval is Grafana's: about d, but a time that one can say.
func roundedInterval(d time.Duration) time.Duration {
	for _, r := range []struct{ below, is time.Duration }{
		{1500 * time.Millisecond, time.Second}, {3500 * time.Millisecond, 2 * time.Second}, {7500 * time.Millisecond, 5 * time.Second},
		{12500 * time.Millisecond, 10 * time.Second}, {17500 * time.Millisecond, 15 * time.Second}, {25 * time.Second, 20 * time.Second},
		{45 * time.Second, 30 * time.Second}, {90 * time.Second, time.Minute}, {210 * time.Second, 2 * time.Minute}, {450 * time.Second, 5 * time.Minute},
		{750 * time.Second, 10 * time.Minute}, {1050 * time.Second, 15 * time.Minute}, {1500 * time.Second, 20 * time.Minute},
		{2700 * time.Second, 30 * time.Minute}, {90 * time.Minute, time.Hour}, {150 * time.Minute, 2 * time.Hour}, {270 * time.Minute, 3 * time.Hour},
		{9 * time.Hour, 6 * time.Hour}, {24 * time.Hour, 12 * time.Hour}, {7 * 24 * time.Hour, 24 * time.Hour},
	} {
		if d <= r.below {
			return r.is
		}
	}
	return 7 * 24 * time.Hour
}

// interval is the step of a panel, and rateInterval what $__rate_interval becomes.
func (g *grafana) interval(panel string) (step, rateInterval time.Duration, err error) {
	least := grafanaScrape
	if panel != "" {
		if least, err = time.ParseDuration(panel); err != nil {
			return 0, 0, err
		}
	}
	step = max(least, roundedInterval(g.to.Sub(g.from)/grafanaPoints))
	return step, max(step+least, 4*least), nil
}

// fill puts the values of variables into a query.
func (g *grafana) fill(query string, step, rateInterval time.Duration) string {
	span := g.to.Sub(g.from)
	pairs := []string{
		"$__rate_interval", rateInterval.String(), "$__interval_ms", fmt.Sprint(step.Milliseconds()), "$__interval", step.String(),
		"$__range_ms", fmt.Sprint(span.Milliseconds()), "$__range_s", fmt.Sprint(int(span.Seconds())), "$__range", fmt.Sprintf("%ds", int(span.Seconds())),
	}
	for name, value := range g.variables {
		pairs = append(pairs, "${"+name+"}", value, "$"+name, value)
	}
	return strings.NewReplacer(pairs...).Replace(query)
}

// grafanaAnswer is what a query answered.
type grafanaAnswer struct {
	series, samples, numbers int
	resolution               string
}

// post sends a form to the API, and decodes the answer's data.
func (g *grafana) post(t *testing.T, path string, form url.Values, data any) http.Header {
	t.Helper()
	answer, err := http.PostForm(g.url+path, form)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.StatusCode, "%s: %s", form, body)
	whole := struct {
		Data            any
		Warnings, Infos []string
	}{Data: data}
	require.NoError(t, json.Unmarshal(body, &whole))
	require.Empty(t, whole.Warnings, form)
	require.Empty(t, whole.Infos, form)
	return answer.Header
}

// ask sends a query of a panel with this least interval ("": the data source's): over the range, or at its end.
func (g *grafana) ask(t *testing.T, query, panel string, instant bool) (a grafanaAnswer) {
	t.Helper()
	step, rateInterval, err := g.interval(panel)
	require.NoError(t, err)
	filled := g.fill(query, step, rateInterval)
	require.NotContains(t, filled, "$", "a variable that there isn't")
	path, form := "/api/v1/query_range", url.Values{"query": {filled}}
	if instant {
		path = "/api/v1/query"
		form.Set("time", strconv.FormatFloat(float64(g.to.UnixMilli())/1e3, 'f', 3, 64))
	} else {
		seconds := int64(step / time.Second)
		form.Set("start", fmt.Sprint(g.from.Unix()/seconds*seconds))
		form.Set("end", fmt.Sprint(g.to.Unix()/seconds*seconds))
		form.Set("step", fmt.Sprint(seconds))
	}
	var data struct {
		Result []struct {
			Value  [2]any
			Values [][2]any
		}
	}
	header := g.post(t, path, form, &data)
	a.resolution, a.series = header.Get("X-Cassia-Resolution"), len(data.Result)
	for _, s := range data.Result {
		if instant {
			s.Values = append(s.Values, s.Value)
		}
		for _, v := range s.Values {
			a.samples++
			if n, err := strconv.ParseFloat(v[1].(string), 64); err == nil && !math.IsNaN(n) {
				a.numbers++
			}
		}
	}
	return a
}

var labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

// choose asks for the values of a dashboard's variables one after the other, and chooses as a user who changes nothing.
func (g *grafana) choose(t *testing.T, d dashboard) {
	t.Helper()
	g.variables = map[string]string{}
	for _, v := range d.Templating.List[1:] {
		query, err := v.query()
		require.NoError(t, err)
		found := labelValues.FindStringSubmatch(query)
		require.NotNil(t, found, query)
		match := g.fill(found[1], 0, 0)
		require.NotContains(t, match, "$")
		asked := url.Values{"match[]": {match}, "start": {fmt.Sprint(g.from.Unix())}, "end": {fmt.Sprint(g.to.Unix())}}
		answer, err := http.Get(g.url + "/api/v1/label/" + found[2] + "/values?" + asked.Encode())
		require.NoError(t, err)
		defer answer.Body.Close()
		var values struct{ Data []string }
		require.NoError(t, json.NewDecoder(answer.Body).Decode(&values))
		require.NotEmpty(t, values.Data, "%s: %s has no values", d.UID, v.Name)
		if v.IncludeAll {
			g.variables[v.Name] = v.AllValue
			continue
		}
		g.variables[v.Name] = values.Data[0]
	}
}

// selectors returns those of an expression, as queries of their own.
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

// metricOf returns the metric of a selector.
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

// requireInSources holds that Cassia has a metric that a test can't bring about: its name stands in the sources.
func requireInSources(t *testing.T, metric string) {
	t.Helper()
	for _, ending := range []string{"_bucket", "_sum", "_count"} {
		metric = strings.TrimSuffix(metric, ending)
	}
	for _, dir := range []string{"storage", "adapter", "cmd/internal/server", "downsample", "promql"} {
		found := false
		err := filepath.WalkDir("../../"+dir, func(path string, _ os.DirEntry, err error) error {
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
