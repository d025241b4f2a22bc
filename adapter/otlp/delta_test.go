package otlp

import (
	"math"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/value"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/starts"
	"github.com/cassia-db/cassia/storage/storagetest"
	"github.com/cassia-db/cassia/storage/tenant"
)

// deltaSum appends a data point of a sum with delta temporality.
func deltaSum(md pmetric.Metrics, name string, monotonic bool, start, end time.Time, v int64) pmetric.NumberDataPoint {
	sum := addMetric(md, name).SetEmptySum()
	sum.SetIsMonotonic(monotonic)
	sum.SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
	p := sum.DataPoints().AppendEmpty()
	p.SetTimestamp(timestampOf(end))
	p.SetStartTimestamp(timestampOf(start))
	p.SetIntValue(v)
	return p
}

// TestDeltas checks that deltas are stored with the first millisecond of their intervals as start timestamp, and under
// the names and types of cumulative metrics.
func TestDeltas(t *testing.T) {
	s := newServer(t, nil, nil, nil)
	end := time.Now().Truncate(time.Second)
	start, first := end.Add(-time.Minute), end.Add(-time.Minute).UnixMilli()+1
	require.Equal(t, starts.Never, s.store.StartsFrom(tenant.Default))
	md := pmetric.NewMetrics()
	deltaSum(md, "orders", true, start, end, 5)
	deltaSum(md, "stock", false, start, end, -3)
	deltaSum(md, "short", true, end.Add(time.Microsecond), end.Add(2*time.Microsecond), 1)
	deltaSum(md, "gone", true, time.Unix(0, 0), end, 0).SetFlags(
		pmetric.DefaultDataPointFlags.WithNoRecordedValue(true),
	)
	explicit := addMetric(md, "explicit").SetEmptyHistogram()
	explicit.SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
	p := explicit.DataPoints().AppendEmpty()
	p.SetTimestamp(timestampOf(end))
	p.SetStartTimestamp(timestampOf(start))
	p.SetCount(3)
	p.SetSum(7)
	p.ExplicitBounds().FromRaw([]float64{1})
	p.BucketCounts().FromRaw([]uint64{1, 2})
	exponential := addMetric(md, "exponential").SetEmptyExponentialHistogram()
	exponential.SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
	e := exponential.DataPoints().AppendEmpty()
	e.SetTimestamp(timestampOf(end))
	e.SetStartTimestamp(timestampOf(start))
	e.SetCount(2)
	e.SetSum(3)
	e.Positive().BucketCounts().FromRaw([]uint64{1, 1})

	got := s.post(t, encodingProtobuf, encode(t, md, encodingProtobuf))
	require.Equal(t, reply{code: http.StatusOK, header: got.header}, got)
	stored := s.series(t, tenant.Default)
	for name, want := range map[string]chunk.Samples{
		`orders_total`: {T: []int64{end.UnixMilli()}, ST: []int64{first}, V: []float64{5}},
		`stock`:        {T: []int64{end.UnixMilli()}, ST: []int64{first}, V: []float64{-3}},
		`short_total`:  {T: []int64{end.UnixMilli()}, ST: []int64{end.UnixMilli() - 1}, V: []float64{1}},
	} {
		require.Equal(t, want, stored[`{__name__="`+name+`", job="j"}`], name)
	}
	require.Equal(t, value.StaleNaN, math.Float64bits(stored[`{__name__="gone_total", job="j"}`].V[0]))
	for name, v := range map[string]float64{
		`explicit_count", job="j"`: 3, `explicit_sum", job="j"`: 7, `explicit_bucket", job="j", le="1"`: 1,
		`explicit_bucket", job="j", le="+Inf"`: 3,
	} {
		require.Equal(t, chunk.Samples{T: []int64{end.UnixMilli()}, ST: []int64{first}, V: []float64{v}},
			stored[`{__name__="`+name+`}`], name)
	}
	h := stored[`{__name__="exponential", job="j"}`].H
	require.Len(t, h, 1)
	require.Equal(t, first, h[0].ST)
	require.EqualValues(t, 2, h[0].Int.Count)
	for family, kind := range map[string]string{
		"orders_total": "counter", "stock": "gauge", "explicit": "histogram", "exponential": "histogram",
	} {
		require.Equal(t, kind, s.told[family][0], family)
	}
	require.Equal(t, end.Add(-time.Millisecond).Truncate(24*time.Hour).UnixMilli(), s.store.StartsFrom(tenant.Default))
	require.Equal(t, starts.Never, s.store.StartsFrom("another"))
}

