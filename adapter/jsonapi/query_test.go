package jsonapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

func TestQueryInPromQL(t *testing.T) {
	r := newRig(t, rigOptions{})
	at := func(s int64) time.Time { return time.UnixMilli(1000 * (testSeconds + s)) }
	const base = "metricName=cpu&start=1777636800&end=1777636990"
	for query, want := range map[string]Evaluation{
		base:                                     {Expr: `{"__name__"="cpu"}[190001ms]`, Start: at(0), End: at(190)},
		base + "&aligner=ALIGN_NONE&tenant=a":    {Expr: `{"__name__"="cpu"}[190001ms]`, Start: at(0), End: at(190), Tenant: "a"},
		base + "&tag=os=linux&tag=my.host=a%3Db": {Expr: `{"__name__"="cpu","os"="linux","my.host"="a=b"}[190001ms]`, Start: at(0), End: at(190)},
		"metricName=%22%0A%C3%A9&start=2026-05-01T12:00:00Z":                               {Expr: `{"__name__"="\"\né"}[1ms]`, Start: at(0), End: at(0)},
		"metricName=cpu&start=2026-05-01T12:00:00.0015Z&end=2026-05-01T14:00:01.5%2B02:00": {Expr: `{"__name__"="cpu"}[1500ms]`, Start: at(0).Add(time.Millisecond), End: at(1).Add(500 * time.Millisecond)},
		base + "&aligner=ALIGN_MEAN&alignmentPeriod=1m": {
			Expr: `avg_over_time({"__name__"="cpu"}[60000ms])`, Start: at(0), End: at(180), Step: time.Minute},
		"metricName=cpu&start=1777636801&end=1777636990&aligner=ALIGN_PERCENTILE_95&alignmentPeriod=60s&reducer=REDUCE_NONE": {
			Expr: `quantile_over_time(0.95, {"__name__"="cpu"}[60000ms])`, Start: at(60), End: at(180),
			Step: time.Minute},
		base + "&aligner=ALIGN_RATE&alignmentPeriod=1m&reducer=REDUCE_SUM&groupBy=os&groupBy=my.host": {
			Expr: `sum by ("os", "my.host") (rate({"__name__"="cpu"}[60000ms]))`, Start: at(0), End: at(180),
			Step: time.Minute},
		base + "&aligner=ALIGN_MAX&alignmentPeriod=1m&reducer=REDUCE_PERCENTILE_50": {
			Expr: `quantile by () (0.5, max_over_time({"__name__"="cpu"}[60000ms]))`, Start: at(0), End: at(180),
			Step: time.Minute},
	} {
		w := get(r.Query, query)
		require.Equal(t, http.StatusOK, w.Code, "%s: %s", query, w.Body)
		if want.Tenant == "" {
			want.Tenant = "default"
		}
		require.True(t, want.Start.Equal(r.asked.Start) && want.End.Equal(r.asked.End),
			"%s: %v to %v", query, r.asked.Start, r.asked.End)
		want.Start, want.End = r.asked.Start, r.asked.End
		require.Equal(t, want, r.asked, query)
		_, err := parser.NewParser(parser.Options{}).ParseExpr(r.asked.Expr)
		require.NoError(t, err, r.asked.Expr)
	}
}

// Headers give the resolution of a response and how it differs from one computed from all samples.
func TestHeadersOfAnswers(t *testing.T) {
	r := newRig(t, rigOptions{})
	const query = "metricName=cpu&start=1777636800&end=1777636990"
	w := get(r.Query, query)
	require.Empty(t, w.Header().Values("X-Cassia-Resolution"))
	require.Empty(t, w.Header().Values("X-Cassia-Note"))
	r.told = Result{Resolution: "5m approximate, raw", Notes: []string{"one", "two\nlines,\r\n and more"}}
	w = get(r.Query, query)
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, []string{"5m approximate, raw"}, w.Header().Values("X-Cassia-Resolution"))
	require.Equal(t, []string{"one", "two lines, and more"}, w.Header().Values("X-Cassia-Note"))
}

