package e2e

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

// infosAreThoseOf requires that a server returns the same infos as a real Prometheus with the same samples.
func (x *expired) infosAreThoseOf(t *testing.T, prometheus running) {
	for zone, from := range x.zones {
		for _, query := range []string{
			"histogram_count(sum(rate(nhc[5m] @ end())))", "sum(rate(nhc[5m]))", "rate(sn_sine[5m])",
			"histogram_quantile(0.9, rate(nhc[1h]))", "sum({__name__=~\"nhc|c\"})",
		} {
			want := prometheus.over(t, "", query, from, 5*time.Minute)
			require.Equal(t, want.infos, x.whole.over(t, "default", query, from, 5*time.Minute).infos,
				"%s, %s", query, zone)
		}
	}
}

// misleading runs queries that can't be computed from buckets. A query must be rejected with the reason if raw samples
// in its range have expired. Otherwise it must succeed.
func (x *expired) misleading(t *testing.T) {
	for _, function := range []string{
		"idelta(sn_sine[1h])", "double_exponential_smoothing(sn_sine[1h], 0.5, 0.5)", "max(idelta(sn_sine[1h]))",
	} {
		for _, tenant := range []string{"default", "ta|tb"} {
			for zone, from := range x.zones {
				got := x.aged.over(t, tenant, function, from, 5*time.Minute)
				if zone == "raw" {
					want := x.whole.over(t, tenant, function, from, 5*time.Minute)
					require.Equal(t, want, got, "%s of %s", function, tenant)
					require.Equal(t, http.StatusOK, got.code)
					continue
				}
				require.Equal(t, http.StatusUnprocessableEntity, got.code, "%s of %s", function, tenant)
				require.Contains(t, got.err,
					"raw samples have expired: there are none before", "%s of %s", function, tenant)
				require.Contains(t, got.err, strings.TrimPrefix(strings.Split(function, "(sn_sine")[0], "max("))
			}
		}
	}
}

// federated federates series that ended at times at which raw samples have expired.
func (x *expired) federated(t *testing.T) {
	x.restart(t, "", "--query.lookback-delta=10d")
	path := "/federate?" + url.Values{"match[]": {`{__name__=~"zone_.*"}`}}.Encode()
	code, want := x.whole.Get(t, path)
	require.Equal(t, http.StatusOK, code)
	code, got := x.aged.Get(t, path)
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, 3, strings.Count(want, "\nzone_"))
	require.Equal(t, want, got)
}

// refused reads with Prometheus from a server that doesn't reconstruct samples from rollups. The response must contain
// the reason why there are no samples.
func (x *expired) refused(t *testing.T) {
	x.restart(t, "", "--remote-read.rollups=refuse")
	ctx, cancel := context.WithTimeout(t.Context(), cassiatest.ReadyWithin)
	defer cancel()
	reads := serverAt(startPrometheus(
		ctx, t, cassiatest.FreeAddress(t), readConfig(strings.TrimPrefix(x.aged.URL, "http://")),
	).URL())
	got := reads.over(t, "", "rate(c[1h])", x.zones["1h"], time.Hour)
	require.Zero(t, got.points())
	require.Contains(t, got.err+strings.Join(got.infos, "\n"), "--remote-read.rollups")
	require.Positive(t, reads.over(t, "", "rate(c[1h])", x.zones["raw"], time.Hour).points(), "raw samples exist")
}

