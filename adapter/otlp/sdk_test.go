package otlp

import (
	"context"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/trace"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/storagetest"
	"github.com/cassia-db/cassia/storage/tenant"
)

type server struct {
	*httptest.Server
	store *storage.Store
	// told is the metadata by family: type, unit, help.
	told map[string][3]string
}

func newServer(
	t testing.TB, rule func(faultengine.Op) faultengine.Action, change func(*Options), stored ...func(*storage.Options),
) *server {
	var eng engine.Engine = storagetest.Pebble(t)
	if rule != nil {
		eng = faultengine.Wrap(eng, rule)
	}
	store := storagetest.Open(t, eng, stored...)
	s := &server{store: store, told: map[string][3]string{}}
	opts := DefaultOptions()
	opts.Metadata = func(_, family, kind, unit, help string) { s.told[family] = [3]string{kind, unit, help} }
	if change != nil {
		change(&opts)
	}
	h, err := Handler(store, opts)
	require.NoError(t, err)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name := r.Header.Get(tenant.Header); name != "" {
			r = r.WithContext(tenant.NewContext(r.Context(), name))
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// series returns all series of a tenant by their labels.
func (s *server) series(t testing.TB, of string) map[string]chunk.Samples {
	found, err := s.store.Select(context.Background(), query.Query{
		Tenant: of, MinT: math.MinInt64 / 2, MaxT: math.MaxInt64 / 2,
		Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, ".+")},
	})
	require.NoError(t, err)
	out := map[string]chunk.Samples{}
	for _, one := range found {
		var samples chunk.Samples
		require.NoError(t, one.Samples(&samples))
		out[one.Labels.String()] = samples
	}
	return out
}

// exporter returns an SDK exporter that sends to the server.
func (s *server) exporter(t *testing.T, options ...otlpmetrichttp.Option) *otlpmetrichttp.Exporter {
	options = append([]otlpmetrichttp.Option{otlpmetrichttp.WithEndpointURL(s.URL + "/v1/metrics")}, options...)
	e, err := otlpmetrichttp.New(t.Context(), options...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = e.Shutdown(context.Background()) })
	return e
}

// recordMetrics collects the metrics of one instrument of each kind.
func recordMetrics(t *testing.T, options ...sdkmetric.Option) *metricdata.ResourceMetrics {
	reader := sdkmetric.NewManualReader()
	exponential := sdkmetric.NewView(sdkmetric.Instrument{Name: "exponential"},
		sdkmetric.Stream{Aggregation: sdkmetric.AggregationBase2ExponentialHistogram{MaxSize: 160, MaxScale: 20}})
	res := resource.NewSchemaless(
		attribute.String("service.name", "shop"), attribute.String("service.namespace", "web"),
		attribute.String("service.instance.id", "i-1"), attribute.String("cloud.region", "eu"),
	)
	provider := sdkmetric.NewMeterProvider(append([]sdkmetric.Option{
		sdkmetric.WithReader(reader), sdkmetric.WithView(exponential), sdkmetric.WithResource(res),
	}, options...)...)
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1, 2, 3}, SpanID: trace.SpanID{4, 5, 6}, TraceFlags: trace.FlagsSampled,
	}))
	m := provider.Meter("checkout")
	set := metric.WithAttributes(attribute.String("http.method", "GET"), attribute.Int("code", 200))

	counter, err := m.Int64Counter("orders", metric.WithDescription("Orders taken."))
	require.NoError(t, err)
	counter.Add(ctx, 3, set)
	upDown, err := m.Float64UpDownCounter("queue.length", metric.WithUnit("By"))
	require.NoError(t, err)
	upDown.Add(ctx, 7)
	upDown.Add(ctx, -2.5)
	gauge, err := m.Float64Gauge("temperature", metric.WithUnit("Cel"))
	require.NoError(t, err)
	gauge.Record(ctx, 21.5)
	for _, name := range []string{"explicit", "exponential"} {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription("Time taken."),
			metric.WithExplicitBucketBoundaries(0.1, 1, 10))
		require.NoError(t, err)
		for _, v := range []float64{0, 0.05, 0.3, 0.3, 2, 100} {
			h.Record(ctx, v, set)
		}
	}
	var out metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &out))
	require.NoError(t, provider.Shutdown(context.Background()))
	return &out
}

