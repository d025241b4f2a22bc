package resolution

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/prometheus/util/annotations"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/promql/bucketfn"
	"github.com/cassia-db/cassia/promql/bucketfn/bucketfntest"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/soak"
)

const (
	second = int64(1000)
	minute = 60 * second
	hour   = 60 * minute
	day    = 24 * hour
)

// someDay is midnight UTC, which is also the end of a slot and of buckets.
var someDay = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).UnixMilli()

// keptFor returns the retention boundaries at someDay if raw, 5m and 1h are kept for the given times. 0 means forever.
func keptFor(raw, five, one int64) [3]int64 {
	var h [3]int64
	for i, keep := range []int64{raw, five, one} {
		if h[i] = someDay - keep + 1; keep == 0 {
			h[i] = math.MinInt64
		}
	}
	return h
}

// TestChoose checks the segments of requests for the days before someDay.
func TestChoose(t *testing.T) {
	for _, c := range []struct {
		name      string
		recent    int64 // before midnight
		fn        string
		window    int64 // range or lookback
		days      int64
		offset    int64 // of the right edges from midnight
		step      int64 // 0: an instant query
		mode      Mode
		still     bool
		coarsest  rollup.Resolution
		horizon   [3]int64
		oldest    int64
		want      string
		info      string
		refused   string
		wantScale float64
	}{
		// Raw samples are kept.
		{name: "aligned to the hour", fn: "rate", window: hour, days: 90, step: hour, want: "0-2160 1h exact 1h0m0s"},
		{name: "aligned to the hour, by hours", fn: "max_over_time", window: 6 * hour, days: 30, step: 2 * hour, want: "0-360 1h exact 6h0m0s"},
		{name: "aligned to 5m", fn: "rate", window: 30 * minute, days: 90, step: hour, want: "0-2160 5m exact 30m0s"},
		{name: "aligned to 5m by its offset", fn: "rate", window: hour, days: 90, offset: 5 * minute, step: hour, want: "0-2160 5m exact 1h0m0s"},
		{name: "a short range stays raw", fn: "rate", window: 2 * minute, days: 90, step: hour, want: "0-2160 raw exact 2m0s"},
		{name: "buckets don't know quantiles", fn: "quantile_over_time", window: hour, days: 90, step: hour, want: "0-2160 raw exact 1h0m0s"},
		{name: "an instant query, aligned", fn: "increase", window: day, days: 1, want: "0-1 1h exact 24h0m0s"},
		{name: "an instant query: ragged ends from raw", fn: "increase", window: 30 * day, days: 1, offset: 1234567, want: "0-1 1h ragged 720h0m0s"},
		{name: "a short instant query", fn: "increase", window: 5 * minute, days: 1, offset: 1234567, want: "0-1 raw exact 5m0s"},
		{name: "days at half past five", fn: "sum_over_time", window: day, days: 90, offset: 18*hour + 30*minute, step: day, want: "0-90 5m exact 24h0m0s"},
		{name: "days at an odd time", fn: "sum_over_time", window: day, days: 90, offset: 18*hour + 31*minute, step: day, mode: modeExact, want: "0-90 1h ragged 24h0m0s"},
		{name: "few edges, in auto, too", fn: "sum_over_time", window: 2 * day, days: 6, offset: 1, step: 2 * day, want: "0-3 1h ragged 48h0m0s"},
		{name: "many edges: windows fit almost", fn: "sum_over_time", window: day, days: 90, offset: 31 * minute, step: day, want: "0-90 5m snapped 24h0m0s", info: "edges of 24h windows are moved by up to 2m (0.14 % of the range)"},
		{
			name: "the newest windows end where they are asked to", recent: 4 * hour, fn: "increase", window: 30 * day, days: 1, offset: 17*minute + 1, step: 30 * minute,
			horizon: keptFor(15*day, 60*day, 0), want: "0-48 1h snapped 720h0m0s until 2026-02-28T20:00:00Z", info: "edges of 720h windows are moved by up to 1h34m0.002s (0.22 % of the range)",
		},
		{
			name: "so do all that are new", recent: day, fn: "increase", window: 30 * day, days: 1, offset: 17*minute + 1, step: 30 * minute,
			horizon: keptFor(15*day, 60*day, 0), want: "0-48 1h snapped 720h0m0s until 2026-02-28T00:00:00Z", info: "edges of 720h windows are moved by up to 47m0.001s (0.11 % of the range)",
		},
		{name: "a resolution that is asked for has its own edges", recent: 4 * hour, mode: ModeOneHour, fn: "increase", window: 30 * day, days: 1, offset: 17*minute + 1, step: 30 * minute, want: "0-48 1h snapped 720h0m0s"},
		{name: "an instant query stays where it is", fn: "sum_over_time", window: day, days: 90, offset: 31 * minute, step: day, still: true, want: "0-90 1h ragged 24h0m0s"},
		{name: "so does what hangs on single samples", fn: "delta", window: day, days: 90, offset: 31 * minute, step: day, want: "0-90 1h ragged 24h0m0s"},
		{name: "hours at an odd time, exact", fn: "rate", window: hour, days: 90, offset: 1, step: hour, mode: modeExact, want: "0-2160 raw exact 1h0m0s"},
		{name: "no rollups at all", fn: "rate", window: hour, days: 90, step: hour, horizon: [3]int64{math.MinInt64, math.MaxInt64, math.MaxInt64}, want: "0-2160 raw exact 1h0m0s"},

		// Queries as Grafana sends them.
		{name: "$__rate_interval", fn: "rate", window: hour + 15*second, days: 90, step: hour, want: "0-2160 1h snapped 1h0m0s", info: "moved by up to 15s (0.41 % of the range) to bucket edges of 1h"},
		{name: "$__rate_interval, exact", fn: "rate", window: hour + 15*second, days: 90, step: hour, mode: modeExact, want: "0-2160 raw exact 1h0m15s"},
		{name: "from an unaligned start", fn: "rate", window: hour + minute, days: 90, offset: 17*minute + 23*second, step: hour, want: "0-2160 raw exact 1h1m0s"},
		{name: "a day is read exactly", fn: "rate", window: 5*minute + 15*second, days: 1, offset: -5 * minute, step: 5 * minute, want: "0-288 raw exact 5m15s"},
		{name: "10m steps over a week", fn: "rate", window: 10*minute + 15*second, days: 7, step: 10 * minute, want: "0-1008 raw exact 10m15s"},
		{name: "the ragged part is a tenth", fn: "rate", window: 50*minute + 5*minute, days: 90, offset: 2 * minute, step: hour, want: "0-2160 raw exact 55m0s"},
		{name: "the ragged part is more", fn: "rate", window: 35 * minute, days: 90, offset: 2 * minute, step: hour, want: "0-2160 raw exact 35m0s"},

		// Instant selectors.
		{name: "a selector on edges", window: 5 * minute, days: 90, step: hour, want: "0-2160 1h exact 5m0s"},
		{name: "a selector on edges of 5m", window: 5 * minute, days: 30, step: 30 * minute, want: "0-1440 5m exact 5m0s"},
		{name: "a selector is never moved", window: 5 * minute, days: 90, offset: 1, step: hour, want: "0-2160 raw exact 5m0s"},
		{name: "nor with a long lookback", window: day, days: 90, offset: 1, step: hour, want: "0-2160 raw exact 24h0m0s"},
		{name: "the newest sample needs no left edge", fn: "last_over_time", window: hour + 15*second, days: 90, step: hour, want: "0-2160 1h exact 1h0m15s"},
		{name: "nor does its edge cut a bucket", fn: "last_over_time", window: 7 * hour, days: 90, offset: 31 * minute, step: 6 * hour, mode: modeExact, want: "0-360 1h ragged 7h0m0s"},
		{name: "as it does for others", fn: "sum_over_time", window: 7 * hour, days: 90, offset: 31 * minute, step: 6 * hour, mode: modeExact, want: "0-360 raw exact 7h0m0s"},

		// Modes.
		{name: "raw", fn: "rate", window: hour, days: 90, step: hour, mode: ModeRaw, want: "0-2160 raw exact 1h0m0s"},
		{name: "5m asked for", fn: "rate", window: hour, days: 90, step: hour, mode: modeFiveMinutes, want: "0-2160 5m exact 1h0m0s"},
		{name: "1h asked for, of shorter windows", fn: "increase", window: 5 * minute, days: 1, step: 5 * minute, mode: ModeOneHour, want: "0-288 1h widened 1h0m0s", wantScale: 1.0 / 12},
		{name: "1h asked for, of what buckets don't know", fn: "quantile_over_time", window: hour, days: 90, step: hour, mode: ModeOneHour, want: "0-2160 raw exact 1h0m0s"},
		{name: "at most 5m", fn: "rate", window: hour, days: 90, step: hour, coarsest: rollup.FiveMinutes, want: "0-2160 5m exact 1h0m0s"},

		// Raw samples have expired.
		{name: "exact still", fn: "rate", window: hour, days: 90, step: hour, horizon: keptFor(15*day, 0, 0), want: "0-2160 1h exact 1h0m0s"},
		{
			name: "1h, then 5m, then raw", fn: "rate", window: 5 * minute, days: 90, step: hour, horizon: keptFor(15*day, 60*day, 0),
			want: "0-721 1h ragged 5m0s approximate; 721-2160 5m exact 5m0s", wantScale: 1,
			info: "from 2025-12-01T00:00:00Z to 2025-12-31T00:00:00Z window edges within buckets of up to 1h",
		},
		{
			name: "raw where it is", fn: "rate", window: 2 * minute, days: 90, offset: 1000, step: hour, horizon: keptFor(15*day, 60*day, 0),
			want: "0-721 1h ragged 2m0s approximate; 721-1801 5m ragged 2m0s approximate; 1801-2160 raw exact 2m0s",
			info: "within buckets of up to 1h",
		},
		{
			name: "a selector", window: 5 * minute, days: 90, offset: 7 * minute, step: hour, horizon: keptFor(15*day, 60*day, 0),
			want: "0-720 1h ragged 5m0s approximate; 720-1800 5m ragged 5m0s approximate; 1800-2160 raw exact 5m0s",
			info: "within buckets of up to 1h",
		},
		{
			name: "a selector on edges", window: 5 * minute, days: 90, step: hour, horizon: keptFor(15*day, 60*day, 0),
			want: "0-2160 1h exact 5m0s",
		},
		{
			name: "a part of an hour's increase", fn: "increase", window: 5 * minute, days: 30, step: 5 * minute, horizon: keptFor(day, day, 0),
			want: "0-8353 1h ragged 5m0s approximate; 8353-8640 5m exact 5m0s", wantScale: 1, info: "within buckets of up to 1h",
		},
		{
			name: "nearly fitting, as ever", fn: "rate", window: hour + 15*second, days: 30, step: hour, horizon: keptFor(day, 0, 0),
			want: "0-698 1h snapped 1h0m0s; 698-720 raw exact 1h0m15s", info: "edges of 1h0m15s windows are moved by up to 15s (0.41 % of the range) to the edges of buckets of up to 1h",
		},
		{
			name: "not fitting: what is finest", fn: "rate", window: 90 * minute, days: 30, offset: 2 * minute, step: hour, mode: modeExact,
			horizon: keptFor(day, 0, 0), want: "0-698 5m ragged 1h30m0s approximate; 698-720 raw exact 1h30m0s", info: "within buckets of up to 5m",
		},
		{
			name: "not fitting, in auto", fn: "rate", window: 90 * minute, days: 30, offset: 2 * minute, step: hour,
			horizon: keptFor(day, 0, 0), want: "0-698 5m ragged 1h30m0s approximate; 698-720 raw exact 1h30m0s", info: "within buckets of up to 5m",
		},
		{
			name: "not fitting, and only 1h left", fn: "increase", window: 90 * minute, days: 30, step: hour, horizon: keptFor(day, day, 0),
			want: "0-698 1h ragged 1h30m0s approximate; 698-720 5m exact 1h30m0s", wantScale: 1, info: "within buckets of up to 1h",
		},
		{
			name: "quantiles of what is left", fn: "quantile_over_time", window: hour, days: 30, step: hour, horizon: keptFor(day, 10*day, 0),
			want: "0-697 1h exact 1h0m0s approximate; 697-720 raw exact 1h0m0s",
			info: "quantiles are computed from sketches in buckets of up to 1h",
		},
		{
			name: "refused", fn: "idelta", window: hour, days: 30, step: hour, horizon: keptFor(day, 10*day, 0),
			refused: "promql: raw samples have expired: there are none before 2026-02-28T00:00:00Z, and idelta can't be computed from rollups (the last two samples aren't kept). Query a later time, or use rate, delta or an aggregation over time",
		},
		{name: "not refused where raw is", fn: "idelta", window: hour, days: 1, offset: hour, step: hour, horizon: keptFor(day, 10*day, 0), want: "0-24 raw exact 1h0m0s"},
		{
			name: "not refused before the first sample", fn: "idelta", window: hour, days: 30, step: hour, horizon: keptFor(2*day, 10*day, 0), oldest: someDay - day,
			want: "0-720 raw exact 1h0m0s",
		},
		{
			name: "raw alone, and gone", fn: "rate", window: hour, days: 30, step: hour, mode: ModeRaw, horizon: keptFor(15*day, 0, 0),
			want: "0-720 raw exact 1h0m0s", info: "no data is returned, because the query excludes wider buckets",
		},
		{name: "raw alone, and nothing else", fn: "rate", window: hour, days: 30, step: hour, mode: ModeRaw, horizon: keptFor(15*day, 15*day, 15*day), want: "0-720 raw exact 1h0m0s"},
		{
			name: "at most 5m, and gone", fn: "rate", window: hour, days: 30, step: hour, coarsest: rollup.FiveMinutes, horizon: keptFor(5*day, 15*day, 0),
			want: "0-720 5m exact 1h0m0s", info: "from 2026-01-30T00:00:00Z to 2026-02-14T00:00:00Z no data is returned",
		},
		{name: "all is gone alike", fn: "rate", window: 2 * minute, days: 30, step: hour, horizon: keptFor(5*day, 5*day, 5*day), want: "0-720 raw exact 2m0s"},
		{
			name: "an edge from raw that is gone", fn: "increase", window: 30 * day, days: 1, offset: 1234567, horizon: keptFor(15*day, 60*day, 0),
			want: "0-1 1h snapped 720h0m0s", info: "from 2026-02-28T00:20:34Z to 2026-02-28T00:20:34Z edges of 720h windows are moved by up to 41m9.134s (0.095 % of the range)",
		},
		{
			name: "an edge from raw that is gone, in an instant query", fn: "increase", window: 30 * day, days: 1, offset: 1234567, still: true, horizon: keptFor(15*day, 60*day, 0),
			want: "0-1 5m ragged 720h0m0s approximate", info: "within buckets of up to 5m",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Request{
				Func: c.fn, Range: c.window, Mode: c.mode, NoSnap: c.still, Coarsest: c.coarsest, Boundary: c.horizon,
				Oldest: c.oldest,
				From:   someDay - c.days*day + c.offset, Step: c.step, Slot: 2 * hour,
			}
			if r.To = r.From; c.step > 0 {
				r.To = r.From + c.days*day - c.step
			}
			if c.recent > 0 {
				r.Recent = someDay - c.recent
			}
			if c.horizon == [3]int64{} {
				r.Boundary = keptFor(0, 0, 0)
			}
			if c.oldest == 0 {
				r.Oldest = math.MinInt64
			}
			segments, short, err := Choose(r)
			if c.refused != "" {
				require.ErrorIs(t, err, ErrRawExpired)
				require.ErrorContains(t, err, c.refused)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, written(segments))
			if c.wantScale != 0 {
				require.InDelta(t, c.wantScale, segments[0].Windows.Scale, 1e-15)
			}
			if c.info == "" {
				require.NoError(t, short.Info())
				return
			}
			require.ErrorIs(t, short.Info(), annotations.PromQLInfo)
			require.ErrorContains(t, short.Info(), c.info)
		})
	}
}

