package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

// Queries over times at which raw samples have expired. The queries in atTheHour have steps and ranges of whole hours
// and must return the same results as from raw samples, without an info. The queries in anywhere return approximations,
// the same on every endpoint, with an info. The set of series must be the same.
var (
	atTheHour = []string{
		"sn_sine", "c", "nhc", "histogram_count(nhc)", "rate(c[1h])", "increase(c[1h])", "resets(c[1h])",
		"delta(sn_sine[1h])", "changes(sn_sine[1h])", "max_over_time(sn_sine[1h])", "min_over_time(sn_sine[1h])",
		"avg_over_time(sn_sine[1h])", "sum_over_time(sn_sine[1h])",
		"count_over_time(sn_sine[1h])", "last_over_time(sn_sine[1h])", "first_over_time(sn_sine[1h])",
		"present_over_time(sn_sine[1h])", "increase(bursty[1h])", "rate(nhc[1h])",
		"histogram_quantile(0.9, sum(rate(nhc[1h])))", "histogram_count(sum(rate(nhc[1h] @ end())))",
		"deriv(sn_sine[1h])", "predict_linear(sn_sine[1h], 600)", "stddev_over_time(sn_sine[1h])", "absent(sn_sine)",
		"absent(rate(c[1h]))", "limitk(1, rate(c[1h]))", "info(rate(c[1h]))", "sum by (job) (rate(c[1h]))",
		"max_over_time(rate(c[1h])[3h:1h])",
	}
	anywhere = []string{
		"sn_sine", "rate(c[5m])", "rate(c[1h])", "increase(c[10m])", "max_over_time(sn_sine[1h])",
		"avg_over_time(sn_sine[20m])", "sum_over_time(sn_sine[1h])", "count_over_time(sn_sine[20m])",
		"quantile_over_time(0.9, sn_sine[1h])", "changes(sn_sine[1h])", "increase(bursty[1h])",
		"timestamp(sn_sine)", "limitk(1, sn_sine)", "info(rate(c[5m]))", "increase(c[1h] anchored)",
		"rate(c[1h] smoothed)", "delta(sn_sine[1h])", "rate(nhc[5m])", "sum by (__tenant_id__) (rate(c[5m]))",
		"absent(sn_sine)", "absent_over_time(sn_sine[10m])", "absent(rate(c[5m]))", "topk(1, sn_sine)",
	}
	// fars contains the queries whose results may differ by more than 5 % of the max value, because of bursts within an
	// hour.
	fars = map[string]bool{"increase(bursty[1h])": true}
)

func TestExpiredHistoryOnEveryWay(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("two servers and two of Prometheus'")
	}
	x := newExpired(t, "")
	planner := x.answersOn(t, x.whole, x.aged, "default", true)

	t.Run("several tenants", func(t *testing.T) {
		planner.same(t, x.answersOn(t, x.whole, x.aged, "ta|tb", true))
	})
	t.Run("remote read", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), cassiatest.ReadyWithin)
		defer cancel()
		read := func(of running) running {
			at := cassiatest.FreeAddress(t)
			return serverAt(startPrometheus(ctx, t, at, readConfig(strings.TrimPrefix(of.URL, "http://")),
				"--enable-feature=promql-experimental-functions,promql-extended-range-selectors").URL())
		}
		aged := read(x.aged)
		planner.same(t, x.answersOn(t, read(x.whole), aged, "", false))
		for zone, at := range x.zones { // Use zones in which only rollups are left.
			v := url.Values{
				"match[]": {`{__name__=~"sn_sine|nhc"}`}, "start": {fmt.Sprint(at.Unix())},
				"end": {fmt.Sprint(at.Add(time.Hour).Unix())},
			}
			code, text := aged.Get(t, "/api/v1/series?"+v.Encode())
			require.Equal(t, http.StatusOK, code, text)
			require.Contains(t, text, `"__name__":"sn_sine"`, zone)
			require.Contains(t, text, `"__name__":"nhc"`, zone)
		}
		_, metrics := x.aged.Get(t, "/metrics")
		require.Regexp(t, `cassia_remote_read_expanded_total [1-9]`, metrics)
		x.infosAreThoseOf(t, read(x.whole))
	})
	t.Run("functions that would mislead", x.misleading)
	t.Run("JSON API", x.plainJSON)
	t.Run("rollup names and series", x.namesAndSeries)
	for _, feature := range []string{"promql-delayed-name-removal", "use-start-timestamps"} {
		t.Run(feature, func(t *testing.T) {
			x.restart(t, feature)
			planner.same(t, x.answersOn(t, x.whole, x.aged, "default", true))
		})
	}
	t.Run("federate", x.federated)
	t.Run("remote read that is refused", x.refused)
	t.Run("export", x.exported)
}

