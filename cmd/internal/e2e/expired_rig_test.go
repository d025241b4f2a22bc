package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

// expired consists of two stores with the same samples of three tenants, one sample per minute. One store keeps all
// samples. The other store has only 5m rollups of the samples from four days ago, and only 1h rollups of the samples
// from eight days ago.
type expired struct {
	wholeDir, agedDir string
	whole, aged       running
	// zones contains the times around which samples exist, for four hours before and eight hours after. The key is the
	// finest data that the second store has for that time: "raw", "5m" or "1h".
	zones map[string]time.Time
}

// expiredFlags contains the flags of the store whose samples expire.
var expiredFlags = []string{"--retention.raw=2d", "--retention.5m=6d", "--retention.1h=0"}

// newExpired creates and starts both stores. feature is enabled in addition to expiredFeatures.
func newExpired(t *testing.T, feature string) *expired {
	t.Helper()
	hour := time.Now().Truncate(time.Hour)
	x := &expired{wholeDir: t.TempDir(), agedDir: t.TempDir(), zones: map[string]time.Time{
		"1h": hour.Add(-8 * 24 * time.Hour), "5m": hour.Add(-4 * 24 * time.Hour), "raw": hour.Add(-12 * time.Hour),
	}}
	for _, dir := range []string{x.wholeDir, x.agedDir} {
		r := startServe(t, "--storage.path="+dir, "--storage.partitions=1", "--retention.raw=0")
		for zone, from := range x.zones {
			for _, tenant := range []string{"default", "ta", "tb"} {
				r.writeExpired(t, tenant, "zone_"+zone, from.Add(-4*time.Hour), from.Add(8*time.Hour))
			}
		}
		code, text := r.Post(t, "/-/seal", nil)
		require.Equal(t, http.StatusOK, code, text)
		require.NoError(t, r.stop())
	}
	x.restart(t, feature)
	return x
}

// expiredFeatures contains the features that are always enabled.
const expiredFeatures = "promql-experimental-functions,promql-extended-range-selectors"

// restart restarts both servers with another feature and other flags.
func (x *expired) restart(t *testing.T, feature string, flags ...string) {
	t.Helper()
	for _, r := range []running{x.whole, x.aged} {
		if r.stop != nil {
			require.NoError(t, r.stop())
		}
	}
	features := "--enable-feature=" + strings.TrimSuffix(expiredFeatures+","+feature, ",")
	flags = append([]string{"--tenants.federation", features}, flags...)
	x.whole = startServe(t, append([]string{"--storage.path=" + x.wholeDir, "--retention.raw=0"}, flags...)...)
	x.aged = startServe(t, append(append([]string{"--storage.path=" + x.agedDir}, flags...), expiredFlags...)...)
	for _, r := range []running{x.whole, x.aged} {
		require.Eventually(t, func() bool { code, _ := r.Get(t, "/-/ready"); return code == http.StatusOK },
			cassiatest.Patience, 5*time.Millisecond)
	}
	// Windows past their retention are hidden shortly after the start.
	require.Eventually(t, func() bool {
		a := x.aged.asks(t, "query", "", url.Values{
			"query": {"sn_sine"}, "resolution": {"raw"}, "time": {fmt.Sprint(x.zones["5m"].Unix())},
		})
		return a.code == http.StatusOK && len(a.series) == 0
	}, cassiatest.Patience, 20*time.Millisecond)
}

// writeExpired writes the series of a tenant: a gauge, a counter with a constant rate and resets, a bursty counter, a
// native histogram, and another gauge with the given name.
func (r running) writeExpired(t *testing.T, tenant, name string, from, to time.Time) {
	t.Helper()
	request := &prompb.WriteRequest{}
	series := func(name string) *prompb.TimeSeries {
		request.Timeseries = append(request.Timeseries, prompb.TimeSeries{
			Labels: []prompb.Label{{Name: "__name__", Value: name}, {Name: "job", Value: "j"}},
		})
		return &request.Timeseries[len(request.Timeseries)-1]
	}
	floats := map[string]func(s float64) float64{
		"sn_sine": func(s float64) float64 { return 50 + 50*math.Sin(2*math.Pi*s/(4*3600)) },
		"c":       func(s float64) float64 { return 2 * math.Mod(s, 7*3600+120) },
		"bursty":  func(s float64) float64 { return 100 * math.Floor(s/1020) },
	}
	floats[name] = floats["sn_sine"]
	for name, value := range floats {
		s := series(name)
		for at := from.Add(time.Minute); !at.After(to); at = at.Add(time.Minute) {
			s.Samples = append(s.Samples, prompb.Sample{Timestamp: at.UnixMilli(), Value: value(float64(at.Unix()))})
		}
	}
	s := series("nhc")
	for at := from.Add(time.Minute); !at.After(to); at = at.Add(time.Minute) {
		n := uint64(at.Sub(from) / time.Minute)
		h := &histogram.Histogram{
			Schema: 1, ZeroThreshold: 0.001, Count: 6 * n, Sum: float64(9 * n),
			PositiveSpans:   []histogram.Span{{Offset: 0, Length: 3}},
			PositiveBuckets: []int64{int64(n), int64(n), int64(n)},
		}
		s.Histograms = append(s.Histograms, prompb.FromIntHistogram(at.UnixMilli(), h))
	}
	body, err := request.Marshal()
	require.NoError(t, err)
	code, text := r.PostAs(t, tenant, "/api/v1/write", snappy.Encode(nil, body))
	require.Equal(t, http.StatusNoContent, code, text)
}

