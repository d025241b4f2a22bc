package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/storage/soak"
)

// sentDelta holds the increase of a counter in an interval, and the number of observations per bucket of two
// histograms.
type sentDelta struct {
	start, end time.Time
	v          int64
	buckets    [3]uint64
}

// deltaClient sends samples and queries to a server.
type deltaClient struct {
	t *testing.T
	running
}

// startDeltaServer starts a server and waits until it is ready.
func startDeltaServer(t *testing.T, flags ...string) deltaClient {
	c := deltaClient{t, startServe(t, append([]string{"--tenants.federation", "--query.timeout=5m"}, flags...)...)}
	require.Eventually(t, func() bool { code, _ := c.Get(t, "/-/ready"); return code == http.StatusOK },
		cassiatest.Patience, 5*time.Millisecond)
	return c
}

// request sends a request for a tenant and returns the body of the response.
func (c deltaClient) request(tenant, method, path string, body []byte) string {
	request, err := http.NewRequest(method, c.URL+path, bytes.NewReader(body))
	require.NoError(c.t, err)
	request.Header.Set("Content-Type", "application/x-protobuf")
	request.Header.Set("X-Scope-OrgID", tenant)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(c.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(c.t, err)
	require.Equal(c.t, http.StatusOK, answer.StatusCode, "%s: %s", path, text)
	return string(text)
}

// send sends metrics with OTLP.
func (c deltaClient) send(tenant string, add func(pmetric.MetricSlice)) {
	md := pmetric.NewMetrics()
	add(md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics())
	body, err := pmetricotlp.NewExportRequestFromMetrics(md).MarshalProto()
	require.NoError(c.t, err)
	response := pmetricotlp.NewExportResponse()
	require.NoError(
		c.t, response.UnmarshalProto([]byte(c.request(tenant, http.MethodPost, "/api/v1/otlp/v1/metrics", body))),
	)
	require.Zero(c.t, response.PartialSuccess().RejectedDataPoints(), response.PartialSuccess().ErrorMessage())
}

// query runs an instant query and returns its values by tenant, and its infos and warnings. The value of a query of one
// tenant has the key "".
func (c deltaClient) query(tenant, query string, at time.Time) (values map[string]string, notes []string) {
	text := c.request(
		tenant, http.MethodGet, fmt.Sprintf("/api/v1/query?query=%s&time=%d", url.QueryEscape(query), at.Unix()), nil,
	)
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
		Warnings, Infos []string
	}
	require.NoError(c.t, json.Unmarshal([]byte(text), &answer))
	values = map[string]string{}
	for _, one := range answer.Data.Result {
		of := one.Metric["__tenant_id__"]
		require.NotContains(c.t, values, of, "%s: %s", query, text)
		values[of] = one.Value[1].(string)
	}
	return values, append(answer.Warnings, answer.Infos...)
}

// drawDeltas returns n consecutive random deltas of whole minutes, starting at from. About one in eight follows a gap
// of up to 20 minutes. A delta is one to three minutes long, plus up to sparse minutes.
func drawDeltas(rng *rand.Rand, from time.Time, n, sparse int) (list []sentDelta) {
	at := from
	for range n {
		if rng.IntN(8) == 0 {
			at = at.Add(time.Duration(1+rng.IntN(20)) * time.Minute)
		}
		d := sentDelta{
			start: at, end: at.Add(time.Duration(1+rng.IntN(3)+rng.IntN(1+sparse)) * time.Minute), v: rng.Int64N(1000),
		}
		for i := range d.buckets {
			d.buckets[i] = rng.Uint64N(5)
		}
		list, at = append(list, d), d.end
	}
	return list
}

