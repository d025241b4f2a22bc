package promql

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/promql/bucketfn"
	"github.com/cassia-db/cassia/promql/bucketfn/bucketfntest"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/soak"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// The samples of the rollups are at times in (rolledFrom, rolledTo]. Samples after rolledSealed stay unsealed until the
// clock moves. rolledTo isn't the end of a bucket.
var (
	rolledFrom   = someDay
	rolledTo     = someDay + 3*day + 13*hour + 7*minute + 20*second
	rolledSealed = someDay + 3*day + 8*hour
	// lateSlot is the end of a sealed slot for which late samples are in the staging log.
	lateSlot = someDay + 30*hour
	// The commit records of rollups of the slots in (unmarkedFrom, unmarkedTo] are lost. The buckets of these slots are
	// computed from samples while these are kept.
	unmarkedFrom = someDay + 50*hour
	unmarkedTo   = someDay + 56*hour
)

// rolledSeries is a generated series with the samples that were sent.
type rolledSeries struct {
	labels labels.Labels
	sent   []rolledSample
	// truth holds the samples of all types, without duplicates.
	truth chunk.Samples
}

// rolledSample is a float or a histogram.
type rolledSample struct {
	t, st int64
	v     float64
	h     *chunk.Histogram
	// round is the delivery that contains the sample: 0, 1 (late, sealed again) or 2 (unsealed).
	round int
}

// rolledMetrics are the metrics. Each of their series has a kind, which is a kind of bucketfntest.SeriesGenerator or of
// roller.
var rolledMetrics = []struct {
	name  string
	every int64
	kinds []string
}{
	{"requests_total", minute, []string{"border resets", "counter with resets", "border resets", "counter",
		"border resets"}},
	{"requests", minute, []string{"counter with resets", "counter"}},
	{"temperature", 45 * second, []string{"gauge", "gauge", "constant", "gauge"}},
	{"odd", minute, []string{"special values", "special values", "special values"}},
	{"big", minute, []string{"great integers", "great integers"}},
	{"huge", minute, []string{"overflowing", "overflowing"}},
	{"up", minute, []string{"zero or one", "constant", "zero or one", "zero or one"}},
	{"sparse_total", 37 * minute, []string{"counter", "border resets", "counter with resets"}},
	{"size_bucket", 2 * minute, []string{"counter", "counter", "counter", "counter"}},
	{"latency", 2 * minute, []string{"histograms", "histograms with resets", "integer histograms", "float histograms"}},
	{"shapes", 2 * minute, []string{"histograms of several sorts", "custom buckets", "gauge histograms",
		"hinted histograms"}},
	{"scaled", 2 * minute, []string{"histograms of changing layouts", "custom buckets of changing bounds",
		"gauge histograms of changing layouts"}},
	{"zeros", 2 * minute, []string{"histograms of changing zero thresholds",
		"gauge histograms that overlap their zero buckets", "histograms of changing schemas and zero thresholds",
		"histograms of changing zero thresholds"}},
	{"wild", 3 * minute, []string{"wild", "wild"}},
	{"mixed", 2 * minute, []string{"floats and histograms", "floats and histograms", "gauge"}},
}

// roller generates the series.
type roller struct {
	r *rand.Rand
}

func (r *roller) all() []*rolledSeries {
	var all []*rolledSeries
	for _, m := range rolledMetrics {
		for i, kind := range m.kinds {
			b := labels.NewBuilder(labels.FromStrings(model.MetricNameLabel, m.name, "instance", fmt.Sprint("i", i),
				"job", []string{"api", "db", "web"}[i%3]))
			if i%4 == 3 {
				b.Set("zone", "z")
			}
			if m.name == "size_bucket" {
				b.Set("le", []string{"0.1", "1", "10", "+Inf"}[i]).Set("instance", "i0").Set("job", "api")
			}
			s := &rolledSeries{labels: b.Labels()}
			r.fill(s, m.every, kind, i)
			all = append(all, s)
		}
	}
	return all
}

