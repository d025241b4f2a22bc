package interop

import (
	"fmt"
	"math"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang/snappy"
	remoteapi "github.com/prometheus/client_golang/exp/api/remote"
	configutil "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter/remotewrite"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/storagetest"
	"github.com/cassia-db/cassia/storage/tenant"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// receiver is Cassia's handler on a real store, served over HTTP.
type receiver struct {
	url   string
	store *storage.Store
}

func newReceiver(
	t *testing.T, rule func(faultengine.Op) faultengine.Action, change ...func(*storage.Options),
) *receiver {
	store := storagetest.Open(
		t, faultengine.Wrap(storagetest.Pebble(t), rule), append(change, storagetest.FixedClock(now))...,
	)
	h, err := remotewrite.Handler(store, remotewrite.DefaultOptions())
	require.NoError(t, err)
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return &receiver{url: srv.URL, store: store}
}

func injectNoFault(faultengine.Op) faultengine.Action { return faultengine.Pass() }

// stored returns the store's samples as lines that compare bit by bit.
func (r *receiver) stored(t *testing.T) (lines []string) {
	found, err := r.store.Select(t.Context(), query.Query{
		Tenant: tenant.Default, MinT: math.MinInt64, MaxT: math.MaxInt64,
		Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, ".+")},
	})
	require.NoError(t, err)
	for _, series := range found {
		var s chunk.Samples
		require.NoError(t, series.Samples(&s))
		for i, at := range s.T {
			lines = append(lines, floatLine(series.Labels, at, s.V[i]))
		}
		for _, h := range s.H {
			lines = append(lines, histogramLine(t, series.Labels, h))
		}
	}
	slices.Sort(lines)
	return lines
}

func floatLine(ls labels.Labels, t int64, v float64) string {
	return fmt.Sprintf("%s %d %016x", ls, t, math.Float64bits(v))
}

func histogramLine(t *testing.T, ls labels.Labels, h chunk.Histogram) string {
	c, err := chunk.CanonicalHistogram(h)
	require.NoError(t, err)
	return fmt.Sprintf("%s %x", ls, chunk.AppendHistogramBytes(nil, c))
}

// series is a series as a sender holds it.
type series struct {
	labels     labels.Labels
	floats     []prompb.Sample
	histograms []chunk.Histogram
	exemplars  []exemplar.Exemplar
}

// testSeries returns recent samples of every kind.
func testSeries() []series {
	at := now.UnixMilli()
	native := &histogram.Histogram{
		CounterResetHint: histogram.CounterReset, Schema: 3, ZeroThreshold: 1e-9, ZeroCount: 2, Count: 8, Sum: 18.4,
		PositiveSpans:   []histogram.Span{{Offset: -2, Length: 2}, {Offset: 1, Length: 2}},
		PositiveBuckets: []int64{1, 1, -1, 1},
	}
	custom := &histogram.Histogram{
		Schema: histogram.CustomBucketsSchema, Count: 6, Sum: -3, CustomValues: []float64{-1, 0, 10},
		PositiveSpans: []histogram.Span{{Offset: 0, Length: 4}}, PositiveBuckets: []int64{1, 0, 1, 0},
	}
	gauge := &histogram.FloatHistogram{
		CounterResetHint: histogram.GaugeType, Schema: -4, ZeroThreshold: .5, ZeroCount: .25, Count: 1e30,
		Sum: math.Inf(1), PositiveSpans: []histogram.Span{{Offset: 5, Length: 1}}, PositiveBuckets: []float64{1.5},
	}
	return []series{
		{labels: labels.FromStrings("__name__", "a", "instance", "x:1"), floats: []prompb.Sample{
			{Timestamp: at - 2000, Value: 1.5}, {Timestamp: at - 1000, Value: math.Float64frombits(value.StaleNaN)},
			{Timestamp: at, Value: math.Inf(1)},
		}},
		{
			labels: labels.FromStrings("__name__", "ünicode", "k.ey", "välue \n\""),
			floats: []prompb.Sample{{Timestamp: at}},
		},
		{labels: labels.FromStrings("__name__", "h"), histograms: []chunk.Histogram{
			{T: at - 2, Int: native}, {T: at - 1, Int: custom}, {T: at, Float: gauge},
		}},
	}
}