const sdkLabels = `, instance="i-1", job="web/shop"`

func TestSDK(t *testing.T) {
	s := newServer(t, nil, nil, nil)
	sent := recordMetrics(t)
	require.NoError(
		t, s.exporter(t, otlpmetrichttp.WithCompression(otlpmetrichttp.GzipCompression)).Export(t.Context(), sent),
	)
	got := s.series(t, tenant.Default)
	floats := map[string]float64{}
	for name, samples := range got {
		most := 1
		if strings.Contains(name, "target_info") {
			most = 2 // target_info, at the first and last point: the SDK reads its clock per instrument
		}
		require.True(t, samples.Len() >= 1 && samples.Len() <= most, "%s has %d samples", name, samples.Len())
		if len(samples.V) > 0 {
			floats[name] = samples.V[0]
		}
	}
	set := `, code="200", http_method="GET"` + sdkLabels
	require.Equal(t, map[string]float64{
		`{__name__="orders_total"` + set + `}`:                                        3,
		`{__name__="queue_length_bytes"` + sdkLabels + `}`:                            4.5,
		`{__name__="temperature_celsius"` + sdkLabels + `}`:                           21.5,
		`{__name__="explicit_seconds_sum"` + set + `}`:                                102.65,
		`{__name__="explicit_seconds_count"` + set + `}`:                              6,
		`{__name__="explicit_seconds_bucket"` + set + `, le="0.1"}`:                   2,
		`{__name__="explicit_seconds_bucket"` + set + `, le="1"}`:                     4,
		`{__name__="explicit_seconds_bucket"` + set + `, le="10"}`:                    5,
		`{__name__="explicit_seconds_bucket"` + set + `, le="+Inf"}`:                  6,
		`{__name__="target_info", cloud_region="eu", instance="i-1", job="web/shop"}`: 1,
	}, floats)
	native := got[`{__name__="exponential_seconds"`+set+`}`]
	require.Len(t, native.H, 1)
	h := native.H[0].Int
	require.EqualValues(t, 6, h.Count)
	require.EqualValues(t, 1, h.ZeroCount)
	require.Equal(t, 102.65, h.Sum)
	require.Len(t, h.PositiveBuckets, 4, "0.05, 0.3, 2, 100 are too far apart to share a bucket")
	require.Equal(t, map[string][3]string{
		"orders_total":        {"counter", "", "Orders taken."},
		"queue_length_bytes":  {"gauge", "bytes", ""},
		"temperature_celsius": {"gauge", "celsius", ""},
		"explicit_seconds":    {"histogram", "seconds", "Time taken."},
		"exponential_seconds": {"histogram", "seconds", "Time taken."},
		"target_info":         {"gauge", "", "Target metadata"},
	}, s.told)

	// A second identical request adds no samples.
	require.NoError(t, s.exporter(t).Export(t.Context(), sent))
	require.Equal(t, len(got), len(s.series(t, tenant.Default)))
	for name, samples := range s.series(t, tenant.Default) {
		before := got[name]
		require.Equal(t, before.Len(), samples.Len(), name)
	}
}

func TestTenant(t *testing.T) {
	s := newServer(t, nil, nil, nil)
	export := s.exporter(t, otlpmetrichttp.WithHeaders(map[string]string{tenant.Header: "a"})).Export
	require.NoError(t, export(t.Context(), recordMetrics(t)))
	require.NotEmpty(t, s.series(t, "a"))
	require.Empty(t, s.series(t, tenant.Default))
}

// The SDK retries an export after the store returned an error for the first attempt.
func TestSDKTriesAgain(t *testing.T) {
	failing := true
	s := newServer(t, func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Write && op.Table == engine.Stage && failing {
			failing = false
			return faultengine.Fail(engine.ErrUnavailable)
		}
		return faultengine.Pass()
	}, nil, nil)
	retry := otlpmetrichttp.RetryConfig{
		Enabled: true, InitialInterval: time.Millisecond, MaxInterval: time.Second, MaxElapsedTime: time.Minute,
	}
	require.NoError(t, s.exporter(t, otlpmetrichttp.WithRetry(retry)).Export(t.Context(), recordMetrics(t)))
	require.False(t, failing)
	require.NotEmpty(t, s.series(t, tenant.Default))
}