// answered is the response to a query.
type answered struct {
	code       int
	resolution string
	err        string
	infos      []string
	// series contains the points by labels and time in seconds. A histogram is represented by its count and sum.
	series map[string]map[float64]string
}

// points returns the total number of points.
func (a answered) points() (n int) {
	for _, s := range a.series {
		n += len(s)
	}
	return n
}

// asks calls the endpoint query or query_range.
func (r running) asks(t *testing.T, path, tenant string, v url.Values) answered {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, r.URL+"/api/v1/"+path+"?"+v.Encode(), nil)
	require.NoError(t, err)
	if tenant != "" {
		request.Header.Set("X-Scope-OrgID", tenant)
	}
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	a := answered{
		code: answer.StatusCode, resolution: answer.Header.Get("X-Cassia-Resolution"),
		series: map[string]map[float64]string{},
	}
	var parsed struct {
		Error           string
		Infos, Warnings []string
		Data            struct {
			Result []struct {
				Metric     map[string]string
				Value      [2]any
				Values     [][2]any
				Histograms [][2]any
				Histogram  [2]any
			}
		}
	}
	require.NoError(t, json.Unmarshal(body, &parsed), "%s", body)
	a.err, a.infos = parsed.Error, append(parsed.Infos, parsed.Warnings...)
	for _, s := range parsed.Data.Result {
		of := map[float64]string{}
		if s.Value[0] != nil {
			s.Values = append(s.Values, s.Value)
		}
		if s.Histogram[0] != nil {
			s.Histograms = append(s.Histograms, s.Histogram)
		}
		for _, p := range s.Values {
			of[p[0].(float64)] = p[1].(string)
		}
		for _, p := range s.Histograms {
			h := p[1].(map[string]any)
			of[p[0].(float64)] = h["count"].(string) + "/" + h["sum"].(string)
		}
		a.series[fmt.Sprint(s.Metric)] = of
	}
	return a
}

// over runs a range query over two hours from the given full hour.
func (r running) over(t *testing.T, tenant, query string, from time.Time, step time.Duration) answered {
	t.Helper()
	return r.asks(t, "query_range", tenant, url.Values{
		"query": {query}, "start": {fmt.Sprint(from.Unix())}, "end": {fmt.Sprint(from.Add(2 * time.Hour).Unix())},
		"step": {fmt.Sprint(step.Seconds())},
	})
}

// compared is the result of comparing two responses: the number of missing and of additional points, and the max
// difference relative to the series' max value.
type compared struct {
	points, missing, extra int
	off                    float64
}

func compare(want, got answered) (c compared) {
	greatest := 0.0
	parse := func(text string) float64 {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			var count, sum float64
			if n, _ := fmt.Sscanf(text, "%g/%g", &count, &sum); n != 2 {
				return math.NaN()
			}
			return count + sum
		}
		return v
	}
	for name, points := range want.series {
		for at, v := range points {
			c.points++
			greatest = max(greatest, math.Abs(parse(v)))
			other, ok := got.series[name][at]
			switch {
			case !ok:
				c.missing++
			case other != v:
				if d := math.Abs(parse(other) - parse(v)); !(d <= c.off) {
					c.off = d
				}
			}
		}
	}
	c.extra = got.points() - (c.points - c.missing)
	if greatest > 0 {
		c.off /= greatest
	}
	return c
}

func (c compared) String() string {
	text := fmt.Sprintf("%d points", c.points)
	if c.missing > 0 {
		text += fmt.Sprintf(", %d MISSING", c.missing)
	}
	if c.extra > 0 {
		text += fmt.Sprintf(", %d EXTRA", c.extra)
	}
	return text + fmt.Sprintf(", off by %.3g", c.off)
}
