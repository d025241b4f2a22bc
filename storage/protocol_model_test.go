package storage

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/retention"
)

// protocolValue is the value of a sample: a float's bits, or a histogram's encoded bytes.
type protocolValue struct {
	bits  uint64
	hist  string
	stale bool  // a histogram that is a stale marker
	st    int64 // start timestamp, milliseconds
}

// rank orders the kinds of values as package chunk does: of two values, the one with the higher rank is kept.
func (v protocolValue) rank() int {
	f := math.Float64frombits(v.bits)
	switch {
	case v.hist != "" && !v.stale:
		return 4
	case v.hist != "":
		return 1
	case value.IsStaleNaN(f):
		return 0
	case math.IsNaN(f):
		return 2
	default:
		return 3
	}
}

// compare returns a positive number if v is kept instead of o at the same timestamp, a negative number if o is kept,
// and 0 if they are equal.
func (v protocolValue) compare(o protocolValue) int {
	if c := cmp.Compare(v.rank(), o.rank()); c != 0 {
		return c
	}
	byValue := 0
	switch v.rank() {
	case 1, 4:
		byValue = strings.Compare(v.hist, o.hist)
	case 2:
		byValue = cmp.Compare(v.bits, o.bits)
	case 3:
		f, g := math.Float64frombits(v.bits), math.Float64frombits(o.bits)
		switch {
		case f < g:
			byValue = -1
		case f > g:
			byValue = 1
		default: // of two zeros, the negative one is lower
			byValue = cmp.Compare(o.bits, v.bits)
		}
	}
	return cmp.Or(byValue, cmp.Compare(v.st, o.st))
}

func (v protocolValue) String() string {
	text := ""
	f := math.Float64frombits(v.bits)
	switch {
	case v.hist != "":
		text = fmt.Sprintf("histogram %x", v.hist[:min(len(v.hist), 24)])
		for i, h := range protocolHistograms {
			if encodedHistogram(h) == v.hist {
				text = fmt.Sprintf("h%d", i)
			}
		}
	case value.IsStaleNaN(f):
		text = "stale"
	case math.IsNaN(f):
		text = fmt.Sprintf("nan:%x", v.bits)
	default:
		text = strconv.FormatFloat(f, 'g', -1, 64)
	}
	if v.st != 0 {
		text += fmt.Sprintf("/%d", v.st)
	}
	return text
}

// parseProtocolFloat parses a float: a number, "stale", or "nan:" and its bits.
func parseProtocolFloat(text string) (float64, error) {
	if text == "stale" {
		return math.Float64frombits(value.StaleNaN), nil
	}
	if hex, ok := strings.CutPrefix(text, "nan:"); ok {
		bits, err := strconv.ParseUint(hex, 16, 64)
		return math.Float64frombits(bits), err
	}
	return strconv.ParseFloat(text, 64)
}

// protocolHistograms contains the histograms h0, h1, … of histories: integers, floats, custom buckets, a stale marker.
var protocolHistograms = []chunk.Histogram{
	{Int: &histogram.Histogram{Count: 5, Sum: 12.5, Schema: 1, ZeroThreshold: 0.001, ZeroCount: 1,
		PositiveSpans: []histogram.Span{{Offset: 0, Length: 2}}, PositiveBuckets: []int64{1, 2}}},
	{Int: &histogram.Histogram{Count: 7, Sum: -3, Schema: 1, ZeroThreshold: 0.001, ZeroCount: 1,
		PositiveSpans: []histogram.Span{{Offset: 0, Length: 2}}, PositiveBuckets: []int64{2, 2},
		CounterResetHint: histogram.CounterReset}},
	{Float: &histogram.FloatHistogram{Count: 2.5, Sum: 1, Schema: 3, ZeroThreshold: 0.5, ZeroCount: 0.5,
		NegativeSpans: []histogram.Span{{Offset: -3, Length: 1}}, NegativeBuckets: []float64{2},
		CounterResetHint: histogram.GaugeType}},
	{Int: &histogram.Histogram{Count: 3, Sum: 9, Schema: histogram.CustomBucketsSchema, CustomValues: []float64{1, 5},
		PositiveSpans: []histogram.Span{{Offset: 0, Length: 3}}, PositiveBuckets: []int64{1, 0, 0}}},
	{Int: &histogram.Histogram{Sum: math.Float64frombits(value.StaleNaN)}},
	{Float: &histogram.FloatHistogram{Sum: math.Float64frombits(value.StaleNaN)}},
}