func written(segments []Segment) string {
	text := ""
	for i, s := range segments {
		if i > 0 {
			text += "; "
		}
		e := s.Fit.String()
		if s.Fit == FitRagged {
			e = "ragged"
		}
		text += fmt.Sprintf("%d-%d %v %s %v", s.FromStep, s.ToStep, s.Resolution, e,
			time.Duration(s.Windows.Span)*time.Millisecond)
		if s.Approximate {
			text += " approximate"
		}
		if s.Windows.SnapUntil != 0 {
			text += " until " + FormatTime(s.Windows.SnapUntil)
		}
	}
	return text
}

// generateRequest returns a random request. Most requests have edges that fit buckets exactly or nearly.
func generateRequest(r *rand.Rand) Request {
	pick := func(of ...int64) int64 { return of[r.IntN(len(of))] }
	span := func() int64 {
		return pick(minute, 5*minute, 15*minute, hour, 2*hour, day,
			7*day)*(1+r.Int64N(3)) + pick(0, 0, 0, 1, 15*second, minute)
	}
	q := Request{
		Func: bucketfn.Names()[r.IntN(len(bucketfn.Names()))], Range: span(), Step: span(), Slot: 2 * hour,
		From: someDay - r.Int64N(90)*day + pick(0, 0, 5*minute, 17*minute, hour, 1), Mode: Mode(r.IntN(len(modeNames))),
		Oldest: math.MinInt64, Boundary: keptFor(0, 0, 0),
	}
	q.NoSnap = r.IntN(4) == 0
	if r.IntN(3) == 0 {
		q.Recent = someDay - r.Int64N(2*day)
	}
	if r.IntN(5) == 0 {
		q.Coarsest = rollup.Resolution(1 + r.IntN(2))
	}
	if r.IntN(5) > 0 {
		raw := 1 + r.Int64N(60)
		five := raw + r.Int64N(60)
		q.Boundary = keptFor(raw*day, five*day, (five+r.Int64N(100))*day)
		if r.IntN(2) == 0 { // not at the edge of a bucket
			q.Boundary[r.IntN(3)] += r.Int64N(2 * hour)
		}
	}
	if h := q.Boundary[r.IntN(3)]; h != math.MinInt64 && r.IntN(3) == 0 { // steps around a boundary
		q.From = h + pick(0, hour, r.Int64N(hour), q.Range, q.Range-1) - q.Step*r.Int64N(10)
	}
	q.To = q.From + q.Step*r.Int64N(300)
	if r.IntN(4) == 0 {
		q.Oldest = someDay - r.Int64N(100)*day
	}
	return q
}