// addDeltas adds the deltas as a counter, a non-monotonic sum, and two histograms, whose names start with name.
func addDeltas(to pmetric.MetricSlice, name string, list []sentDelta) {
	ends := func(start, end time.Time) (pcommon.Timestamp, pcommon.Timestamp) {
		return pcommon.NewTimestampFromTime(start), pcommon.NewTimestampFromTime(end)
	}
	for _, monotonic := range []bool{true, false} {
		m := to.AppendEmpty()
		m.SetName(name)
		sum := m.SetEmptySum()
		sum.SetIsMonotonic(monotonic)
		sum.SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
		for _, d := range list {
			p := sum.DataPoints().AppendEmpty()
			start, end := ends(d.start, d.end)
			p.SetStartTimestamp(start)
			p.SetTimestamp(end)
			if p.SetIntValue(d.v); !monotonic {
				p.SetIntValue(500 - d.v)
			}
		}
	}
	m := to.AppendEmpty()
	m.SetName(name + ".explicit")
	explicit := m.SetEmptyHistogram()
	explicit.SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
	m = to.AppendEmpty()
	m.SetName(name + ".exponential")
	exponential := m.SetEmptyExponentialHistogram()
	exponential.SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
	for i, d := range list {
		start, end := ends(d.start, d.end)
		p := explicit.DataPoints().AppendEmpty()
		p.SetStartTimestamp(start)
		p.SetTimestamp(end)
		p.SetCount(d.buckets[0] + d.buckets[1] + d.buckets[2])
		p.SetSum(float64(d.v))
		p.ExplicitBounds().FromRaw([]float64{1, 10})
		p.BucketCounts().FromRaw(d.buckets[:])
		e := exponential.DataPoints().AppendEmpty()
		e.SetStartTimestamp(start)
		e.SetTimestamp(end)
		e.SetScale(int32(2 - i%3)) // SDKs change the scale as values arrive.
		e.SetCount(d.buckets[0] + d.buckets[1] + d.buckets[2])
		e.SetZeroCount(d.buckets[0])
		e.SetSum(float64(d.v))
		e.Positive().SetOffset(int32(i % 4))
		e.Positive().BucketCounts().FromRaw(d.buckets[1:])
	}
}

// increasesOf returns queries and their expected results. A result is the sum of the deltas that end in the range.
func increasesOf(name string, list []sentDelta, from, to time.Time) map[string]string {
	var n, sum int64
	var buckets [3]uint64
	for _, d := range list {
		if d.end.After(from) && !d.end.After(to) {
			n, sum = n+1, sum+d.v
			for i, count := range d.buckets {
				buckets[i] += count
			}
		}
	}
	count := buckets[0] + buckets[1] + buckets[2]
	width := strconv.Itoa(int(to.Sub(from)/time.Second)) + "s"
	return map[string]string{
		"increase(" + name + "_total[" + width + "])":                        strconv.FormatInt(sum, 10),
		"increase(" + name + "[" + width + "])":                              strconv.FormatInt(500*n-sum, 10),
		"sum_over_time(" + name + "_total[" + width + "])":                   strconv.FormatInt(sum, 10),
		"increase(" + name + "_explicit_count[" + width + "])":               strconv.FormatUint(count, 10),
		"increase(" + name + "_explicit_sum[" + width + "])":                 strconv.FormatInt(sum, 10),
		"increase(" + name + `_explicit_bucket{le="10"}[` + width + "])":     strconv.FormatUint(buckets[0]+buckets[1], 10),
		"histogram_count(increase(" + name + "_exponential[" + width + "]))": strconv.FormatUint(count, 10),
		"histogram_sum(increase(" + name + "_exponential[" + width + "]))":   strconv.FormatInt(sum, 10),
	}
}

// checkIncreases queries increases over ranges that end at the end of a delta and don't start within a delta.
func (c deltaClient) checkIncreases(rng *rand.Rand, name string, list []sentDelta, times int) {
	for range times {
		first := rng.IntN(len(list))
		from, to := list[first].start, list[first+rng.IntN(len(list)-first)].end
		if gap := int64(from.Sub(list[max(first-1, 0)].end) / time.Minute); gap > 0 {
			from = from.Add(-time.Duration(rng.Int64N(gap)) * time.Minute)
		}
		for query, want := range increasesOf(name, list, from, to) {
			got, notes := c.query("shop", query, to)
			require.Equal(c.t, map[string]string{"": want}, got, "%s at %s", query, to)
			require.NotContains(c.t, strings.Join(notes, "\n"), "overlap", query)
		}
	}
}

// TestDeltasAdd checks that increase() is the sum of the deltas in its range, for deltas that have gaps and arrive out
// of order, and for ranges that don't cut a delta.
func TestDeltasAdd(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(soak.Seed(t), 0))
	flags := []string{"--storage.path=" + t.TempDir()}
	c := startDeltaServer(t, flags...)
	base := time.Now().Truncate(time.Hour).Add(-30 * time.Hour)
	dense, sparse := drawDeltas(rng, base, 300, 0), drawDeltas(rng, base, 25, 60)
	lines, firstDay := 0, time.Time{} // A line is logged for the first request, and for each with an earlier day.
	for name, list := range map[string][]sentDelta{"dense": dense, "sparse": sparse} {
		shuffled := slices.Clone(list)
		rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		for part := range slices.Chunk(shuffled, 40) {
			c.send("shop", func(to pmetric.MetricSlice) { addDeltas(to, name, part) })
			oldest := slices.MinFunc(part, func(a, b sentDelta) int { return a.end.Compare(b.end) }).end
			if day := oldest.Add(-time.Millisecond).Truncate(24 * time.Hour); lines == 0 || day.Before(firstDay) {
				lines, firstDay = lines+1, day
			}
		}
	}
	c.checkIncreases(rng, "dense", dense, 20)
	c.checkIncreases(rng, "sparse", sparse, 10)
	require.Equal(t, lines, strings.Count(c.log.String(), "the tenant sends deltas"))

	require.NoError(t, c.stop())
	c = startDeltaServer(t, flags...)
	c.checkIncreases(rng, "dense", dense, 5)
	require.NotContains(t, c.log.String(), "the tenant sends deltas", "it was logged when the tenant was recorded")
}

