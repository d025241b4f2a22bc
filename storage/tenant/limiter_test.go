package tenant

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// clock is a clock that tests set.
type clock struct{ now time.Time }

func newClock() *clock { return &clock{time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time { return c.now }

func newTestLimiter(t *testing.T, c *clock, text string) *Limiter {
	t.Helper()
	table, err := ParseLimits([]byte(text))
	require.NoError(t, err)
	l := NewLimiter(c.Now, nil)
	l.Set(table)
	return l
}

// refusedWith returns the status of a *LimitError for limit, or 0 if err is nil.
func refusedWith(t *testing.T, err error, limit string) int {
	t.Helper()
	if err == nil {
		return 0
	}
	var e *LimitError
	require.ErrorAs(t, err, &e)
	require.Equal(t, limit, e.Limit)
	require.Contains(t, e.Error(), limit)
	require.Contains(t, e.Error(), e.Tenant)
	return e.Status
}

func TestSamplesPerSecond(t *testing.T) {
	c := newClock()
	l := newTestLimiter(
		t, c, "defaults: {samples_per_second: 100, samples_burst: 500}\ntenants: {free: {samples_per_second: 0}}",
	)
	require.NoError(t, l.ChargeSamples("a", 500), "the burst is there from the start")
	err := l.ChargeSamples("a", 150)
	require.Equal(t, http.StatusTooManyRequests, refusedWith(t, err, keySamplesPerSecond))
	require.Equal(t, 1500*time.Millisecond, err.(*LimitError).RetryAfter)
	require.NoError(t, l.ChargeSamples("b", 500), "another tenant has its own")
	require.NoError(t, l.ChargeSamples("free", 1e9))

	c.now = c.now.Add(1500 * time.Millisecond)
	require.NoError(t, l.ChargeSamples("a", 150), "what was refused took nothing")
	require.Error(t, l.ChargeSamples("a", 1))
	l.RefundSamples("a", 100)
	require.NoError(t, l.ChargeSamples("a", 100), "what wasn't stored was given back")
	c.now = c.now.Add(-time.Hour)
	require.Error(t, l.ChargeSamples("a", 1), "a clock that goes back brings nothing")
	c.now = c.now.Add(1000 * time.Hour)
	require.NoError(t, l.ChargeSamples("a", 500), "never more than the burst")
	require.Error(t, l.ChargeSamples("a", 1))
	require.Equal(t, http.StatusRequestEntityTooLarge, refusedWith(t, l.ChargeSamples("a", 501), keySamplesBurst),
		"what can never be taken must not be tried again")
}

func TestSendersThatDoNotWait(t *testing.T) {
	c := newClock()
	l := newTestLimiter(t, c, "defaults: {samples_per_second: 100, samples_burst: 500}")
	require.NoError(t, l.CheckRate("a"))
	require.NoError(t, l.ChargeSamples("a", 450))
	require.NoError(t, l.CheckRate("a"))
	require.Error(t, l.ChargeSamples("a", 100))
	require.Equal(t, http.StatusTooManyRequests, refusedWith(t, l.CheckRate("a"), keySamplesPerSecond))
	require.NoError(t, l.CheckRate("b"))
	c.now = c.now.Add(499 * time.Millisecond)
	require.Error(t, l.CheckRate("a"), "small requests leave room for the one that was refused")
	c.now = c.now.Add(time.Millisecond)
	require.NoError(t, l.CheckRate("a"))
	require.NoError(t, l.ChargeSamples("a", 100))
	require.Error(t, l.ChargeSamples("a", 100))
	c.now = c.now.Add(-time.Hour)
	require.NoError(t, l.CheckRate("a"), "a clock that goes back locks nobody out")
	l.Set(NewTable(Limits{}, nil))
	require.NoError(t, l.CheckRate("a"))
}

func TestRequestOfSeveralBatches(t *testing.T) {
	l := newTestLimiter(t, newClock(), "defaults: {samples_per_second: 100, samples_burst: 500}")
	require.NoError(t, l.ChargeSamples("a", 400))
	err := l.ChargeSamples("a", 200).(*LimitError)
	require.Equal(
		t, http.StatusRequestEntityTooLarge, err.ForRequest(600).Status, "the whole of it can never be taken at once",
	)
	require.Equal(t, 4*time.Second, err.ForRequest(500).RetryAfter, "from when on all of it is taken")
	require.Equal(t, time.Second, err.RetryAfter)
}

func TestNewLimitsKeepWhatWasUsed(t *testing.T) {
	l := newTestLimiter(t, newClock(), "defaults: {samples_per_second: 100, samples_burst: 500}")
	require.NoError(t, l.ChargeSamples("a", 300))
	require.Equal(t, map[string]float64{keySamplesPerSecond: 200}, l.Remaining("a"))
	l.Set(NewTable(Limits{SamplesPerSecond: 100, SamplesBurst: 150}, nil))
	require.Equal(t, map[string]float64{keySamplesPerSecond: 150}, l.Remaining("a"))
	l.Set(NewTable(Limits{}, nil))
	require.NoError(t, l.ChargeSamples("a", 1e9))
	require.Empty(t, l.Remaining("a"))
}

func TestSeriesLimits(t *testing.T) {
	c := newClock()
	l := newTestLimiter(t, c, "defaults: {active_series: 10, new_series_per_hour: 6}")
	require.Equal(t, http.StatusBadRequest, refusedWith(t, l.ChargeSeries("a", 10, true), KeyActiveSeries))
	for range 6 {
		require.NoError(t, l.ChargeSeries("a", 0, true))
	}
	require.Equal(t, http.StatusBadRequest, refusedWith(t, l.ChargeSeries("a", 6, true), keyNewSeriesPerHour))
	require.NoError(t, l.ChargeSeries("a", 6, false), "after a restart nobody knows which series are new")
	c.now = c.now.Add(10 * time.Minute)
	require.NoError(t, l.ChargeSeries("a", 6, true))
	require.Error(t, l.ChargeSeries("a", 6, true))
}

func TestExemplarsAndRequests(t *testing.T) {
	l := newTestLimiter(t, newClock(), "defaults: {exemplars_per_second: 2, request_bytes: 1KiB}")
	for range 20 {
		require.NoError(t, l.ChargeExemplar("a"))
	}
	require.Equal(t, http.StatusBadRequest, refusedWith(t, l.ChargeExemplar("a"), keyExemplarsPerSecond))
	require.NoError(t, l.CheckRequest("a", 1024))
	require.Equal(t, http.StatusRequestEntityTooLarge, refusedWith(t, l.CheckRequest("a", 1025), keyRequestBytes))
}

func TestNoLimiterLimitsNothing(t *testing.T) {
	var l *Limiter
	require.NoError(t, l.ChargeSamples("a", 1e9))
	require.NoError(t, l.ChargeSeries("a", 1e9, true))
	require.NoError(t, l.ChargeExemplar("a"))
	require.NoError(t, l.CheckRequest("a", 1<<40))
	l.RefundSamples("a", 1)
	use := l.Use(l.Begin(t.Context()), "a")
	require.NoError(t, use.AddSeries(1e9))
	require.NoError(t, use.AddSamples(1e9))
	require.NoError(t, use.AddBytes(1e9))
	require.NoError(t, use.CheckRange(1e6*time.Hour))
	require.Zero(t, use.MaxRange())
	use.Restore(use.Snapshot())
}

func TestAQueryCountsAsOne(t *testing.T) {
	l := newTestLimiter(
		t, newClock(), "defaults: {query_series: 10, query_samples: 100, query_bytes: 1000, query_range: 1h}",
	)
	ctx := l.Begin(t.Context())
	require.NoError(t, l.Use(ctx, "a").AddSeries(6))
	require.NoError(t, l.Use(ctx, "b").AddSeries(6), "each tenant's limits are its own")
	require.Equal(t, http.StatusUnprocessableEntity, refusedWith(t, l.Use(ctx, "a").AddSeries(5), KeyQuerySeries))
	require.NoError(t, l.Use(l.Begin(t.Context()), "a").AddSeries(6), "another query")
	require.NoError(t, l.Use(t.Context(), "a").AddSeries(6))

	u := l.Use(ctx, "b")
	saved := u.Snapshot()
	require.NoError(t, u.AddSamples(100))
	require.Equal(t, http.StatusUnprocessableEntity, refusedWith(t, u.AddSamples(1), KeyQuerySamples))
	u.Restore(saved)
	require.NoError(t, u.AddSamples(100))
	require.NoError(t, u.AddBytes(1000))
	require.Equal(t, http.StatusUnprocessableEntity, refusedWith(t, u.AddBytes(1), keyQueryBytes))
	require.NoError(t, u.CheckRange(time.Hour))
	require.Equal(t, http.StatusUnprocessableEntity, refusedWith(t, u.CheckRange(time.Hour+1), KeyQueryRange))
}

func TestAccountsAreBounded(t *testing.T) {
	c := newClock()
	l := newTestLimiter(t, c, "defaults: {samples_per_second: 1, samples_burst: 10}")
	for i := range maxAccounts {
		require.NoError(t, l.ChargeSamples(strconv.Itoa(i), 10))
	}
	require.NoError(t, l.ChargeSamples("one more", 10))
	require.LessOrEqual(t, len(l.accounts), maxAccounts)
	c.now = c.now.Add(time.Minute)
	require.NoError(t, l.ChargeSamples("another", 10))
	require.Len(t, l.accounts, 1, "those whose buckets are full again are forgotten")
}

func TestRefusalsNameSomeTenants(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	l := NewLimiter(time.Now, reg)
	for i := range maxCountedTenants + 50 {
		l.CountRejected(fmt.Sprintf("tenant-%d", i), KeyQueries, 2)
	}
	n, err := testutil.GatherAndCount(reg, "cassia_tenant_limit_refused_total")
	require.NoError(t, err)
	require.Equal(t, maxCountedTenants+1, n)
	require.Equal(t, 100.0, testutil.ToFloat64(l.refused.counts.WithLabelValues(otherTenants, KeyQueries)))
	require.Error(t, CheckName(otherTenants), "no tenant has that name")
}

func TestParseLimits(t *testing.T) {
	table, err := ParseLimits([]byte(`
defaults:
  samples_per_second: 1e5
  request_bytes: 16MiB
  query_bytes: 1000
  query_range: 31d
  labels: 40
tenants:
  team-a:
    samples_per_second: 200000
    query_range: 0
  team-b:
`))
	require.NoError(t, err)
	usual := Limits{
		SamplesPerSecond: 100_000, RequestBytes: 16 << 20, QueryBytes: 1000, QueryRange: 31 * 24 * time.Hour,
		Labels: 40,
	}
	require.Equal(t, usual, table.LimitsOf("team-b"))
	require.Equal(t, usual, table.LimitsOf("anybody"))
	own := usual
	own.SamplesPerSecond, own.QueryRange = 200_000, 0
	require.Equal(t, own, table.LimitsOf("team-a"), "the rest is as in defaults")
	require.Equal(t, map[string]any{
		keySamplesPerSecond: 1e5, keyRequestBytes: 0x1p24, keyQueryBytes: 1e3, KeyQueryRange: 31 * 86400.,
		KeyLabels: 40.,
	}, usual.ByKey())
	for _, empty := range []string{"", "# nothing\n", "defaults:\ntenants:\n", "tenants: {a: {}}"} {
		table, err := ParseLimits([]byte(empty))
		require.NoError(t, err, empty)
		require.Equal(t, Limits{}, table.LimitsOf("a"))
	}
}

func TestEveryKeyIsItsOwn(t *testing.T) {
	for i, k := range keys {
		table, err := ParseLimits([]byte("defaults: {" + k.name + ": " +
			map[unit]string{unitNumber: "7", unitBytes: "7", unitDuration: "7s", unitWord: "truncate"}[k.unit] + "}"))
		require.NoError(t, err, k.name)
		limits := table.LimitsOf("")
		require.Len(t, limits.ByKey(), 1)
		if k.unit == unitWord {
			require.Equal(t, "truncate", limits.ByKey()[k.name])
		} else {
			require.EqualValues(t, 7, limits.ByKey()[k.name])
		}
		for _, other := range keys[:i] {
			require.NotEqual(t, k.name, other.name)
		}
	}
}

func TestLongLabelValues(t *testing.T) {
	table, err := ParseLimits(
		[]byte("defaults: {long_label_values: truncate}\ntenants: {a: {long_label_values: reject}, b: {labels: 3}}"),
	)
	require.NoError(t, err)
	require.Equal(t, TruncateLongLabelValues, table.LimitsOf("b").LongLabelValues)
	require.Equal(t, RejectLongLabelValues, table.LimitsOf("a").LongLabelValues)
	require.Equal(t, map[string]any{keyLongLabelValues: "reject"}, table.LimitsOf("a").ByKey())
	table, err = ParseLimits([]byte(
		"defaults: {label_value_bytes: 22}\ntenants: {a: {label_value_bytes: 23, long_label_values: truncate}, b: {long_label_values: reject}}",
	))
	require.NoError(t, err, "only truncating needs room for a hash")
	require.EqualValues(t, 23, table.LimitsOf("a").LabelValueBytes)
	require.False(t, table.IsEmpty())
	for text, empty := range map[string]bool{
		"": true, "# nothing": true, "tenants: {}": true, "defaults:": true, "tenants: {a: {}}": true,
		"tenants: {a: {labels: 3}}": false,
	} {
		table, err = ParseLimits([]byte(text))
		require.NoError(t, err)
		require.Equal(t, empty, table.IsEmpty(), text)
	}
}

func TestBadLimits(t *testing.T) {
	for text, want := range map[string]string{
		"defaults: {long_label_values: cut}":                                              `line 1: long_label_values: "cut" must be one of reject, truncate`,
		"defaults: {label_value_bytes: 22}\ntenants:\n  a: {long_label_values: truncate}": "line 3: label_value_bytes: must be at least 23 with long_label_values: truncate",
		"defaults:\n  sampels_per_second: 1":                                              `line 2: unknown key "sampels_per_second"`,
		"defaults: {}\nlimits: {}":                                                        `line 2: unknown key "limits"`,
		"tenants:\n  a:\n    retention: 3d":                                               "line 3: unknown key \"retention\": retention is configured in --retention.file",
		"defaults: {}\ndefaults: {}":                                                      `line 2: "defaults" is already set in line 1`,
		"tenants:\n  a: {}\n  a: {}":                                                      `line 3: "a" is already set in line 2`,
		"defaults:\n  labels: 1\n  labels: 2":                                             `line 3: "labels" is already set in line 2`,
		"tenants:\n  a/b: {}":                                                             "line 2: invalid name",
		"tenants:\n  a|b: {}":                                                             "line 2: invalid name",
		"defaults:\n  labels: -1":                                                         "line 2: labels: ",
		"defaults:\n  labels: 1.5":                                                        "line 2: labels: ",
		"defaults:\n  labels: 1025":                                                       "at most 1024",
		"defaults:\n  label_name_bytes: 16385":                                            "at most 16384",
		"defaults:\n  queries: many":                                                      "must be a whole number",
		"defaults:\n  queries: [1]":                                                       "must be a single value",
		"defaults:\n  queries: NaN":                                                       "must be a whole number",
		"defaults:\n  active_series: 1e300":                                               "must be a whole number",
		"defaults:\n  request_bytes: -5":                                                  "must be a number of bytes",
		"defaults:\n  request_bytes: 1 elephant":                                          "must be a number of bytes",
		"defaults:\n  query_range: 5":                                                     "must be a duration",
		"defaults:\n  query_range: -5m":                                                   "must be a duration",
		"defaults: 5":                                                                     "line 1: must be a mapping of keys to values",
		"- a":                                                                             "line 1: must be a mapping of keys to values",
		"defaults: &x {}\ntenants: {a: *x}":                                               "aliases and keys that aren't strings are not supported",
		"defaults: {}\n---\ndefaults: {}":                                                 "more than one document",
		"defaults: {\n":                                                                   "line",
		"tenants:\n  " + strings.Repeat("x", 151) + ": {}":                                "invalid name",
	} {
		_, err := ParseLimits([]byte(text))
		require.ErrorIs(t, err, errBadLimits, text)
		require.ErrorContains(t, err, want, text)
	}
	_, err := ParseLimits(make([]byte, MaxLimitsFile+1))
	require.ErrorIs(t, err, errBadLimits)
}

func FuzzParseLimits(f *testing.F) {
	f.Add([]byte("defaults:\n  samples_per_second: 1e5\n  request_bytes: 16MiB\ntenants:\n  a: {query_range: 31d}\n"))
	f.Add([]byte("tenants: {a: {labels: 0x10}, b: ~}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		table, err := ParseLimits(text)
		if err != nil {
			require.ErrorIs(t, err, errBadLimits)
			return
		}
		limits := table.LimitsOf("a")
		for _, v := range limits.ByKey() {
			require.Positive(t, v)
		}
	})
}
