package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	otelmetric "go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/trace"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
	"github.com/cassia-db/cassia/storage/tenant"
)

// relayed is the tenant of Cassia to which the Prometheus in these tests forwards the samples that it receives.
const relayed = "relayed"

// TestOTLPAsPrometheus sends measurements of OpenTelemetry's SDK to Cassia and to a real Prometheus. Both must return
// the same results. This Prometheus also forwards all samples to another tenant of Cassia, whose results must be the
// same as those of the samples received directly.
func TestOTLPAsPrometheus(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three Prometheus: leave -short out")
	}
	for name, c := range map[string]struct {
		flags  []string
		config string
	}{
		"as it is": {nil, ""},
		"translated": {
			[]string{
				"--otlp.translation-strategy=NoUTF8EscapingWithSuffixes",
				"--otlp.promote-resource-attribute=cloud.region", "--otlp.keep-identifying-resource-attributes",
				"--otlp.convert-histograms-to-nhcb", "--otlp.promote-scope-metadata",
			},
			"otlp:\n  translation_strategy: NoUTF8EscapingWithSuffixes\n  promote_resource_attributes: [cloud.region]\n" +
				"  keep_identifying_resource_attributes: true\n  convert_histograms_to_nhcb: true\n  " +
				"promote_scope_metadata: true\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			cassia := startServe(t, append([]string{"--storage.path=" + t.TempDir()}, c.flags...)...)
			require.Eventually(t, func() bool { code, _ := cassia.Get(t, "/-/ready"); return code == http.StatusOK },
				cassiatest.Patience, 5*time.Millisecond)
			config := c.config + "remote_write:\n  - url: " + cassia.URL + "/api/v1/write\n    headers: {" +
				tenant.Header + ": " + relayed + "}\n" +
				"    protobuf_message: io.prometheus.write.v2.Request\n    send_exemplars: true\n    " +
				"send_native_histograms: true\n    queue_config: {batch_send_deadline: 50ms}\n"
			prometheus := startPrometheus(t.Context(), t, cassiatest.FreeAddress(t), config,
				"--web.enable-otlp-receiver", "--enable-feature=exemplar-storage", "--log.level=info")
			// Prometheus forwards only samples that are appended after it has started to read its log, and it reports
			// ready before that.
			require.Eventually(t, func() bool {
				log, err := os.ReadFile(prometheus.Log)
				return err == nil && bytes.Contains(log, []byte(`"Replaying WAL"`))
			}, cassiatest.Patience, 5*time.Millisecond)

			before := time.Now()
			sent := measure(t)
			export(t, cassia.URL, sent)
			export(t, prometheus.URL(), sent)
			compareOTLP(t, cassia, prometheus.URL(), before, time.Now())
			if len(c.flags) == 0 {
				compareTypes(t, cassia, sent)
			}
		})
	}
}

// measure uses one instrument of each kind, and collects twice.
func measure(t *testing.T) []*metricdata.ResourceMetrics {
	reader := sdkmetric.NewManualReader()
	exponential := sdkmetric.NewView(sdkmetric.Instrument{Name: "exponential"},
		sdkmetric.Stream{Aggregation: sdkmetric.AggregationBase2ExponentialHistogram{MaxSize: 160, MaxScale: 20}})
	provider := sdkmetric.NewMeterProvider(
		sdkmetric.WithReader(reader), sdkmetric.WithView(exponential), sdkmetric.WithResource(
			resource.NewSchemaless(attribute.String("service.name", "shop"),
				attribute.String("service.instance.id", "i-1"), attribute.String("cloud.region", "eu"))),
	)
	defer func() { require.NoError(t, provider.Shutdown(context.Background())) }()
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		// A sampled span is required for exemplars.
		TraceID: trace.TraceID{1, 2, 3}, SpanID: trace.SpanID{4, 5, 6}, TraceFlags: trace.FlagsSampled,
	}))
	m := provider.Meter("checkout", otelmetric.WithInstrumentationVersion("1.2"))
	set := otelmetric.WithAttributes(
		attribute.String("http.method", "GET"), attribute.Int("code", 200), attribute.Bool("_private", true),
	)
	counter, err := m.Int64Counter("orders", otelmetric.WithDescription("Orders taken."))
	require.NoError(t, err)
	upDown, err := m.Float64UpDownCounter("queue.length", otelmetric.WithUnit("By"))
	require.NoError(t, err)
	gauge, err := m.Float64Gauge("temperature", otelmetric.WithUnit("Cel"))
	require.NoError(t, err)
	explicit, err := m.Float64Histogram("explicit", otelmetric.WithUnit("s"), otelmetric.WithDescription("Time taken."),
		otelmetric.WithExplicitBucketBoundaries(0.1, 1, 10))
	require.NoError(t, err)
	native, err := m.Int64Histogram("exponential", otelmetric.WithUnit("{pieces}/min"))
	require.NoError(t, err)
	_, err = m.Int64ObservableCounter(
		"observed", otelmetric.WithInt64Callback(func(_ context.Context, o otelmetric.Int64Observer) error {
			o.Observe(7)
			return nil
		}),
	)
	require.NoError(t, err)
	var out []*metricdata.ResourceMetrics
	for round := range 2 {
		counter.Add(ctx, 3, set)
		upDown.Add(ctx, 7.25)
		upDown.Add(ctx, -2, set)
		gauge.Record(ctx, 21.5)
		for _, v := range []float64{0, 0.05, 0.3, 0.3, 2, 100} {
			explicit.Record(ctx, v, set)
			native.Record(ctx, int64(v*float64(10+round)))
		}
		one := &metricdata.ResourceMetrics{}
		// Prometheus accepts one value per millisecond.
		for began := time.Now().UnixMilli(); time.Now().UnixMilli() == began; {
			runtime.Gosched()
		}
		require.NoError(t, reader.Collect(t.Context(), one))
		out = append(out, one)
	}
	return out
}