// TestAlignersAndReducers checks that each combination of aligner and reducer produces valid PromQL.
func TestAlignersAndReducers(t *testing.T) {
	r := newRig(t, rigOptions{})
	p := parser.NewParser(parser.Options{})
	for aligner := range aligners {
		for reducer := range reducers {
			w := get(r.Query,
				"metricName=m&start=1777636800&end=1777636990&alignmentPeriod=60s&aligner="+aligner+"&reducer="+reducer)
			require.Equal(t, http.StatusOK, w.Code)
			_, err := p.ParseExpr(r.asked.Expr)
			require.NoError(t, err, r.asked.Expr)
		}
	}
}

// TestAnyNameIsATag checks that the PromQL of a query is valid if the names of tags must be quoted in it.
func TestAnyNameIsATag(t *testing.T) {
	r := newRig(t, rigOptions{})
	p := parser.NewParser(parser.Options{})
	for _, name := range []string{
		"NaN", "inf", "0x1", "by", "offset", "sum", "bool", "start", "1e400", "-1", `\"`, "é\u0000", " ", "{}",
	} {
		query := url.Values{"metricName": {name}, "start": {"1777636800"}, "tag": {name + "=x"},
			"alignmentPeriod": {"60s"}, "aligner": {"ALIGN_SUM"}, "reducer": {"REDUCE_MAX"}, "groupBy": {name}}
		w := get(r.Query, query.Encode())
		require.Equal(t, http.StatusOK, w.Code, "%s: %s", name, w.Body)
		expr, err := p.ParseExpr(r.asked.Expr)
		require.NoError(t, err, r.asked.Expr)
		require.Equal(t, []string{name}, expr.(*parser.AggregateExpr).Grouping)
	}
}

func TestQueryNamesWhatIsWrong(t *testing.T) {
	r := newRig(t, rigOptions{})
	const base = "metricName=m&start=1777636800&end=1777636990"
	aligned := base + "&aligner=ALIGN_SUM&alignmentPeriod=1m"
	for query, field := range map[string]string{
		"":                                      "metricName",
		"metricName=m":                          "start",
		"metricName=m&start=x":                  "start",
		"metricName=m&start=1777636800&start=1": "start",
		"metricName=m&start=1e300":              "start",
		"metricName=m&start=1777636800&end=1777636799": "end",
		"metricName=m&start=-9e9":                      "start",
		"metricName=%FF&start=1777636800":              "tag",
		base + "&tag=os":                               "tag",
		base + "&tag==linux":                           "tag",
		base + "&tag=os=":                              "tag",
		base + "&tag=__name__=n":                       "tag",
		base + strings.Repeat("&tag=a=b", maxTerms):    "tag",
		base + "&tenant=":                              "tenant",
		base + "&end=":                                 "end",
		base + "&aligner=":                             "aligner",
		base + "&reducer=":                             "reducer",
		base + "&alignmentPeriod=":                     "alignmentPeriod",
		base + "&tenant=a/b":                           "tenant",
		base + "&aligner=ALIGN_X&alignmentPeriod=1m":   "aligner",
		base + "&aligner=ALIGN_SUM":                    "alignmentPeriod",
		base + "&aligner=ALIGN_SUM&alignmentPeriod=1":  "alignmentPeriod",
		base + "&aligner=ALIGN_SUM&alignmentPeriod=0s": "alignmentPeriod",
		base + "&alignmentPeriod=1m":                   "alignmentPeriod",
		base + "&reducer=REDUCE_SUM":                   "reducer",
		base + "&groupBy=os":                           "groupBy",
		aligned + "&groupBy=os":                        "groupBy",
		aligned + "&reducer=SUM":                       "reducer",
		aligned + "&reducer=REDUCE_SUM&groupBy=":       "groupBy",
		"metricName=m&start=0&end=1777636990&aligner=ALIGN_SUM&alignmentPeriod=1m": "alignmentPeriod",
		"metricName=m%zz": "parameters",
	} {
		w := get(r.Query, query)
		require.Equal(t, http.StatusBadRequest, w.Code, query)
		require.True(t, strings.HasPrefix(decodeError(t, w).Error, field+": "), "%s: %s", query, w.Body)
	}
	require.Equal(t, http.StatusForbidden, get(r.Query, base+"&tenant=secret").Code)
	w := httptest.NewRecorder()
	r.Query(w, httptest.NewRequest(http.MethodPost, "/", nil))
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	w = get(r.Query, "metricName=m&start=1777636801&end=1777636802&aligner=ALIGN_SUM&alignmentPeriod=1m")
	require.Equal(t, "[]\n", w.Body.String(), "no multiple of the period lies between")
}