// TestChoiceProperties checks properties that every choice must have, with generated requests.
func TestChoiceProperties(t *testing.T) {
	seed := soak.Seed(t)
	r := rand.New(rand.NewPCG(seed, 2))
	refusals := 0
	for range 5000 {
		q := generateRequest(r)
		context := fmt.Sprintf("seed %d: %+v", seed, q)
		segments, short, err := Choose(q)
		if err != nil {
			require.ErrorIs(t, err, ErrRawExpired, context)
			require.Equal(t, bucketfn.WithoutRawRefused, bucketfn.LookupFunction(q.Func).WithoutRaw, context)
			require.Less(t, q.From-q.Range, q.Boundary[rollup.Raw]-1, context)
			refusals++
			continue
		}
		next, allExact := 0, true
		for _, s := range segments {
			require.Equal(t, next, s.FromStep, "%s: segments follow one another", context)
			require.Greater(t, s.ToStep, s.FromStep, context)
			require.Equal(t, q.From+int64(s.FromStep)*q.Step, s.Windows.First, context)
			require.Equal(t, s.ToStep-s.FromStep, s.Windows.Steps, context)
			next = s.ToStep
			requireSegment(t, q, s, context)
			allExact = allExact && s.IsExact()
		}
		require.Equal(t, q.steps(), next, "%s: segments cover all steps", context)
		if allExact && q.Mode.Allows(rollup.OneHour, q.Coarsest) {
			require.NoError(t, short.Info(), "%s: nothing to tell of exact answers", context)
		}
	}
	require.Positive(t, refusals)
}