// sendRestarted sends a cumulative counter that is 100 after an hour, restarts, and is 150 after another 20 minutes.
// Its increase is 150 if it is computed from the values, and 250 if it is computed with the start timestamps.
func (c deltaClient) sendRestarted(tenant string, from time.Time) {
	c.send(tenant, func(to pmetric.MetricSlice) {
		m := to.AppendEmpty()
		m.SetName("jobs")
		sum := m.SetEmptySum()
		sum.SetIsMonotonic(true)
		sum.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		for _, of := range []struct {
			start, end time.Duration
			v          int64
		}{{0, 30 * time.Minute, 50}, {0, time.Hour, 100}, {70 * time.Minute, 90 * time.Minute, 150}} {
			p := sum.DataPoints().AppendEmpty()
			p.SetStartTimestamp(pcommon.NewTimestampFromTime(from.Add(of.start)))
			p.SetTimestamp(pcommon.NewTimestampFromTime(from.Add(of.end)))
			p.SetIntValue(of.v)
		}
	})
}

// TestDeltasOfATenant checks which rates are computed with start timestamps, in queries of one tenant and of multiple
// tenants: only the rates of a tenant that has sent deltas, from the day of the tenant's first delta. Both tenants
// first send counters. Then one of them sends deltas, and later the other one.
func TestDeltasOfATenant(t *testing.T) {
	t.Parallel()
	for name, flagsOf := range map[string]func(*testing.T) []string{
		"Pebble":    func(t *testing.T) []string { return []string{"--storage.path=" + t.TempDir()} },
		"Cassandra": cassiatest.OnCassandra,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flags := flagsOf(t)
			writes := startDeltaServer(t, flags...)
			reads := writes
			if name == "Cassandra" {
				reads = startDeltaServer(t, flags...)
			}
			recent := time.Now().Truncate(time.Hour).Add(-2 * time.Hour)
			early := recent.Add(-3 * 24 * time.Hour)
			each := func(tenant string, from time.Time) map[string]string {
				got, _ := reads.query(tenant, "increase(jobs_total[91m])", from.Add(90*time.Minute))
				return got
			}
			jobs := func(tenant string, from time.Time) map[string]string {
				got := each(tenant, from)
				all, _ := reads.query(tenant, "sum by (__tenant_id__) (increase(jobs_total[91m]))",
					from.Add(90*time.Minute))
				require.Equal(t, got, all)
				return got
			}
			for _, tenant := range []string{"plain", "shop"} {
				writes.sendRestarted(tenant, early)
				writes.sendRestarted(tenant, recent)
			}
			byValue := jobs("plain", recent)[""]
			byStart := "250"
			require.NotEqual(t, byStart, byValue)
			require.Equal(t, map[string]string{"plain": byValue, "shop": byValue}, jobs("plain|shop", recent))

			send := func(tenant string) {
				writes.send(tenant, func(to pmetric.MetricSlice) {
					addDeltas(to, "orders", []sentDelta{
						{start: recent.Add(59 * time.Minute), end: recent.Add(time.Hour), v: 5},
					})
				})
				require.Eventually(t, func() bool { return each(tenant, recent)[""] == byStart }, cassiatest.Patience,
					100*time.Millisecond, "another process finds it within half a minute")
			}
			send("shop")
			require.Equal(t, byValue, jobs("plain", recent)[""])
			require.Equal(t, map[string]string{"plain": byValue, "shop": byStart}, jobs("plain|shop", recent))
			require.Equal(t, map[string]string{"plain": byValue, "shop": byValue}, jobs("plain|shop", early),
				"the day before the first delta, nothing changes")
			send("plain")
			require.Equal(t, map[string]string{"plain": byStart, "shop": byStart}, jobs("plain|shop", recent))

			require.NoError(t, writes.stop())
			require.NoError(t, reads.stop())
			if name == "Pebble" {
				_, text, _ := runDoctor(t, time.Now(), month, flags...) // The store has old samples that aren't sealed.
				for _, tenant := range []string{"plain", "shop"} {
					require.Contains(t, text, `tenant "`+tenant+`" has sent deltas since `)
				}
			}
			reads = startDeltaServer(t, flags...)
			require.Equal(t, map[string]string{"plain": byStart, "shop": byStart}, jobs("plain|shop", recent))
			require.Equal(t, map[string]string{"plain": byValue, "shop": byValue}, jobs("plain|shop", early))
		})
	}
}