func TestQueryAnswer(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.answers = func() (promengine.Matrix, error) {
		return promengine.Matrix{
			{
				Metric: labels.FromStrings("__name__", "cpu_idle", "deployment", "prod", "host", "h-1", "os", "linux"),
				Floats: []promengine.FPoint{
					{T: 1598285511000, F: 186}, {T: 1598286234120, F: 0.1}, {T: 1598286238000, F: math.NaN()},
					{T: -1, F: 1e300},
				},
			},
			{Metric: labels.FromStrings("__name__", "cpu_idle", "host", "only histograms")},
			{Metric: labels.FromStrings("__name__", "cpu_idle", "deployment", "dev"), Floats: []promengine.FPoint{{T: 0, F: math.Inf(-1)}}},
		}, nil
	}
	w := get(r.Query, "tenant=t-1&metricName=cpu_idle&start=0&end=1777636990")
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t,
		`[{"tenant":"t-1","metricName":"cpu_idle","tags":{"deployment":"dev"},"values":{"1970-01-01T00:00:00Z":"-Infinity"}},`+
			`{"tenant":"t-1","metricName":"cpu_idle","tags":{"deployment":"prod","host":"h-1","os":"linux"},"values":{`+
			`"2020-08-24T16:11:51Z":186.0,"2020-08-24T16:23:54.120Z":0.1,"2020-08-24T16:23:58Z":"NaN","1969-12-31T23:59:59.999Z":1e+300}}]`+"\n",
		w.Body.String())
}

func TestQueryErrors(t *testing.T) {
	r := newRig(t, rigOptions{api: func(o *Options) { o.MaxAnswer = 100 }})
	const query = "metricName=m&start=0&end=10"
	for code, err := range map[int]error{
		http.StatusUnprocessableEntity: fmt.Errorf("%w: samples", ErrUnprocessable),
		http.StatusServiceUnavailable:  fmt.Errorf("slow: %w", context.DeadlineExceeded),
		http.StatusInternalServerError: errors.New("a bug"),
	} {
		r.answers = func() (promengine.Matrix, error) { return nil, err }
		w := get(r.Query, query)
		require.Equal(t, code, w.Code)
		decodeError(t, w)
	}
	r.answers = func() (promengine.Matrix, error) {
		return promengine.Matrix{{Metric: labels.FromStrings("a", "b"), Floats: make([]promengine.FPoint, 5)}}, nil
	}
	require.Equal(t, http.StatusUnprocessableEntity, get(r.Query, query).Code, "an answer of more than 100 bytes")
}