// requireSegment checks one segment step by step.
func requireSegment(t *testing.T, q Request, s Segment, context string) {
	context = fmt.Sprintf("%s: %s", context, written([]Segment{s}))
	fn, width := bucketfn.LookupFunction(q.Func), s.Resolution.Width()
	oldest := q.Boundary[rollup.Raw] // of all allowed resolutions
	for _, res := range rollup.Resolutions {
		if q.Mode.Allows(res, q.Coarsest) {
			oldest = min(oldest, q.Boundary[res])
		}
	}
	oldest = max(oldest, q.Oldest)
	rawThere := func(k int) bool {
		return max(q.From+int64(k)*q.Step-q.Range+1, oldest) >= q.Boundary[rollup.Raw]
	}
	for _, k := range []int{s.FromStep, (s.FromStep + s.ToStep) / 2, s.ToStep - 1} {
		right := q.From + int64(k)*q.Step
		left := right - q.Range
		a, b := s.Window(right)
		if s.Fit <= FitRagged {
			require.Equal(t, []int64{left, right}, []int64{a, b}, context)
		}
		if s.Resolution == rollup.Raw {
			require.Equal(t, FitAligned, s.Fit, context)
			require.False(t, s.Approximate, context)
			continue
		}
		require.True(t, fn.IsFromBuckets() || s.Approximate, "%s: buckets can't say", context)
		require.LessOrEqual(t, b, right, "%s: never the future", context)
		require.Less(t, right-b, width, "%s: the nearest bucket", context)
		require.GreaterOrEqual(t, b-a, min(q.Range, width), context)
		if s.Fit != FitRagged && !s.Approximate {
			require.True(t, b%width == 0 || b == right && s.Fit == FitSnapped && right > q.Recent, context)
			require.True(t, fn.Newest || a%width == 0, context)
		}
		if s.Fit == FitRagged || s.Fit != FitAligned && q.Mode == modeExact {
			require.Equal(t, s.Fit == FitRagged && !s.Approximate, rawThere(k),
				"%s: exact mode never moves windows where raw samples are", context)
		}
		if s.Approximate {
			require.False(t, rawThere(k), "%s: samples are made only where they are gone", context)
		}
		if s.Fit == FitSnapped && q.Mode == modeAuto && rawThere(k) {
			require.LessOrEqual(t, (right-b)+max(a-left, left-a), q.Range/100, context)
			require.True(t, fn.Snaps && !q.NoSnap, "%s: it never moves where raw samples are", context)
		}
		if s.Fit == FitAligned && q.Mode <= modeExact && s.Resolution == rollup.FiveMinutes &&
			q.Coarsest != rollup.FiveMinutes && !s.Approximate {
			fitsHour := right%hour == 0 && (fn.Newest || left%hour == 0)
			hourThere := max(bucketfn.FloorTo(right, hour)-bucketfn.CeilTo(q.Range, hour)+1,
				oldest) >= q.Boundary[rollup.OneHour]
			everyStep := s.ToStep-s.FromStep > 1
			require.False(t, everyStep && q.Step%hour == 0 && fitsHour && hourThere, "%s: the coarsest", context)
		}
		require.GreaterOrEqual(t, max(a+1, oldest), q.Boundary[s.Resolution],
			"%s: all of (%d, %d] is kept", context, a, b)
	}
}