// fill generates the samples of a series.
func (r *roller) fill(s *rolledSeries, every int64, kind string, i int) {
	values := rolledValues{roller: r, kind: kind, plain: bucketfntest.SeriesGenerator{Rand: r.r, Kind: kind},
		wild: generator{rnd: r.r}}
	starts, before := soak.Starts{Rand: r.r, Kind: "none"}, math.Inf(-1)
	if i%2 == 1 {
		starts.Kind = soak.StartKinds[r.r.IntN(len(soak.StartKinds))]
	}
	for _, at := range r.times(every, i) {
		sample := values.at(at.t)
		if at.stale {
			sample.h = nil
			sample.v = math.Float64frombits(value.StaleNaN)
		}
		sample.t, sample.st = at.t, starts.Next(at.t, sample.h == nil && sample.v < before)
		before = sample.v
		r.send(s, sample)
	}
	for _, e := range s.sent {
		e.append(&s.truth)
	}
	s.truth.Normalize()
}

// send adds a sample. Sometimes it also adds a second one at the same time: a duplicate, or a sample with another
// value.
func (r *roller) send(s *rolledSeries, e rolledSample) {
	inLate := e.t > lateSlot && e.t <= lateSlot+2*hour
	switch {
	case e.t > rolledSealed, inLate && r.r.IntN(10) == 0:
		e.round = 2
	case r.r.IntN(50) == 0:
		e.round = 1
	}
	s.sent = append(s.sent, e)
	if r.r.IntN(80) > 0 {
		return
	}
	if e.round < 2 && (!inLate || e.round == 0) {
		e.round = 1
	}
	if e.h == nil && !value.IsStaleNaN(e.v) && r.r.IntN(2) == 0 {
		e.v++
	}
	s.sent = append(s.sent, e)
}

type staleOrNot struct {
	t     int64
	stale bool
}

// times generates the times of a series. They are aligned to its interval, jittered or irregular. Gaps last minutes,
// whole slots, or half a day. Some gaps start with a stale marker, which may be at the edge of a bucket or the only
// sample of a bucket.
func (r *roller) times(every int64, i int) (all []staleOrNot) {
	step := func() int64 { return every }
	switch i % 3 {
	case 1:
		step = func() int64 { return every + r.r.Int64N(every/5) - every/10 }
	case 2:
		step = func() int64 { return 1 + r.r.Int64N(2*every) }
	}
	at := rolledFrom + every
	if i%2 == 1 {
		at = rolledFrom + 1 + r.r.Int64N(every)
	}
	for ; at <= rolledTo; at += step() {
		all = append(all, staleOrNot{at, false})
		before := at
		switch r.r.IntN(400) {
		case 0:
			at += r.r.Int64N(20 * minute)
		case 1:
			at += hour + r.r.Int64N(5*hour)
		case 2:
			all = append(all, staleOrNot{at + 1 + r.r.Int64N(every), true})
			at += 2*every + r.r.Int64N(3*hour)
		case 3: // at the edge of a bucket
			width := []int64{5 * minute, hour, 2 * hour}[r.r.IntN(3)]
			marker := bucketfn.CeilTo(at+1, width)
			all = append(all, staleOrNot{marker, true})
			at = marker + r.r.Int64N(2)*r.r.Int64N(2*hour)
		case 4: // alone in a bucket
			marker := at + 10*minute + r.r.Int64N(2*hour)
			all = append(all, staleOrNot{marker, true})
			at = marker + 10*minute + r.r.Int64N(hour)
		case 5:
			if r.r.IntN(5) == 0 {
				at += r.r.Int64N(14 * hour)
			}
		case 6: // a sample just after the edge of a bucket, or exactly at it
			border := bucketfn.CeilTo(at+every, 5*minute)
			all = append(all, staleOrNot{border + r.r.Int64N(2), false})
			at = border + 1
		}
		if at > before && at%every != 0 && i%3 == 0 {
			at = bucketfn.CeilTo(at, every)
		}
	}
	for len(all) > 0 && all[len(all)-1].t > rolledTo {
		all = all[:len(all)-1]
	}
	return all
}

