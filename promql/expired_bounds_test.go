package promql

import (
	"math"
	"regexp"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/promql/bucketfn"
	"github.com/cassia-db/cassia/storage/rollup"
)

// stated holds the bounds that are derived from an info about missing samples or moved windows:
//
//	cut     a window that ends inside buckets is off by at most the samples in these: values between their min and max, their
//	        number, their increase
//	moved   by at most the samples between the requested edges and the edges used
//	made    a function of all samples is off by at most the difference that samples between the min and max of its buckets make
//
// At times outside the info, and without an info, values must be exact.
type stated struct {
	told           bool
	raw, from, to  int64 // of the missing samples, milliseconds
	width          int64 // of the widest bucket
	cut, made      bool
	moved, snapped int64 // how far edges were moved: where raw samples have expired, and where they exist
}

var (
	statedRaw     = regexp.MustCompile(`raw samples before (\S+) have expired; from (\S+) to (\S+) (.*)`)
	statedMoved   = regexp.MustCompile(`edges of \S+ windows are moved by up to (\S+) \(`)
	statedBuckets = regexp.MustCompile(`buckets of up to (5m|1h)`)
)

// statedBy parses the infos about expired samples in notes. It also returns all other notes.
func statedBy(t *testing.T, notes []string) (s stated, others []string) {
	for _, note := range notes {
		here, there, _ := strings.Cut(note, "; where raw samples exist, ")
		m := statedRaw.FindStringSubmatch(here)
		if m == nil && !statedMoved.MatchString(note) {
			others = append(others, note)
			continue
		}
		require.False(t, s.told, "several infos: %q", notes)
		s.told = true
		if m == nil {
			here, there = "", note
		} else {
			s.raw, s.from, s.to = msOf(t, m[1]), msOf(t, m[2]), msOf(t, m[3])
			s.width = rollup.FiveMinutes.Width()
			buckets := statedBuckets.FindStringSubmatch(m[4])
			require.NotNil(t, buckets, "no bucket is named: %s", note)
			if buckets[1] == "1h" {
				s.width = rollup.OneHour.Width()
			}
		}
		s.cut, s.made = strings.Contains(here, "are interpolated"), strings.Contains(
			here, "functions that rollups don't support are computed from samples reconstructed from",
		) ||
			strings.Contains(here, "quantiles are computed from sketches")
		s.moved, s.snapped = movedIn(t, here), movedIn(t, there)
	}
	return s, others
}

func movedIn(t *testing.T, text string) int64 {
	m := statedMoved.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	d, err := time.ParseDuration(m[1])
	require.NoError(t, err)
	return d.Milliseconds()
}

func msOf(t *testing.T, text string) int64 {
	at, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return at.UnixMilli()
}

// zones returns the left-open spans in which an answer may be computed from samples other than the original ones:
// buckets that contain an edge of the window, and the time between the requested edges and the edges used.
func (s stated) zones(from, to int64) (zones [][2]int64) {
	for _, end := range []int64{from, to} {
		if s.cut || s.made {
			if start := bucketfn.FloorTo(end, s.width); start != end {
				zones = append(zones, [2]int64{start, start + s.width})
			}
		}
		if by := max(s.moved, s.snapped); by > 0 {
			zones = append(zones, [2]int64{end - by, end + by})
		}
	}
	return zones
}

// touches reports whether the info applies to a window.
func (s stated) touches(from, to int64) bool {
	return s.snapped > 0 || s.told && from < s.raw && to >= s.from && from <= s.to
}

// extent holds the number, the min and the max of some values.
type extent struct {
	n      int
	lo, hi float64
}

func (e *extent) add(values []float64) {
	for _, v := range values {
		if e.n == 0 {
			e.lo, e.hi = v, v
		}
		e.n, e.lo, e.hi = e.n+1, min(e.lo, v), max(e.hi, v)
	}
}

func (e extent) spread() float64 { return e.hi - e.lo }

func (e extent) largest() float64 { return max(math.Abs(e.lo), math.Abs(e.hi)) }