// TestSegmentsAnswerTheirWindows compares values from buckets with the values of Prometheus' functions over the samples
// in a segment's windows. The windows of an exact segment are the requested windows, with cells where edges cut
// buckets. The windows of other segments are moved, and the values are scaled down if the windows were widened.
func TestSegmentsAnswerTheirWindows(t *testing.T) {
	seed := soak.Seed(t)
	r := rand.New(rand.NewPCG(seed, 3))
	funcs := map[string]*bucketfn.Evaluator{}
	for _, f := range bucketfntest.Evaluators() {
		funcs[f.Name()] = f
	}
	compared := map[Fit]int{}
	for i := range 3000 {
		q := generateRequest(r)
		q.From += hour * r.Int64N(24*89)
		q.To = min(q.To, q.From+30*q.Step)
		if i%2 == 0 {
			q.Boundary, q.Oldest = keptFor(0, 0, 0), math.MinInt64
		}
		segments, _, err := Choose(q)
		if bucketfn.LookupFunction(q.Func).WithoutRaw != bucketfn.WithoutRawRefused {
			require.NoError(t, err)
		}
		for _, s := range segments {
			if s.Resolution == rollup.Raw || s.Approximate {
				continue
			}
			samples := generateAround(r, s, bucketfntest.SeriesKinds[r.IntN(len(bucketfntest.SeriesKinds))])
			b := cellsOf(s, samples, q.Slot)
			context := fmt.Sprintf("seed %d: %+v: %s", seed, q, written([]Segment{s}))
			compared[s.Fit] += bucketfntest.RequireExact(t, []*bucketfn.Evaluator{funcs[q.Func]}, samples, b, s.Windows,
				context)
		}
	}
	for _, e := range []Fit{FitAligned, FitRagged, FitSnapped, fitWidened} {
		require.Greater(t, compared[e], 200, "edges %d", e)
	}
}