func linesOf(t *testing.T, all []series) (lines []string) {
	for _, s := range all {
		for _, f := range s.floats {
			lines = append(lines, floatLine(s.labels, f.Timestamp, f.Value))
		}
		for _, h := range s.histograms {
			lines = append(lines, histogramLine(t, s.labels, h))
		}
	}
	slices.Sort(lines)
	return lines
}

func requestV1(all []series) *prompb.WriteRequest {
	req := &prompb.WriteRequest{}
	for _, s := range all {
		ts := prompb.TimeSeries{Labels: prompb.FromLabels(s.labels, nil), Samples: s.floats}
		for _, h := range s.histograms {
			if h.Int != nil {
				ts.Histograms = append(ts.Histograms, prompb.FromIntHistogram(h.T, h.Int))
			} else {
				ts.Histograms = append(ts.Histograms, prompb.FromFloatHistogram(h.T, h.Float))
			}
		}
		for _, e := range s.exemplars {
			ts.Exemplars = append(ts.Exemplars, prompb.Exemplar{
				Labels: prompb.FromLabels(e.Labels, nil), Value: e.Value, Timestamp: e.Ts,
			})
		}
		req.Timeseries = append(req.Timeseries, ts)
	}
	return req
}

func requestV2(all []series) *writev2.Request {
	symbols, req := writev2.NewSymbolTable(), &writev2.Request{}
	for _, s := range all {
		ts := writev2.TimeSeries{LabelsRefs: symbols.SymbolizeLabels(s.labels, nil)}
		for _, f := range s.floats {
			ts.Samples = append(ts.Samples, writev2.Sample{Timestamp: f.Timestamp, Value: f.Value})
		}
		for _, h := range s.histograms {
			if h.Int != nil {
				ts.Histograms = append(ts.Histograms, writev2.FromIntHistogram(0, h.T, h.Int))
			} else {
				ts.Histograms = append(ts.Histograms, writev2.FromFloatHistogram(0, h.T, h.Float))
			}
		}
		for _, e := range s.exemplars {
			ts.Exemplars = append(ts.Exemplars, writev2.Exemplar{
				LabelsRefs: symbols.SymbolizeLabels(e.Labels, nil), Value: e.Value, Timestamp: e.Ts,
			})
		}
		req.Timeseries = append(req.Timeseries, ts)
	}
	req.Symbols = symbols.Symbols()
	return req
}

// encode returns the body of a request as Prometheus' queues encode it.
func encode(t *testing.T, message remoteapi.WriteMessageType, all []series) []byte {
	var body []byte
	var err error
	if message == remoteapi.WriteV2MessageType {
		body, err = requestV2(all).OptimizedMarshal(nil)
	} else {
		body, err = requestV1(all).Marshal()
	}
	require.NoError(t, err)
	return snappy.Encode(nil, body)
}

// TestPrometheusSender checks that the client that Prometheus' queues use understands all responses, and that a retry
// changes nothing.
func TestPrometheusSender(t *testing.T) {
	for _, message := range []remoteapi.WriteMessageType{remoteapi.WriteV1MessageType, remoteapi.WriteV2MessageType} {
		t.Run(string(message), func(t *testing.T) {
			r := newReceiver(t, injectNoFault, storagetest.RejectAhead)
			u, err := url.Parse(r.url)
			require.NoError(t, err)
			client, err := remote.NewWriteClient("cassia", &remote.ClientConfig{
				URL: &configutil.URL{URL: u}, Timeout: model.Duration(time.Minute), WriteProtoMsg: message,
			})
			require.NoError(t, err)

			all := testSeries()
			stats, err := client.Store(t.Context(), encode(t, message, all), 0)
			require.NoError(t, err)
			if message == remoteapi.WriteV2MessageType {
				require.Equal(t, remote.WriteResponseStats{Samples: 4, Histograms: 3, Confirmed: true}, stats)
			} else {
				require.False(t, stats.Confirmed, "headers of 2.0 would confuse a sender of 1.0")
			}
			require.Equal(t, linesOf(t, all), r.stored(t))

			_, err = client.Store(t.Context(), encode(t, message, all), 1)
			require.NoError(t, err)
			require.Equal(t, linesOf(t, all), r.stored(t), "a retry changes nothing")

			all[0].floats[0].Timestamp = now.Add(time.Hour).UnixMilli()
			stats, err = client.Store(t.Context(), encode(t, message, all), 0)
			require.ErrorContains(t, err,
				"400 Bad Request: 1 of 7 samples rejected: too_far_ahead (1 sample), such as: ")
			var again remote.RecoverableError
			require.NotErrorAs(t, err, &again, "it is no use to try again")
			if message == remoteapi.WriteV2MessageType {
				require.Equal(t, remote.WriteResponseStats{Samples: 3, Histograms: 3, Confirmed: true}, stats)
			}
		})
	}
}