func TestMetadata(t *testing.T) {
	r := newRig(t, rigOptions{})
	require.Equal(t, http.StatusNoContent, post(r.Write, fmt.Sprintf(`[
		{"tenant": "t-1", "metricName": "cpu", "tags": {"os": "linux", "host": "h-1"}, "ts": %[1]d, "value": 1},
		{"tenant": "t-1", "metricName": "cpu", "tags": {"os": "bsd"}, "ts": %[1]d, "value": 1},
		{"tenant": "t-1", "metricName": "mem", "tags": {"zone": "a"}, "ts": %[1]d, "value": 1},
		{"tenant": "t-2", "metricName": "other", "ts": %[1]d, "value": 1}]`, testSeconds)).Code)
	for _, c := range []struct {
		h           http.HandlerFunc
		query, want string
	}{
		{r.MetricNames, "tenant=t-1", `["cpu","mem"]`},
		{r.MetricNames, "tenant=t-2", `["other"]`},
		{r.MetricNames, "", `[]`},
		{r.TagKeys, "tenant=t-1&metricName=cpu", `["host","os"]`},
		{r.TagKeys, "tenant=t-2&metricName=other", `[]`},
		{r.TagKeys, "tenant=t-2&metricName=cpu", `[]`},
		{r.TagValues, "tenant=t-1&metricName=cpu&tagKey=os", `["bsd","linux"]`},
		{r.TagValues, "tenant=t-1&metricName=mem&tagKey=os", `[]`},
	} {
		w := get(c.h, c.query)
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, c.want+"\n", w.Body.String(), c.query)
	}
	for _, c := range []struct {
		h    http.HandlerFunc
		bad  string
		want string
	}{
		{r.TagKeys, "tenant=t-1", "metricName: is required"},
		{r.TagValues, "metricName=cpu", "tagKey: is required"},
		{r.TagValues, "metricName=cpu&tagKey=__name__", "tagKey: is the metric name; use metricNames to list metric names"},
		{r.MetricNames, "tenant=a&tenant=b", "tenant: is set more than once"},
	} {
		w := get(c.h, c.bad)
		require.Equal(t, http.StatusBadRequest, w.Code)
		require.Equal(t, c.want, decodeError(t, w).Error)
	}
}

func FuzzQuery(f *testing.F) {
	r := newRig(f, rigOptions{})
	p := parser.NewParser(parser.Options{})
	f.Add("m", "os=linux", "0", "100", "1m", "ALIGN_RATE", "os", "REDUCE_SUM")
	f.Add("\"\n", "\x00=\u200b", "2020-08-24T16:23:58Z", "", "", "", "", "")
	f.Fuzz(func(t *testing.T, metric, tag, start, end, period, aligner, by, reducer string) {
		r.asked = Evaluation{}
		v := url.Values{
			"metricName": {metric}, "tag": {tag}, "start": {start}, "end": {end}, "alignmentPeriod": {period},
			"aligner": {aligner}, "reducer": {reducer},
		}
		if by != "" {
			v.Set("groupBy", by)
		}
		w := get(r.Query, v.Encode())
		if w.Code != http.StatusOK {
			require.Equal(t, http.StatusBadRequest, w.Code)
			decodeError(t, w)
			return
		}
		if r.asked.Expr != "" {
			_, err := p.ParseExpr(r.asked.Expr)
			require.NoError(t, err, r.asked.Expr)
		}
	})
}

// Requests for lists of names are limited like queries: they wait for their tenant's turn, and are rejected if the
// tenant's queue is full.
func TestMetadataTakesATurn(t *testing.T) {
	r := newRig(t, rigOptions{})
	for _, h := range []http.HandlerFunc{r.MetricNames, r.TagKeys, r.TagValues} {
		r.inside, r.full = nil, nil
		w := get(h, "metricName=cpu&tagKey=os&tenant=a")
		require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
		require.Equal(t, []string{"a", "left"}, r.inside)
		r.full = ErrBusy
		require.Equal(t, http.StatusServiceUnavailable, get(h, "metricName=cpu&tagKey=os&tenant=a").Code)
	}
}

func TestTextsAreEncodedAsByTheStandardLibrary(t *testing.T) {
	texts := []string{
		"", "plain", "a b_c:9/~", `"`, `\`, "<", ">", "&", "\n", "\x7f", "é", "日本", "\xff", "\u2028", "tab\t",
	}
	for i := range 256 {
		texts = append(texts, "x"+string([]byte{byte(i)})+"y")
	}
	for _, text := range texts {
		want, err := json.Marshal(text)
		require.NoError(t, err)
		require.Equal(t, string(want), string(appendText(nil, text)), "%q", text)
	}
}