// generateAround returns samples near the edges of a segment's windows and samples between them.
func generateAround(r *rand.Rand, s Segment, kind string) *chunk.Samples {
	made := bucketfntest.GenerateSeries(r, kind, 200)
	at := map[int64]bool{}
	for len(at) < made.Len() {
		a, b := s.Windows.Window(r.IntN(s.Windows.Steps))
		switch r.IntN(3) {
		case 0:
			at[a+r.Int64N(3)-1] = true
		case 1:
			at[b+r.Int64N(3)-1] = true
		default:
			at[a+r.Int64N(b-a+1)] = true
		}
		if len(at) < made.Len() && r.IntN(2) == 0 {
			at[s.Windows.First-s.Windows.Span-hour+r.Int64N(s.Windows.Span+2*hour)] = true
		}
	}
	times, floats, hists := bucketfntest.SortedKeys(at), 0, 0
	out := &chunk.Samples{}
	for _, t := range times {
		if floats < len(made.T) && (hists == len(made.H) || made.T[floats] < made.H[hists].T) {
			out.AppendFloat(t, 0, made.V[floats])
			floats++
			continue
		}
		h := made.H[hists]
		h.T = t
		out.AppendHistogram(h)
		hists++
	}
	return out
}

// TestSlotsCounted compares the numbers of slots with numbers that are counted edge by edge.
func TestSlotsCounted(t *testing.T) {
	seed := soak.Seed(t)
	r := rand.New(rand.NewPCG(seed, 5))
	for range 300 {
		q := generateRequest(r)
		c := newChoice(q)
		n := c.steps()
		for _, res := range rollup.Resolutions {
			cut, covered := map[int64]bool{}, map[int64]bool{}
			for k := range n {
				left, right := c.rightEdge(k)-q.Range, c.rightEdge(k)
				if right%res.Width() != 0 {
					cut[c.slotOf(right)] = true
				}
				if left%res.Width() != 0 && !c.fn.Newest {
					cut[c.slotOf(left)] = true
				}
				for slot := c.slotOf(left + 1); slot <= c.slotOf(right); slot++ {
					covered[slot] = true
				}
			}
			require.Equal(t, len(cut), c.countCutSlots(res, 0, n), "seed %d: %+v", seed, q)
			require.Equal(t, len(covered), c.countCoveredSlots(0, n), "seed %d: %+v", seed, q)
		}
	}
}

// cellsOf returns the buckets and cells that a reader of the segment would read: buckets and, in slots with a cut
// bucket, cells of raw samples.
func cellsOf(s Segment, samples *chunk.Samples, slot int64) *rollup.Buckets {
	b := &rollup.Buckets{}
	for samples.Len() > 0 {
		first := int64(math.MaxInt64)
		if len(samples.T) > 0 {
			first = samples.T[0]
		}
		if len(samples.H) > 0 {
			first = min(first, samples.H[0].T)
		}
		end := bucketfn.CeilTo(first, slot)
		var part, rest chunk.Samples
		part.AppendAll(samples)
		part.Clip(math.MinInt64, end)
		rest.AppendAll(samples)
		rest.Clip(end+1, math.MaxInt64)
		rollup.AppendCells(b, &part, s.AppendCuts(nil, end-slot, end), s.Resolution.Width())
		samples = &rest
	}
	return b
}