// otlpQueries contains the queries whose results must be identical in every digit.
var otlpQueries = []string{
	`{__name__=~".+"}[5m]`, `{__name__=~".+"}`, `histogram_quantile(0.9, exponential{})`,
	`count by (__name__) ({job="shop"})`, `{__name__=~"orders.*"} * on (job, instance) group_left target_info`,
}

func compareOTLP(t *testing.T, cassia running, prometheus string, before, end time.Time) {
	ctx := t.Context()
	want, got := promrig.API{URL: prometheus}, promrig.API{URL: cassia.URL}
	for _, query := range otlpQueries {
		p, err := want.Query(ctx, query, end)
		require.NoError(t, err)
		c, err := got.Query(ctx, query, end)
		require.NoError(t, err)
		require.Empty(t, p.Difference(c), query)
	}
	all, err := got.Query(ctx, `{__name__=~".+"}[5m]`, end)
	require.NoError(t, err)
	require.Greater(t, all.Points(), 14)

	values := url.Values{
		"query": {`{__name__=~".+"}`}, "start": {before.Add(-time.Minute).Format(time.RFC3339)},
		"end": {end.Add(time.Minute).Format(time.RFC3339)},
	}
	exemplars := func(url, tenant string) any { return ask(t, url+"/api/v1/query_exemplars?"+values.Encode(), tenant) }
	require.Greater(t, len(exemplars(prometheus, "").([]any)), 2)
	require.Equal(t, exemplars(prometheus, ""), exemplars(cassia.URL, tenant.Default))

	// Samples forwarded by Prometheus arrive a little later.
	direct, err := got.Query(ctx, otlpQueries[0], end)
	require.NoError(t, err)
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		arrived, err := promrig.API{URL: cassia.URL + "/t/" + relayed}.Query(ctx, otlpQueries[0], end)
		if assert.NoError(t, err) {
			assert.Empty(t, direct.Difference(arrived))
		}
	}, cassiatest.Patience, 50*time.Millisecond)
}

// compareTypes compares Cassia's metadata of the metrics with the types and units that a real Prometheus received with
// OTLP. This Prometheus is configured to store types and units as labels, so that a query returns them.
func compareTypes(t *testing.T, cassia running, sent []*metricdata.ResourceMetrics) {
	prometheus := startPrometheus(t.Context(), t, cassiatest.FreeAddress(t), "", "--web.enable-otlp-receiver",
		"--enable-feature=type-and-unit-labels")
	export(t, prometheus.URL(), sent)
	values := url.Values{"match[]": {`{__name__=~".+"}`}}
	series := ask(t, prometheus.URL()+"/api/v1/series?"+values.Encode(), "").([]any)
	var told map[string]any
	require.Eventually(t, func() bool {
		told = ask(t, cassia.URL+"/api/v1/metadata", tenant.Default).(map[string]any)
		return len(told) == 7 // six instruments and target_info
	}, cassiatest.Patience, 50*time.Millisecond)
	compared := map[string]bool{}
	for _, one := range series {
		ls := one.(map[string]any)
		family := ls["__name__"].(string)
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			if whole, ok := strings.CutSuffix(family, suffix); ok && told[whole] != nil {
				family = whole
			}
		}
		if family == "target_info" {
			continue // Its series get no such labels.
		}
		require.Len(t, told[family], 1, family)
		of := told[family].([]any)[0].(map[string]any)
		unit, _ := ls["__unit__"].(string)
		require.Equal(t, [2]any{ls["__type__"], unit}, [2]any{of["type"], of["unit"]}, family)
		compared[family] = true
	}
	require.Len(t, compared, 6)
}

func export(t *testing.T, url string, sent []*metricdata.ResourceMetrics) {
	e, err := otlpmetrichttp.New(t.Context(), otlpmetrichttp.WithEndpointURL(url+"/api/v1/otlp/v1/metrics"))
	require.NoError(t, err)
	for _, one := range sent {
		require.NoError(t, e.Export(t.Context(), one))
	}
	require.NoError(t, e.Shutdown(context.Background()))
}

// ask returns the data field of an API response.
func ask(t *testing.T, url, of string) any {
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	if of != "" {
		q.Header.Set(tenant.Header, of)
	}
	answer, err := http.DefaultClient.Do(q)
	require.NoError(t, err)
	defer answer.Body.Close()
	var body struct {
		Status string `json:"status"`
		Data   any    `json:"data"`
	}
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&body))
	require.Equal(t, "success", body.Status, url)
	return body.Data
}
