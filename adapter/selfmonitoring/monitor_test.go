package selfmonitoring

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/storagetest"
	"github.com/cassia-db/cassia/storage/tenant"
)

var testNow = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// rig is a monitor over a real store.
type rig struct {
	*Monitor
	t        *testing.T
	store    *storage.Store
	limiter  *tenant.Limiter
	registry *prometheus.Registry
	log      bytes.Buffer
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, registry: prometheus.NewRegistry()}
	r.limiter = tenant.NewLimiter(func() time.Time { return testNow }, nil)
	r.store = storagetest.Open(t, memory.New(), storagetest.FixedClock(testNow), func(o *storage.Options) {
		o.Limiter = r.limiter
	})
	o := DefaultOptions()
	o.Instance, o.Gatherer, o.Logger = "host:9201", r.registry, slog.New(slog.NewTextHandler(&r.log, nil))
	o.Metadata = r.store.QueueMetadata
	r.Monitor = New(r.store, o)
	return r
}

// stored returns the samples of the monitor's tenant as text, by series, without the metrics of the monitor's own
// durations.
func (r *rig) stored() map[string]string {
	found, err := r.store.Select(r.t.Context(), query.Query{
		Tenant: Tenant, MinT: math.MinInt64 / 2, MaxT: math.MaxInt64 / 2,
		Matchers: []*labels.Matcher{
			labels.MustNewMatcher(labels.MatchNotEqual, labels.MetricName, "scrape_duration_seconds"),
		},
	})
	require.NoError(r.t, err)
	out := map[string]string{}
	for _, one := range found {
		require.Equal(r.t, job, one.Labels.Get("job"))
		require.Equal(r.t, "host:9201", one.Labels.Get("instance"))
		var samples chunk.Samples
		require.NoError(r.t, one.Samples(&samples))
		text := ""
		for i, at := range samples.T {
			v := fmt.Sprint(samples.V[i])
			if value.IsStaleNaN(samples.V[i]) {
				v = "stale"
			}
			text += fmt.Sprintf("%s@%d ", v, (at-testNow.UnixMilli())/1000)
		}
		out[labels.NewBuilder(one.Labels).Del("job", "instance").Labels().String()] = strings.TrimSpace(text)
	}
	return out
}

func (r *rig) round(second int) {
	r.RunRound(r.t.Context(), testNow.Add(time.Duration(second-60)*time.Second))
}

func (r *rig) skipped() float64 {
	return testutil.ToFloat64(r.metrics.rounds.WithLabelValues(roundSkipped))
}

func TestAllKindsOfMetrics(t *testing.T) {
	r := newRig(t)
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "c_total", Help: "Counts."})
	gauges := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "g"}, []string{"job", "part"})
	both := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "h", Buckets: []float64{1, 2.5}, NativeHistogramBucketFactor: 1.1,
	})
	summary := prometheus.NewSummary(prometheus.SummaryOpts{Name: "s", Objectives: map[float64]float64{0.5: 0.1}})
	r.registry.MustRegister(counter, gauges, both, summary)
	counter.Add(3)
	gauges.WithLabelValues("compaction", "a").Set(-0.5)
	both.Observe(2)
	summary.Observe(7)
	r.round(0)
	counter.Inc()
	r.round(15)
	require.Equal(t, map[string]string{
		`{__name__="c_total"}`:                                "3@-60 4@-45",
		`{__name__="g", exported_job="compaction", part="a"}`: "-0.5@-60 -0.5@-45",
		`{__name__="h_bucket", le="1.0"}`:                     "0@-60 0@-45",
		`{__name__="h_bucket", le="2.5"}`:                     "1@-60 1@-45",
		`{__name__="h_bucket", le="+Inf"}`:                    "1@-60 1@-45",
		`{__name__="h_count"}`:                                "1@-60 1@-45",
		`{__name__="h_sum"}`:                                  "2@-60 2@-45",
		`{__name__="s", quantile="0.5"}`:                      "7@-60 7@-45",
		`{__name__="s_count"}`:                                "1@-60 1@-45",
		`{__name__="s_sum"}`:                                  "7@-60 7@-45",
		`{__name__="up"}`:                                     "1@-60 1@-45",
		`{__name__="scrape_samples_scraped"}`:                 "10@-60 10@-45",
	}, r.stored())
	require.Eventually(t, func() bool { // metadata is written asynchronously
		found, err := r.store.Metadata(t.Context(), Tenant, "c_total", 0)
		require.NoError(t, err)
		return len(found) == 1 && found["c_total"][0] == format.Metadata{Type: "counter", Help: "Counts."}
	}, time.Minute, 10*time.Millisecond)
	require.Equal(t, 26.0, testutil.ToFloat64(r.metrics.samples), "two rounds of 10 samples, and three of their own")
}