// TestWindowsMoveByLittle checks how range windows are moved while raw samples exist: by at most 1 % of their range,
// with an info, and only for functions that don't depend on single samples. Windows are never moved in instant queries,
// or if --query.snap=off is set.
func TestWindowsMoveByLittle(t *testing.T) {
	t.Parallel()
	dir, now := t.TempDir(), time.Now().Truncate(time.Hour)
	rules := t.TempDir() + "/moved.yml"
	require.NoError(t, os.WriteFile(rules, []byte(
		"groups: [{name: g, interval: 1s, rules: [{record: ruled, expr: 'sum_over_time(avg_over_time(g[1h15s])[7d:1h])'}]}]",
	), 0o600))
	r := startServe(t, "--storage.path="+dir, "--storage.partitions=1", "--retention.raw=0", "--rule.files="+rules)
	r.writeMoving(t, now.Add(-9*24*time.Hour), now)
	code, text := r.Post(t, "/-/seal", nil)
	require.Equal(t, http.StatusOK, code, text)
	ask := func(query, resolution string, step time.Duration) answered {
		return r.asks(t, "query_range", "", url.Values{
			"query": {query}, "start": {fmt.Sprint(now.Add(-8 * 24 * time.Hour).Unix())},
			"end": {fmt.Sprint(now.Unix())}, "step": {fmt.Sprint(step.Seconds())}, "resolution": {resolution},
		})
	}
	single := []string{
		"last_over_time(g[1d])", "first_over_time(g[1d])", "present_over_time(young[1d])", "delta(g[6h])", "g",
	}
	for _, query := range single {
		got := ask(query, "", 17*time.Minute)
		c := compare(ask(query, "exact", 17*time.Minute), got)
		require.Positive(t, c.points, query)
		require.Zero(t, c.missing+c.extra, "%s: %v", query, c)
		require.Less(t, c.off, 1e-12, "%s: %v", query, c)
		require.Empty(t, told(got), query)
	}
	rare := ask("increase(rare[20h])", "", 17*time.Minute)
	c := compare(ask("increase(rare[20h])", "exact", 17*time.Minute), rare)
	require.Zero(t, c.missing+c.extra)
	require.True(t, c.off < 1e-12 || len(told(rare)) == 1, "%v, without an info", c)
	const moves = "avg_over_time(g[1h15s])"
	got := ask(moves, "", time.Hour)
	require.Equal(t, "1h snapped", got.resolution)
	require.Len(t, told(got), 1)
	require.Contains(t, told(got)[0], "edges of 1h0m15s windows are moved by up to 15s (0.41 % of the range)")
	c = compare(ask(moves, "exact", time.Hour), got)
	require.Zero(t, c.missing+c.extra)
	require.Positive(t, c.off)
	require.Less(t, c.off, 0.01)
	r.rulesAreExact(t, time.Now())
	for _, query := range []string{"avg_over_time(g[5d15s])", "max_over_time(avg_over_time(g[1h15s])[7d:1h])"} {
		require.Empty(t, r.asks(t, "query", "", url.Values{"query": {query}}).infos, query)
	}
	require.NoError(t, r.stop())
	r = startServe(t, "--storage.path="+dir, "--retention.raw=0", "--query.snap=off")
	require.Eventually(t, func() bool { code, _ := r.Get(t, "/-/ready"); return code == http.StatusOK },
		cassiatest.Patience, 5*time.Millisecond)
	got = ask(moves, "", time.Hour)
	require.Empty(t, told(got))
	require.NotContains(t, got.resolution, "snapped")
}

// rulesAreExact requires that a rule has recorded the exact result of its query, in an evaluation after all writes.
func (r running) rulesAreExact(t *testing.T, written time.Time) {
	t.Helper()
	var at, value string
	require.Eventually(t, func() bool {
		for _, points := range r.asks(t, "query", "", url.Values{"query": {"ruled[10m]"}}).series {
			for second, v := range points {
				if ms := int64(math.Round(second * 1000)); ms > written.UnixMilli() {
					at, value = fmt.Sprintf("%d.%03d", ms/1000, ms%1000), v
				}
			}
		}
		return at != ""
	}, cassiatest.Patience, 20*time.Millisecond, "no rule was evaluated")
	recorded, err := strconv.ParseFloat(value, 64)
	require.NoError(t, err)
	for _, points := range r.asks(t, "query", "", url.Values{
		"query": {"sum_over_time(avg_over_time(g[1h15s])[7d:1h])"}, "time": {at}, "resolution": {"exact"},
	}).series {
		for _, v := range points {
			want, err := strconv.ParseFloat(v, 64)
			require.NoError(t, err)
			require.InEpsilon(t, want, recorded, 1e-12)
			return
		}
	}
	require.Fail(t, "there is no answer")
}

// told returns the infos about moved windows.
func told(a answered) (infos []string) {
	for _, info := range a.infos {
		if !strings.Contains(info, "might not be a counter") {
			infos = append(infos, info)
		}
	}
	return infos
}

// writeMoving writes a gauge, a counter that rarely changes, and a gauge that started recently.
func (r running) writeMoving(t *testing.T, from, to time.Time) {
	t.Helper()
	for begin := from; begin.Before(to); begin = begin.Add(24 * time.Hour) {
		all := map[string][]prompb.Sample{}
		for at := begin.Add(time.Minute); !at.After(begin.Add(24*time.Hour)) &&
			!at.After(to); at = at.Add(time.Minute) {
			s := float64(at.Unix())
			all["g"] = append(all["g"], prompb.Sample{Timestamp: at.UnixMilli(), Value: 50 + float64(int64(s)/60%97)})
			all["rare"] = append(all["rare"], prompb.Sample{
				Timestamp: at.UnixMilli(), Value: float64(int64(s) / 70_000),
			})
			if to.Sub(at) < 40*time.Minute {
				all["young"] = append(all["young"], prompb.Sample{Timestamp: at.UnixMilli(), Value: 1})
			}
		}
		request := &prompb.WriteRequest{}
		for name, samples := range all {
			request.Timeseries = append(request.Timeseries, prompb.TimeSeries{
				Labels: []prompb.Label{{Name: "__name__", Value: name}}, Samples: samples,
			})
		}
		body, err := request.Marshal()
		require.NoError(t, err)
		code, text := r.PostAs(t, "default", "/api/v1/write", snappy.Encode(nil, body))
		require.Equal(t, http.StatusNoContent, code, text)
	}
}