// view holds the values of a series in a window.
type view struct {
	window, edges, all extent
	// inner are the values of the window outside all zones.
	inner extent
	// rise is the increase within the window, and edgeRise the increase within the zones.
	rise, edgeRise float64
	// sampled is the time from the first to the last sample of the window, in seconds.
	sampled float64
	resets  int // in the zones
	moving  bool
	steep   float64

	// buckets is set if all samples of the window are made from buckets that are entirely inside the window.
	buckets *wholeBuckets
}

// wholeBuckets holds the values from which the errors of functions of samples made from whole buckets are computed.
type wholeBuckets struct {
	// width is the width of the buckets in seconds, spread the max spread of their values, and rise the increase in the
	// last bucket.
	width, spread, rise float64
	// slope is the error of the slope of a line if each value may be off by 1. mean is the mean of the times, and
	// deviation is the standard deviation of the values.
	slope, mean, deviation float64
}

// buckets describes the buckets of a window.
func (s *boundedSeries) buckets(from, to, width int64) *wholeBuckets {
	i, j := s.in(from, to)
	w := &wholeBuckets{width: float64(width) / 1000}
	n, mean, squares, distances := float64(j-i), 0.0, 0.0, 0.0
	for at := i; at < j; {
		end := bucketfn.CeilTo(s.t[at], width)
		next := at
		var e extent
		for ; next < j && s.t[next] <= end; next++ {
			e.add(s.v[next : next+1])
		}
		w.spread = max(w.spread, e.spread())
		w.rise, _, _ = s.riseOf(at+1, next)
		at = next
	}
	for k := i; k < j; k++ {
		w.mean += float64(s.t[k]) / 1000 / n
		mean += s.v[k] / n
	}
	for k := i; k < j; k++ {
		d := float64(s.t[k])/1000 - w.mean
		squares, distances = squares+d*d, distances+math.Abs(d)
		w.deviation += (s.v[k] - mean) * (s.v[k] - mean) / n
	}
	w.deviation = math.Sqrt(w.deviation)
	if squares > 0 {
		w.slope = distances / squares
	}
	return w
}

func (s *boundedSeries) in(from, to int64) (i, j int) {
	i = sort.Search(len(s.t), func(i int) bool { return s.t[i] > from })
	j = sort.Search(len(s.t), func(j int) bool { return s.t[j] > to })
	return i, max(i, j)
}

// riseOf returns the increase from the sample before i to the sample before j, the number of decreases, and the
// steepest increase per second.
func (s *boundedSeries) riseOf(i, j int) (rise float64, falls int, steep float64) {
	for k := max(1, i); k < j; k++ {
		d := s.v[k] - s.v[k-1]
		if d < 0 {
			falls++
			d = s.v[k]
		}
		rise += d
		steep = max(steep, math.Abs(d)/(float64(s.t[k]-s.t[k-1])/1000))
	}
	return rise, falls, steep
}

func (s *boundedSeries) view(from, to int64, zones [][2]int64) (v view) {
	i, j := s.in(from, to)
	v.window.add(s.v[i:j])
	v.all = v.window
	if i < j {
		v.sampled = float64(s.t[j-1]-s.t[i]) / 1000
		v.rise, _, v.steep = s.riseOf(i+1, j)
	}
	for _, z := range zones {
		a, b := s.in(z[0], z[1])
		v.edges.add(s.v[a:b])
		v.all.add(s.v[a:b])
		// If samples at the start of a window are missing, the step from the last of them to the next sample is also
		// missing.
		rise, falls, steep := s.riseOf(a, min(b+1, len(s.v)))
		v.edgeRise, v.resets, v.steep = v.edgeRise+rise, v.resets+falls, max(v.steep, steep)
	}
	for k := i; k < j; k++ {
		inside := false
		for _, z := range zones {
			inside = inside || s.t[k] > z[0] && s.t[k] <= z[1]
		}
		if !inside {
			v.inner.add(s.v[k : k+1])
		}
	}
	return v
}

// stretch returns the max factor by which an increase is extrapolated.
func (v *view) stretch() float64 { return 1 + 2.2/float64(max(1, v.window.n-1)) }