// expiredAnswers contains responses by zone and query.
type expiredAnswers map[string]answered

// same requires that the responses in other, which are from another endpoint, are the same as those in a.
func (a expiredAnswers) same(t *testing.T, other expiredAnswers) {
	for what, answer := range other {
		c := compare(a[what], answer)
		require.Zero(t, c.missing+c.extra, "%s: %v", what, c)
		require.Less(t, c.off, 1e-9, "%s: %v", what, c)
	}
}

// answersOn queries both servers and requires that the responses of aged are correct. told is set if aged must return
// infos. It returns the responses to the queries in anywhere, without the tenant label.
func (x *expired) answersOn(t *testing.T, whole, aged running, tenant string, told bool) expiredAnswers {
	all := expiredAnswers{}
	for _, zone := range []string{"1h", "5m"} {
		from := x.zones[zone]
		for _, query := range atTheHour {
			if !told && slices.ContainsFunc([]string{"info(", "stddev", "deriv", "predict_linear"},
				func(f string) bool { return strings.HasPrefix(query, f) }) {
				continue // Remote read returns reconstructed samples, whose results differ in another way.
			}
			want, got := whole.over(t, tenant, query, from, time.Hour), aged.over(t, tenant, query, from, time.Hour)
			require.Equal(t, []int{http.StatusOK, http.StatusOK}, []int{want.code, got.code},
				"%s, %s: %s%s", query, zone, want.err, got.err)
			c := compare(want, got)
			require.Zero(t, c.missing+c.extra, "%s, %s: %v; %+v", query, zone, c, want)
			require.Less(t, c.off, 1e-12, "%s, %s: %v", query, zone, c)
			if told && !strings.HasPrefix(query, "info(") {
				require.NotContains(t, strings.Join(got.infos, "\n"), "raw samples before", "%s, %s", query, zone)
				require.NotEmpty(t, got.resolution, "%s, %s", query, zone)
			}
		}
		for _, query := range anywhere {
			if !told && strings.HasPrefix(query, "info(") {
				continue // Prometheus doesn't support this query with remote read.
			}
			query := "max without (__tenant_id__) (" + query + ")"
			if strings.Contains(query, "rate(nhc") {
				query = strings.Replace(query, "max", "sum", 1)
			}
			want := whole.over(t, tenant, query, from, 5*time.Minute)
			got := aged.over(t, tenant, query, from, 5*time.Minute)
			require.Equal(t, http.StatusOK, got.code, "%s: %s", query, got.err)
			c := compare(want, got)
			require.Zero(t, c.missing+c.extra, "%s, %s: %v", query, zone, c)
			if told && c.off > 1e-9 {
				require.Contains(t, strings.Join(got.infos, "\n"), "raw samples before", "%s, %s: %v", query, zone, c)
				require.Contains(t, got.resolution, "approximate", "%s, %s", query, zone)
			}
			if strings.Contains(query, "timestamp(") {
				require.Less(t, c.off, 1e-12, "%s, %s: %v", query, zone, c)
			}
			if !fars[query[len("max without (__tenant_id__) ("):len(query)-1]] {
				require.Less(t, c.off, 0.05, "%s, %s: %v", query, zone, c)
			}
			if strings.HasPrefix(query, "max") {
				all[zone+" "+query] = got
			}
		}
	}
	return all
}