// TestDeltasWithCustomBuckets checks the increases of deltas of histograms with explicit bounds that are stored as
// native histograms.
func TestDeltasWithCustomBuckets(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(soak.Seed(t), 0))
	c := startDeltaServer(t, "--storage.path="+t.TempDir(), "--otlp.convert-histograms-to-nhcb")
	list := drawDeltas(rng, time.Now().Truncate(time.Hour).Add(-12*time.Hour), 50, 0)
	c.send("shop", func(to pmetric.MetricSlice) { addDeltas(to, "orders", list) })
	var all sentDelta
	for n, d := range list {
		all.v += d.v
		count := all.buckets[0] + all.buckets[1] + all.buckets[2]
		for i, more := range d.buckets {
			all.buckets[i] += more
			count += more
		}
		width := strconv.Itoa(int(d.end.Sub(list[0].start)/time.Second)) + "s"
		for query, want := range map[string]string{
			"histogram_count(increase(orders_explicit[" + width + "]))": strconv.FormatUint(count, 10),
			"histogram_sum(increase(orders_explicit[" + width + "]))":   strconv.FormatInt(all.v, 10),
		} {
			got, _ := c.query("shop", query, d.end)
			require.Equal(t, map[string]string{"": want}, got, "%s, %d deltas", query, n+1)
		}
	}
}

// TestRulesOfDeltas checks that a recording rule computes increases with start timestamps for a tenant that sends
// deltas, and from values for a tenant that doesn't.
func TestRulesOfDeltas(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var flags []string
	for _, tenant := range []string{"plain", "shop"} {
		file := filepath.Join(dir, tenant+".yml")
		require.NoError(t, os.WriteFile(file, []byte(
			"groups: [{name: g, interval: 1s, rules: [{record: grown, expr: 'increase(jobs_total[91m] offset 1m)'}]}]",
		), 0o600))
		flags = append(flags, "--rule.files="+tenant+"="+file)
	}
	c := startDeltaServer(t, append([]string{"--storage.path=" + filepath.Join(dir, "data")}, flags...)...)
	from := time.Now().Truncate(time.Minute).Add(-91 * time.Minute)
	c.sendRestarted("plain", from)
	c.sendRestarted("shop", from)
	c.send("shop", func(to pmetric.MetricSlice) {
		addDeltas(to, "orders", []sentDelta{{start: from.Add(59 * time.Minute), end: from.Add(time.Hour), v: 5}})
	})
	// The rule extrapolates over the seconds that have passed since the last sample: to about 150 from values, to about
	// 250 from start timestamps.
	require.Eventually(t, func() bool {
		shop, _ := c.query("shop", "max_over_time(grown[5m]) > bool 200", time.Now())
		plain, _ := c.query("plain", "max_over_time(grown[5m]) < bool 200", time.Now())
		return shop[""] == "1" && plain[""] == "1"
	}, cassiatest.Patience, 100*time.Millisecond)
}

// TestDeltasOverlap checks that a query over overlapping deltas of one series returns a warning, because their sum is
// unknown.
func TestDeltasOverlap(t *testing.T) {
	t.Parallel()
	c := startDeltaServer(t, "--storage.path="+t.TempDir())
	at := time.Now().Truncate(time.Minute).Add(-time.Hour)
	c.send("shop", func(to pmetric.MetricSlice) {
		addDeltas(to, "orders", []sentDelta{
			{start: at, end: at.Add(2 * time.Minute), v: 5},
			{start: at.Add(time.Minute), end: at.Add(3 * time.Minute), v: 7},
		})
	})
	_, notes := c.query("shop", "increase(orders_total[10m])", at.Add(3*time.Minute))
	require.Contains(t, strings.Join(notes, "\n"), "overlap")
	values, _ := c.query("shop", "sum_over_time(orders_total[10m])", at.Add(3*time.Minute))
	require.Equal(t, map[string]string{"": "12"}, values)
}