// TestDeltaTimesAreBounded checks that deltas with rejected times don't change the time from which start timestamps are
// used.
func TestDeltaTimesAreBounded(t *testing.T) {
	now := time.Now()
	s := newServer(t, nil, nil, storagetest.RejectAhead, storagetest.FixedClock(now))
	md := pmetric.NewMetrics()
	deltaSum(md, "future", true, now, now.AddDate(1, 0, 0), 1)
	require.Equal(t, http.StatusBadRequest, s.post(t, encodingProtobuf, encode(t, md, encodingProtobuf)).code)
	require.LessOrEqual(t, s.store.StartsFrom(tenant.Default), now.UnixMilli(),
		"samples that are stored later are of now")

	md = pmetric.NewMetrics()
	deltaSum(md, "old", true, now.AddDate(-9, 0, 0), now.AddDate(-8, 0, 0), 1)
	deltaSum(md, "recent", true, now.Add(-time.Minute), now, 1)
	got := s.post(t, encodingProtobuf, encode(t, md, encodingProtobuf))
	require.EqualValues(t, 1, got.rejected, got.message)
	day := 24 * time.Hour
	require.Equal(t, now.Add(-30*day-time.Millisecond).Truncate(day).UnixMilli(), s.store.StartsFrom(tenant.Default))

	md = pmetric.NewMetrics()
	deltaSum(md, "without", true, time.Unix(0, 0), now, 1)
	deltaSum(md, "at once", true, now, now, 1)
	deltaSum(md, "turned", true, now.Add(time.Minute), now, 1)
	got = s.post(t, encodingProtobuf, encode(t, md, encodingProtobuf), tenant.Header, "refused")
	require.Equal(t, http.StatusBadRequest, got.code)
	require.Contains(t, got.message, reasonDeltaWithoutStart+" (1)")
	require.Contains(t, got.message, reasonDeltaInvalidStart+" (2)")
	require.Equal(t, starts.Never, s.store.StartsFrom("refused"),
		"a tenant whose deltas are all rejected isn't recorded")
}

// TestDeltasAreRecordedBeforeSamples fails the write of the tenant's row, then the write of the samples: samples are
// never stored without the row, and a retry stores the missing samples.
func TestDeltasAreRecordedBeforeSamples(t *testing.T) {
	const row, samples = 1, 2
	var failing atomic.Int32
	s := newServer(t, func(op faultengine.Op) faultengine.Action {
		switch {
		case failing.Load() == row && op.Kind == faultengine.CompareAndSet && op.Partition[0] == engine.Text("deltas"),
			failing.Load() == samples && op.Kind == faultengine.Write && op.Table == engine.Stage:
			return faultengine.Fail(engine.ErrUnavailable)
		}
		return faultengine.Pass()
	}, nil)
	end := time.Now()
	md := pmetric.NewMetrics()
	deltaSum(md, "orders", true, end.Add(-time.Minute), end, 5)
	body := encode(t, md, encodingProtobuf)

	failing.Store(row)
	got := s.post(t, encodingProtobuf, body)
	require.Equal(t, http.StatusServiceUnavailable, got.code, got.message)
	require.Equal(t, "1", got.header.Get("Retry-After"))
	require.Empty(t, s.series(t, tenant.Default), "samples come after the row")
	require.Equal(t, starts.Never, s.store.StartsFrom(tenant.Default))

	failing.Store(samples)
	require.Equal(t, http.StatusServiceUnavailable, s.post(t, encodingProtobuf, body).code)
	require.NotEqual(t, starts.Never, s.store.StartsFrom(tenant.Default))
	require.Empty(t, s.series(t, tenant.Default))

	failing.Store(0)
	require.Equal(t, http.StatusOK, s.post(t, encodingProtobuf, body).code)
	require.Len(t, s.series(t, tenant.Default), 1)
}

// TestDeltaAndCumulative sends a delta and a cumulative point with the same name: they are stored in one series.
func TestDeltaAndCumulative(t *testing.T) {
	s := newServer(t, nil, nil, nil)
	end := time.Now().Truncate(time.Second)
	md := pmetric.NewMetrics()
	deltaSum(md, "orders", true, end.Add(-time.Minute), end, 5)
	sum := addMetric(md, "orders").SetEmptySum()
	sum.SetIsMonotonic(true)
	sum.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	p := sum.DataPoints().AppendEmpty()
	p.SetTimestamp(timestampOf(end.Add(time.Minute)))
	p.SetStartTimestamp(timestampOf(end.Add(-time.Hour)))
	p.SetIntValue(100)
	require.Equal(t, http.StatusOK, s.post(t, encodingProtobuf, encode(t, md, encodingProtobuf)).code)
	require.Equal(t, map[string]chunk.Samples{`{__name__="orders_total", job="j"}`: {
		T: []int64{end.UnixMilli(), end.Add(time.Minute).UnixMilli()}, V: []float64{5, 100},
		ST: []int64{end.Add(-time.Minute).UnixMilli() + 1, end.Add(-time.Hour).UnixMilli()},
	}}, s.series(t, tenant.Default))
	require.Greater(t, s.store.StartsFrom(tenant.Default), int64(-format.MaxTime))
}