// plainJSON queries the JSON API. The number of points must be the same, and the response must contain the resolution
// and a note.
func (x *expired) plainJSON(t *testing.T) {
	for _, zone := range []string{"1h", "5m"} {
		from := x.zones[zone]
		ask := func(r running, aligner, period string) (points map[string]float64, h http.Header) {
			v := url.Values{
				"tenant": {"ta"}, "metricName": {"sn_sine"}, "start": {fmt.Sprint(from.Unix())},
				"end": {fmt.Sprint(from.Add(time.Hour).Unix())},
			}
			if aligner != "" {
				v["aligner"], v["alignmentPeriod"] = []string{aligner}, []string{period}
			}
			answer, err := http.Get(r.URL + "/api/query?" + v.Encode())
			require.NoError(t, err)
			defer answer.Body.Close()
			var all []struct{ Values map[string]float64 }
			require.NoError(t, json.NewDecoder(answer.Body).Decode(&all))
			require.Len(t, all, 1)
			return all[0].Values, answer.Header
		}
		for _, c := range []struct {
			aligner, period string
			points          int
		}{{"", "", 61}, {"ALIGN_MAX", "10m", 7}, {"ALIGN_MEAN", "1h", 2}} {
			what := zone + " " + c.aligner
			want, _ := ask(x.whole, c.aligner, c.period)
			got, h := ask(x.aged, c.aligner, c.period)
			require.Len(t, want, c.points)
			require.Len(t, got, c.points, what)
			different, values := 0.0, map[float64]bool{}
			for at, v := range want {
				require.Contains(t, got, at, what)
				different = max(different, math.Abs(v-got[at]))
				values[got[at]] = true
			}
			require.Less(t, different, 5.0, what)
			require.Greater(t, len(values), 1, "%s: it moves", what)
			require.NotEmpty(t, h.Get("X-Cassia-Resolution"), what)
			if different > 1e-9 {
				require.Contains(t, h.Get("X-Cassia-Note"), "raw samples before", what)
			}
		}
	}
}

// namesAndSeries queries a rollup by name with a step shorter than its buckets, and lists series at times with and
// without samples.
func (x *expired) namesAndSeries(t *testing.T) {
	for step, told := range map[time.Duration]int{time.Hour: 0, 5 * time.Minute: 1} {
		got := x.aged.over(t, "", "sn_sine_max", x.zones["1h"], step)
		require.Equal(t, 3, got.points())
		require.Len(t, got.infos, told, "%s: %v", step, got.infos)
	}
	for offset, want := range map[time.Duration]int{0: 1, -6 * time.Hour: 0, 10 * time.Hour: 0} {
		from := x.zones["1h"].Add(offset)
		code, text := x.aged.Get(t, "/api/v1/series?"+url.Values{
			"match[]": {"sn_sine"}, "start": {fmt.Sprint(from.Unix())}, "end": {fmt.Sprint(from.Add(time.Hour).Unix())},
		}.Encode())
		require.Equal(t, http.StatusOK, code)
		require.Equal(t, want, strings.Count(text, "sn_sine"), "%s: %s", offset, text)
	}
}

// exported exports an hour of each zone. The export must contain one sample per minute, as the raw samples did.
func (x *expired) exported(t *testing.T) {
	require.NoError(t, x.aged.stop())
	for _, zone := range []string{"1h", "5m"} {
		from := x.zones[zone]
		out := t.TempDir() + "/out.csv"
		_, stderr, status := cassiatest.Command(
			t, builtCassia(t), "export", "--storage.path="+x.agedDir, "--format=csv", "--output="+out,
			"--match=sn_sine", "--start="+fmt.Sprint(from.Unix()+1), "--end="+fmt.Sprint(from.Add(time.Hour).Unix()),
		)
		require.Zero(t, status, stderr)
		text, err := os.ReadFile(out)
		require.NoError(t, err)
		require.Equal(t, 60, strings.Count(string(text), "sn_sine"))
	}
}