func copyHistogram(h chunk.Histogram) (*histogram.Histogram, *histogram.FloatHistogram) {
	if h.Int != nil {
		return h.Int.Copy(), nil
	}
	return nil, h.Float.Copy()
}

func encodedHistogram(h chunk.Histogram) string {
	c, err := chunk.CanonicalHistogram(h)
	if err != nil {
		panic(err)
	}
	return string(chunk.AppendHistogramBytes(nil, chunk.Histogram{Int: c.Int, Float: c.Float}))
}

func histogramValue(h chunk.Histogram, st int64) protocolValue {
	v := protocolValue{hist: encodedHistogram(h), st: st}
	v.stale = h.Int != nil && value.IsStaleNaN(h.Int.Sum) || h.Float != nil && value.IsStaleNaN(h.Float.Sum)
	return v
}

// protocolSeries identifies a series of a tenant.
type protocolSeries struct{ tenant, series string }

// protocolModel is the plain model: the samples that were sent, and the samples that must be found.
type protocolModel struct {
	mu sync.Mutex
	// sent contains all samples that were ever sent. Answers must contain no others.
	sent map[protocolSeries]map[int64][]protocolValue
	// sure contains, for each time, the highest value that was acknowledged or returned by a query. It must be found.
	sure map[protocolSeries]map[int64]protocolValue
	// forgetful allows samples to disappear that a query has returned before they were acknowledged, because other
	// processes may not have them.
	forgetful bool
	protocolDeletes
	exemplars protocolExemplars
}

func newProtocolModel() *protocolModel {
	return &protocolModel{
		sent: map[protocolSeries]map[int64][]protocolValue{}, sure: map[protocolSeries]map[int64]protocolValue{},
	}
}

func (m *protocolModel) send(s protocolSeries, t int64, v protocolValue) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sent[s] == nil {
		m.sent[s] = map[int64][]protocolValue{}
	}
	if !slices.Contains(m.sent[s][t], v) {
		m.sent[s][t] = append(m.sent[s][t], v)
	}
	m.wasSent(protocolFact{s, t, v})
}

func (m *protocolModel) stays(s protocolSeries, t int64, v protocolValue) {
	m.staysSince(m.begun(), s, t, v)
}

// staysSince records an acknowledged sample. begun is the number of deletes that were started before the sample was
// sent.
func (m *protocolModel) staysSince(begun int, s protocolSeries, t int64, v protocolValue) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mayGo(s, t, begun) {
		return
	}
	if m.sure[s] == nil {
		m.sure[s] = map[int64]protocolValue{}
	}
	if old, ok := m.sure[s][t]; !ok || v.compare(old) > 0 {
		m.sure[s][t] = v
	}
}

// needs returns the samples of a tenant that a query must return if it starts now.
func (m *protocolModel) needs(tenant string) map[protocolSeries]map[int64]protocolValue {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[protocolSeries]map[int64]protocolValue{}
	for s, byTime := range m.sure {
		if s.tenant != tenant {
			continue
		}
		out[s] = map[int64]protocolValue{}
		for t, v := range byTime {
			out[s][t] = v
		}
	}
	return out
}

// protocolSample is a sample of an answer.
type protocolSample struct {
	t int64
	v protocolValue
}

// flatten lists samples by time. problem describes the first defect, or is "".
func flatten(s *chunk.Samples) (out []protocolSample, problem string) {
	for i, t := range s.T {
		v := protocolValue{bits: math.Float64bits(s.V[i])}
		if len(s.ST) > 0 {
			v.st = s.ST[i]
		}
		out = append(out, protocolSample{t, v})
		if i > 0 && s.T[i-1] >= t {
			problem = fmt.Sprintf("floats at %d and then %d", s.T[i-1], t)
		}
	}
	for i, h := range s.H {
		out = append(out, protocolSample{h.T, histogramValue(h, h.ST)})
		if i > 0 && s.H[i-1].T >= h.T {
			problem = fmt.Sprintf("histograms at %d and then %d", s.H[i-1].T, h.T)
		}
	}
	slices.SortStableFunc(out, func(a, b protocolSample) int { return cmp.Compare(a.t, b.t) })
	for i := 1; i < len(out); i++ {
		if out[i].t == out[i-1].t {
			problem = fmt.Sprintf("two samples at %d", out[i].t)
		}
	}
	return out, problem
}