// TestGoClientSender checks that client_golang's client retries if the engine fails, and that all samples are then
// stored.
func TestGoClientSender(t *testing.T) {
	var failures atomic.Int64
	failures.Store(2)
	r := newReceiver(t, func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Write && op.Table == engine.Stage && failures.Add(-1) >= 0 {
			return faultengine.Fail(nil)
		}
		return faultengine.Pass()
	})
	api, err := remoteapi.NewAPI(
		r.url, remoteapi.WithAPIBackoff(remoteapi.BackoffConfig{Min: 1, Max: 1, MaxRetries: 5}),
	)
	require.NoError(t, err)
	retries := 0
	stats, err := api.Write(t.Context(), remoteapi.WriteV2MessageType, requestV2(testSeries()),
		remoteapi.WithWriteRetryCallback(func(err error) {
			retries++
			require.ErrorContains(t, err, "503")
		}))
	require.NoError(t, err)
	require.NotZero(t, retries)
	require.Equal(t, []int{4, 3, 0}, []int{stats.Samples, stats.Histograms, stats.Exemplars})
	require.Equal(t, linesOf(t, testSeries()), r.stored(t))

	_, err = api.Write(t.Context(), remoteapi.WriteV1MessageType, requestV1(testSeries()))
	require.NoError(t, err)
}

// TestExemplarSender checks that exemplars in series without samples, as Prometheus' queue sends them, are accepted
// from the client of Prometheus and from client_golang's.
func TestExemplarSender(t *testing.T) {
	trace := func(id string) []labels.Label { return []labels.Label{{Name: "trace_id", Value: id}} }
	at := now.UnixMilli()
	all := []series{
		{labels: labels.FromStrings("__name__", "a"), floats: []prompb.Sample{{Timestamp: at, Value: 1}}},
		{labels: labels.FromStrings("__name__", "a"), exemplars: []exemplar.Exemplar{
			{Labels: labels.New(trace("1")...), Value: 0.5, Ts: at - 1, HasTs: true},
			{Labels: labels.New(trace("2")...), Value: 1.5, Ts: at, HasTs: true},
		}},
	}
	for _, message := range []remoteapi.WriteMessageType{remoteapi.WriteV1MessageType, remoteapi.WriteV2MessageType} {
		r := newReceiver(t, injectNoFault)
		u, err := url.Parse(r.url)
		require.NoError(t, err)
		client, err := remote.NewWriteClient("cassia", &remote.ClientConfig{
			URL: &configutil.URL{URL: u}, Timeout: model.Duration(time.Minute), WriteProtoMsg: message,
		})
		require.NoError(t, err)
		stats, err := client.Store(t.Context(), encode(t, message, all), 0)
		require.NoError(t, err)
		if message == remoteapi.WriteV2MessageType {
			require.Equal(t, remote.WriteResponseStats{Samples: 1, Exemplars: 2, Confirmed: true}, stats)
		}
		found, err := r.store.Exemplars(t.Context(), tenant.Default, at-1, at,
			[]*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, "a")})
		require.NoError(t, err)
		require.Equal(t, []exemplar.QueryResult{{SeriesLabels: all[1].labels, Exemplars: all[1].exemplars}}, found)
	}
	r := newReceiver(t, injectNoFault)
	api, err := remoteapi.NewAPI(r.url)
	require.NoError(t, err)
	stats, err := api.Write(t.Context(), remoteapi.WriteV2MessageType, requestV2(all))
	require.NoError(t, err)
	require.Equal(t, 2, stats.Exemplars)
}