// offByBuckets returns the max error of a function of samples made from whole buckets, as documented in the manual. It
// returns false if the error depends on the times of the original samples.
func (s *boundedSeries) offByBuckets(fn string, v view, at int64) (float64, bool) {
	b := v.buckets
	if b == nil {
		return 0, false
	}
	switch fn {
	case "quantile_over_time":
		return max(b.spread, v.window.largest()/100), true // or the error of sketches
	case "mad_over_time":
		return max(2*b.spread, v.window.largest()/50), true
	case "stddev_over_time":
		return b.spread, true
	case "stdvar_over_time":
		return b.spread * (b.spread + 2*b.deviation), true
	case "timestamp", "ts_of_max_over_time", "ts_of_min_over_time":
		return b.width, true
	}
	if s.wobbly {
		return 0, false
	}
	switch fn {
	case "irate":
		return b.rise / (s.every / 1000), true
	case "deriv":
		return min(b.spread*b.slope, 3*b.spread/max(1e-3, v.sampled)), true // A single sample has no slope.
	case "predict_linear":
		return b.spread * b.slope * math.Abs(float64(at)/1000+60-b.mean), true
	}
	return 0, false
}

// offBy returns the max error of a function over a window of width milliseconds.
func (s *boundedSeries) offBy(fn string, v view, width, at int64) float64 {
	if off, ok := s.offByBuckets(fn, v, at); ok {
		return off
	}
	edge, all := v.edges.spread(), v.all.spread()
	n, edges := float64(max(1, v.window.n)), float64(v.edges.n)
	if s.wobbly { // The times of made samples differ from the original ones.
		edge = all
	}
	increase := v.edgeRise*v.stretch() + v.rise*(v.stretch()-1)
	switch fn {
	case "", "limitk", "last_over_time", "first_over_time", "selector smoothed":
		return edge
	case "max_over_time", "min_over_time":
		if v.inner.n == 0 {
			return all
		}
		return max(v.all.hi-v.inner.hi, v.inner.lo-v.all.lo)
	case "avg_over_time":
		return all * min(1, (edges+2)/n)
	case "sum_over_time":
		if v.moving {
			return edges * v.all.largest()
		}
		return edges*edge + s.miscounted(edges)*v.all.largest()
	case "count_over_time":
		if v.moving {
			return edges
		}
		return s.miscounted(edges)
	case "changes":
		return edges
	case "resets":
		return float64(v.resets)
	case "increase", "histogram_count(increase)":
		return increase
	case "rate", "histogram_count(rate)":
		return increase / (float64(width) / 1000) * 1.02
	case "increase anchored", "increase smoothed":
		return v.edgeRise + 0.02*v.rise
	case "rate anchored", "rate smoothed":
		return (v.edgeRise + 0.02*v.rise) / (float64(width) / 1000)
	case "delta anchored", "delta smoothed":
		return 2*edge + 0.02*all
	case "changes anchored":
		return edges + 1
	case "resets anchored":
		return float64(v.resets)
	case "ts_of_max_over_time", "ts_of_min_over_time": // The value may be in a bucket that the window's edge cuts.
		return float64(width) / 1000
	case "delta":
		return 2*edge*v.stretch() + all*(v.stretch()-1)
	case "irate":
		return 2*v.steep + all/(max(1, v.sampled)/n)
	// The slope of a line through made samples has no proven bound, because these samples may cover only part of a
	// window. Of some 300,000 queries, one exceeded half of this value by 6%.
	case "deriv":
		return 12 * all / max(1, v.sampled)
	case "predict_linear":
		return all * (2 + 12*(float64(width)/1000+60)/max(1, v.sampled))
	case "quantile_over_time", "stddev_over_time", "mad_over_time":
		return all
	case "stdvar_over_time":
		return all * all
	case "timestamp", "ts_of_first_over_time", "ts_of_last_over_time":
		if s.wobbly {
			return 3 * s.every / 1000
		}
	}
	return 0
}

// miscounted returns the max error of the number of samples, given the number of samples in the buckets at the edges.
// If the samples of a series are at regular times, samples are made at the original times, so only these buckets
// matter.
func (s *boundedSeries) miscounted(edges float64) float64 {
	if s.wobbly {
		return min(edges, 8)
	}
	return 0
}