func TestSeriesThatGoEnd(t *testing.T) {
	r := newRig(t)
	gauges := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "g"}, []string{"part"})
	r.registry.MustRegister(gauges)
	gauges.WithLabelValues("a").Set(1)
	gauges.WithLabelValues("b").Set(2)
	r.round(0)
	gauges.DeleteLabelValues("a")
	r.round(15)
	r.round(30)
	stored := r.stored()
	require.Equal(t, "1@-60 stale@-45", stored[`{__name__="g", part="a"}`])
	require.Equal(t, "2@-60 2@-45 2@-30", stored[`{__name__="g", part="b"}`])
}

// failingGatherer is a Gatherer that fails while err is set.
type failingGatherer struct {
	prometheus.Gatherer
	err error
}

func (f *failingGatherer) Gather() ([]*dto.MetricFamily, error) {
	if f.err != nil {
		return nil, f.err
	}
	return f.Gatherer.Gather()
}

func TestMetricsThatCantBeGathered(t *testing.T) {
	for name, breaking := range map[string]func(*rig, *failingGatherer) (mend func()){
		"an error": func(_ *rig, b *failingGatherer) func() {
			b.err = errors.New("two of one name")
			return func() { b.err = nil }
		},
		"too many": func(r *rig, _ *failingGatherer) func() {
			r.o.MaxSamples = 1
			return func() { r.o.MaxSamples = 2 }
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			gatherer := &failingGatherer{Gatherer: r.registry}
			r.o.Gatherer = gatherer
			for _, name := range []string{"a", "b"} {
				r.registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: name}))
			}
			r.round(0)
			mend := breaking(r, gatherer)
			r.round(15)
			mend()
			r.round(30)
			require.Equal(t, map[string]string{
				`{__name__="a"}`: "0@-60 stale@-45 0@-30", `{__name__="b"}`: "0@-60 stale@-45 0@-30",
				`{__name__="up"}`: "1@-60 0@-45 1@-30", `{__name__="scrape_samples_scraped"}`: "2@-60 0@-45 2@-30",
			}, r.stored())
			require.Contains(t, r.log.String(), "can't gather Cassia's own metrics")
			require.Zero(t, r.skipped(), "the store took what there was")
		})
	}
}

func TestWhatTheStoreRefusesIsGivenUp(t *testing.T) {
	r := newRig(t)
	gauges := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "g"}, []string{"part"})
	r.registry.MustRegister(gauges)
	gauges.WithLabelValues("a").Set(1)
	r.round(0)

	limit := func(text string) {
		table, err := tenant.ParseLimits([]byte(text))
		require.NoError(t, err)
		r.limiter.Set(table)
	}
	limit("tenants: {" + Tenant + ": {samples_per_second: 1, samples_burst: 1}}")
	r.round(15)
	r.round(30)
	require.Equal(t, 2.0, r.skipped())
	require.Equal(t, 1, strings.Count(r.log.String(), "can't store Cassia's own metrics"),
		"the first of several is logged")

	limit("tenants: {" + Tenant + ": {active_series: 4}}")
	gauges.WithLabelValues("b").Set(2)
	r.round(45)
	require.Equal(t, map[string]string{
		`{__name__="g", part="a"}`: "1@-60 1@-15", `{__name__="up"}`: "1@-60 1@-15",
		`{__name__="scrape_samples_scraped"}`: "1@-60 2@-15",
	}, r.stored(), "what the tenant has goes on")
	require.Equal(t, 1.0, testutil.ToFloat64(r.metrics.rejected), "the new series")
	require.Equal(t, 2.0, r.skipped())
}

// timesBatch is a batch that records the times of its samples.
type timesBatch struct {
	adapter.Batch
	series *storage.Series
	at     *[]time.Time
}

func (b timesBatch) Lookup([]byte) (*storage.Series, bool)                 { return b.series, true }
func (b timesBatch) Exemplar(*storage.Series, exemplar.Exemplar) error     { return nil }
func (b timesBatch) Commit(context.Context) error                          { return nil }
func (b timesBatch) Release()                                              {}
func (b timesBatch) Define([]byte, labels.Labels) (*storage.Series, error) { return b.series, nil }
func (b timesBatch) Histogram(*storage.Series, int64, int64, *histogram.Histogram, *histogram.FloatHistogram) error {
	return nil
}

func (b timesBatch) Float(_ *storage.Series, t, _ int64, _ float64) error {
	if at := time.UnixMilli(t).UTC(); len(*b.at) == 0 || !(*b.at)[len(*b.at)-1].Equal(at) {
		*b.at = append(*b.at, at)
	}
	return nil
}

func TestRoundsAreAtMultiplesOfTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now().Truncate(time.Minute).UTC()
		time.Sleep(4 * time.Second)
		o := DefaultOptions()
		o.Gatherer, o.Logger = prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
		m := New(nil, o)
		var at []time.Time
		m.newBatch = func(string) adapter.Batch { return timesBatch{series: &storage.Series{}, at: &at} }
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { m.Run(ctx); close(ended) }()
		time.Sleep(30 * time.Second)
		cancel()
		<-ended
		for i, after := range []time.Duration{4, 15, 30} {
			require.Equal(t, begin.Add(after*time.Second), at[i])
		}
		require.Len(t, at, 3)
	})
}