// visible is the range of times, in milliseconds, of the samples that a query returns.
type visible struct{ minT, maxT int64 }

// judge compares an answer with the samples that it must contain. It returns a description of the first problem, or "",
// and records the returned samples in sure.
func (m *protocolModel) judge(
	went map[protocolFact]int, needs map[protocolSeries]map[int64]protocolValue,
	got map[protocolSeries][]protocolSample, asked visible,
) (problem string) {
	for s, samples := range got {
		for _, x := range samples {
			m.mu.Lock()
			sent := slices.Contains(m.sent[s][x.t], x.v)
			gone := m.isGone(went, protocolFact{s, x.t, x.v})
			m.mu.Unlock()
			if gone {
				return fmt.Sprintf("%v at %v shows %v, which was deleted", s, showTime(x.t), x.v)
			}
			if !sent {
				return fmt.Sprintf("%v at %v shows %v, which was never sent", s, showTime(x.t), x.v)
			}
		}
	}
	for s, byTime := range needs {
		have := map[int64]protocolValue{}
		for _, x := range got[s] {
			have[x.t] = x.v
		}
		for t, want := range byTime {
			if t < asked.minT || t > asked.maxT {
				continue
			}
			v, ok := have[t]
			if !ok {
				return fmt.Sprintf("%v at %v: %v was acknowledged or seen before and is missing", s, showTime(t), want)
			}
			if v.compare(want) < 0 {
				return fmt.Sprintf(
					"%v at %v: %v was acknowledged or seen before, the answer is %v", s, showTime(t), want, v,
				)
			}
		}
	}
	for s, samples := range got {
		for _, x := range samples {
			if m.forgetful || m.begun() > 0 {
				break
			}
			m.stays(s, x.t, x.v)
		}
	}
	return ""
}

// encodeAnswer returns the bytes of an answer. Two answers are equal bit for bit if their bytes are equal.
func encodeAnswer(got map[protocolSeries]*chunk.Samples) []byte {
	names := make([]protocolSeries, 0, len(got))
	for s := range got {
		names = append(names, s)
	}
	slices.SortFunc(names, func(a, b protocolSeries) int {
		return cmp.Or(strings.Compare(a.tenant, b.tenant), strings.Compare(a.series, b.series))
	})
	var out bytes.Buffer
	for _, s := range names {
		if got[s].Len() > 0 {
			fmt.Fprintf(&out, "%s %s ", s.tenant, s.series)
			out.Write(chunk.AppendChunk(nil, got[s]))
		}
	}
	return out.Bytes()
}

func showTime(t int64) string { return time.UnixMilli(t).UTC().Format("2006-01-02T15:04:05.000") }

// visible returns the range that an answer must contain, if the clock showed before at the start of the query and after
// at its end.
func (r *protocolRun) visible(q query.Query, before, after int64) visible {
	v := visible{minT: q.MinT, maxT: min(q.MaxT, before+MaxAhead.Milliseconds(), after+MaxAhead.Milliseconds())}
	if retention := r.opts.Retention.Milliseconds(); retention > 0 {
		v.minT = max(v.minT, before-retention+1, after-retention+1)
	}
	return v
}

// mayBeGone returns the time before which samples may be missing, because whole windows are dropped some time after
// their ends. In a shared store each process hides windows past the retention by its own clock, for all processes. In
// these histories every clock is trusted.
func (r *protocolRun) mayBeGone() int64 {
	retention, grace := r.opts.Retention.Milliseconds(), retention.Grace.Milliseconds()
	if retention == 0 {
		return -format.MaxTime
	}
	if r.opts.Shared {
		grace = 0
	}
	return format.FloorDiv(r.newest.Load()-retention-grace, format.DayMS)*format.DayMS + 1
}
