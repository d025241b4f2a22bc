package overhttp

import (
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
)

// testBuckets returns a series with n buckets of a resolution, starting at a time.
func testBuckets(name string, res rollup.Resolution, from time.Time, n int) storage.ImportedBuckets {
	s := storage.ImportedBuckets{
		Labels: labels.FromStrings(labels.MetricName, name, "empty", ""), Resolution: res, Buckets: &rollup.Buckets{},
	}
	width := res.Width()
	start := from.UnixMilli() - from.UnixMilli()%width
	for i := range int64(n) {
		end := start + (i+1)*width
		s.Buckets.AppendAggregate(rollup.Aggregate{
			End: end, Count: uint32(2 + i%3), Sum: float64(2 * i), Min: 0, Max: float64(2 * i), First: 0,
			Last: float64(i), FirstT: end - width + 1, LastT: end - 1,
		}, width)
	}
	return s
}

// TestBucketsOverHTTP imports buckets of both resolutions in many bodies, twice. The buckets are stored unchanged,
// those of the finer resolution first.
func TestBucketsOverHTTP(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour
	r := newRig(t, func(o *Options) { o.MaxWeight = 1 << 16 }, func(o *storage.Options) {
		o.Retention, o.Retention5m, o.Retention1h = 10*day, 40*day, 0
	})
	fine, coarse := now.Add(-30*day), now.Add(-200*day)
	for i := range 2 {
		list := []storage.ImportedBuckets{
			testBuckets("both", rollup.OneHour, coarse, 100), testBuckets("both", rollup.FiveMinutes, coarse, 24),
			testBuckets("fine", rollup.FiveMinutes, fine, 1300),
		}
		stats, err := r.ImportBuckets(t.Context(), "a", list)
		require.NoError(t, err)
		require.Empty(t, stats.Refusals)
		require.Equal(t, i == 0, stats.HoursOnly > 0, "%+v", stats)
		require.Zero(t, stats.TooCoarse)
		require.Positive(t, stats.LeftOut, "hours of which there are finer buckets")
	}
	require.Greater(t, r.posts, 10)
	read := func(name string, res rollup.Resolution) *rollup.Buckets {
		found, err := r.store.Select(t.Context(), query.Query{
			Tenant: "a", MinT: 0, MaxT: math.MaxInt64 / 2, Resolution: res, Columns: rollup.AllColumns,
			Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, name)},
		})
		require.NoError(t, err)
		require.Len(t, found, 1)
		b := &rollup.Buckets{}
		require.NoError(t, found[0].Buckets(b, &query.BucketBuffers{}))
		return b
	}
	require.True(t, testBuckets("fine", rollup.FiveMinutes, fine, 1300).Buckets.Equal(read("fine", rollup.FiveMinutes)))
	hours := read("both", rollup.OneHour)
	want := testBuckets("both", rollup.OneHour, coarse, 100).Buckets
	require.Equal(t, want.End, hours.End)
	require.Equal(t, want.Count[2:], hours.Count[2:])
	require.Greater(t, hours.Count[0], want.Count[0], "of twelve finer buckets")

	recent, err := r.ImportBuckets(t.Context(), "a", []storage.ImportedBuckets{
		testBuckets("recent", rollup.FiveMinutes, now.Add(-day), 3),
	})
	require.NoError(t, err)
	require.Equal(t, 9, recent.TooCoarse)
}

// TestBodiesOfBucketsThatAreRefused checks that malformed bodies of buckets are rejected.
func TestBodiesOfBucketsThatAreRefused(t *testing.T) {
	t.Parallel()
	s := testBuckets("x", rollup.OneHour, now.Add(-100*24*time.Hour), 3)
	one, weight := appendBuckets(nil, &s)
	require.Positive(t, weight)
	var h chunk.Samples
	h.AppendHistogram(chunk.Histogram{
		T: now.Add(-100 * 24 * time.Hour).UnixMilli(), Int: &histogram.Histogram{Count: 1, ZeroCount: 1},
	})
	embedded := storage.ImportedBuckets{Labels: s.Labels, Resolution: s.Resolution, Buckets: &rollup.Buckets{}}
	rollup.AppendEvery(embedded.Buckets, &h, s.Resolution.Width())
	histograms, _ := appendBuckets(nil, &embedded)
	take := func(int64) error { return nil }
	for name, body := range map[string][]byte{
		"another width": encodeRollups(rollup.FiveMinutes, [][]byte{one}),
		"unknown":       encodeRollups(rollup.OneHour+1, [][]byte{one}),
		"samples":       encodeRollups(rollup.Raw, [][]byte{one}),
		"histograms":    encodeRollups(rollup.OneHour, [][]byte{histograms}),
		"cut":           encodeRollups(rollup.OneHour, [][]byte{one[:len(one)-3]}),
	} {
		plain, err := snappy.Decode(nil, body)
		require.NoError(t, err)
		_, _, err = decodeBody(plain, take)
		require.ErrorIs(t, err, errMalformed, name)
	}
	r := newRig(t, func(*Options) {}, nil)
	_, err := r.Terms(t.Context(), "a")
	require.NoError(t, err)
	body := encodeRollups(rollup.OneHour, [][]byte{one})
	err = r.sendRequest(t.Context(), http.MethodPost, "a", "compare", nil, body, &compareResponse{})
	require.ErrorContains(t, err, "buckets can't be compared")
}