// rolledValues generates the values of one series.
type rolledValues struct {
	*roller
	kind  string
	plain bucketfntest.SeriesGenerator
	wild  generator
	v     float64
	last  int64
}

func (v *rolledValues) at(t int64) rolledSample {
	last := v.last
	v.last = t
	switch v.kind {
	case "border resets": // at the start of a 5m bucket, a 1h bucket or a slot
		width := []int64{5 * minute, hour, 2 * hour}[v.r.IntN(3)]
		v.v += float64(v.r.IntN(300)) / 4
		if bucketfn.FloorTo(t-1, width) != bucketfn.FloorTo(last-1, width) && v.r.IntN(3) == 0 ||
			bucketfn.FloorTo(t, width) != bucketfn.FloorTo(last, width) && v.r.IntN(4) == 0 || v.r.IntN(60) == 0 {
			v.v = float64(v.r.IntN(3))
		}
		return rolledSample{v: v.v}
	case "zero or one":
		if v.r.IntN(30) == 0 {
			v.v = 1 - v.v
		}
		return rolledSample{v: v.v}
	case "wild":
		if s := v.wild.schema; v.r.IntN(60) == 0 || s != histogram.CustomBucketsSchema && (s < -3 || s > 7) {
			v.wild = generator{rnd: v.r} // its resolution changes repeatedly
		}
		h := v.wild.next()
		return rolledSample{h: &h}
	}
	v.plain.Next()
	return rolledSample{v: v.plain.V, h: v.plain.H}
}

// append appends the sample in the form in which a store keeps it.
func (e *rolledSample) append(into *chunk.Samples) {
	if e.h == nil {
		into.AppendFloat(e.t, e.st, e.v)
		return
	}
	h := *e.h
	h.T, h.ST = e.t, e.st
	into.AppendHistogram(h)
}

// rolledStore is a store with a clock that the test sets.
type rolledStore struct {
	*storage.Store
	now time.Time
}

func openRolled(t *testing.T, eng engine.Engine, retention, fiveMinutes time.Duration) *rolledStore {
	s := &rolledStore{now: time.UnixMilli(rolledTo)}
	s.Store = storagetest.Open(t, eng, storagetest.Clock(func() time.Time { return s.now }), func(o *storage.Options) {
		o.Partitions, o.Retention, o.Retention5m = 2, retention, fiveMinutes
	})
	return s
}

// deliver sends the samples of the given rounds.
func (s *rolledStore) deliver(t *testing.T, all []*rolledSeries, rounds ...int) {
	for _, series := range all {
		b := s.NewBatch("default")
		ref, err := b.Define(nil, series.labels)
		require.NoError(t, err)
		for _, e := range series.sent {
			if !slices.Contains(rounds, e.round) {
				continue
			}
			if e.h == nil {
				require.NoError(t, b.Float(ref, e.t, e.st, e.v))
				continue
			}
			var i *histogram.Histogram
			var f *histogram.FloatHistogram
			if e.h.Int != nil {
				i = e.h.Int.Copy()
			} else {
				f = e.h.Float.Copy()
			}
			require.NoError(t, b.Histogram(ref, e.t, e.st, i, f))
		}
		require.NoError(t, b.Commit(t.Context()))
	}
}

// rolled delivers all samples to a store. Most of them are sealed, some are late and sealed again, and the newest and
// some late samples stay unsealed.
func rolled(t *testing.T, eng engine.Engine, all []*rolledSeries, retention, fiveMinutes time.Duration) *rolledStore {
	s := openRolled(t, eng, retention, fiveMinutes)
	for round := range 3 {
		s.deliver(t, all, round)
		if round < 2 {
			require.NoError(t, s.SealAll(t.Context()))
		}
	}
	return s
}

// unrolled delivers all samples to a store that keeps raw samples indefinitely.
func unrolled(t *testing.T, all []*rolledSeries) *rolledStore {
	s := openRolled(t, memory.New(), 0, 0)
	s.deliver(t, all, 0, 1, 2)
	return s
}
