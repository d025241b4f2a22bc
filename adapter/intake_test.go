package adapter

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/storagetest"
	"github.com/cassia-db/cassia/storage/tenant"
)

var testNow = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func newStore(t *testing.T) *storage.Store {
	return storagetest.Open(t, storagetest.Pebble(t), storagetest.FixedClock(testNow), storagetest.RejectAhead)
}

// countingBatch is a Batch that counts its commits.
type countingBatch struct {
	Batch
	commits *int
}

func (c countingBatch) Commit(ctx context.Context) error {
	*c.commits++
	return c.Batch.Commit(ctx)
}

func countStored(t *testing.T, s *storage.Store, tenant, metric string) (series, samples int) {
	found, err := s.Select(t.Context(), query.Query{
		Tenant: tenant, MinT: math.MinInt64 / 2, MaxT: math.MaxInt64 / 2,
		Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, metric)},
	})
	require.NoError(t, err)
	for _, one := range found {
		var read chunk.Samples
		require.NoError(t, one.Samples(&read))
		samples += read.Len()
	}
	return len(found), samples
}

func TestIntakeStoresAndRefuses(t *testing.T) {
	s := newStore(t)
	now, commits := testNow.UnixMilli(), 0
	in := NewIntake(t.Context(), "a", func(tenant string) Batch { return countingBatch{s.NewBatch(tenant), &commits} })
	float := labels.FromStrings("__name__", "m", "x", "1")
	require.NoError(t, in.Float(float, now, 0, 1))
	require.NoError(
		t, in.Float(labels.FromStrings("__name__", "m", "empty", "", "x", "1"), now+1, 0, 2), "the same series",
	)
	require.NoError(
		t, in.Histogram(labels.FromStrings("__name__", "h"), now, 0, tsdbutil.GenerateTestHistogram(3), nil),
	)
	require.NoError(
		t, in.Histogram(labels.FromStrings("__name__", "h"), now+1, 0, nil, tsdbutil.GenerateTestFloatHistogram(3)),
	)
	for reason, err := range map[string]error{
		ReasonTooOld:                    in.Float(float, 1, 0, 1),
		ReasonTooFarAhead:               in.Float(float, now+time.Hour.Milliseconds(), 0, 1),
		ReasonInvalidHistogram:          in.Histogram(float, now+2, 0, &histogram.Histogram{PositiveSpans: []histogram.Span{{Length: 3}}}, nil),
		storage.ReasonMissingMetricName: in.Float(labels.FromStrings("x", "1"), now, 0, 1),
		storage.ReasonDuplicateLabel:    in.Float(duplicateLabels(), now, 0, 1),
	} {
		var rejected *RejectedError
		require.ErrorAs(t, err, &rejected, reason)
		require.Equal(t, reason, rejected.Reason)
	}
	require.Zero(t, in.DurableSamples())
	require.NoError(t, in.Commit())
	require.Equal(t, 4, in.DurableSamples())
	require.Equal(t, 1, commits)
	series, samples := countStored(t, s, "a", "m")
	require.Equal(t, [2]int{1, 2}, [2]int{series, samples})
	series, samples = countStored(t, s, "a", "h")
	require.Equal(t, [2]int{1, 2}, [2]int{series, samples})
	series, _ = countStored(t, s, "b", "m")
	require.Zero(t, series, "another tenant sees nothing of it")
}

// duplicateLabels returns labels in which one name occurs twice, once with an empty value. Removing empty labels would
// hide the duplicate.
func duplicateLabels() labels.Labels {
	b := labels.NewScratchBuilder(3)
	b.Add("__name__", "m")
	b.Add("x", "")
	b.Add("x", "1")
	return b.Labels()
}

func TestIntakeCommitsWhatIsLarge(t *testing.T) {
	s := newStore(t)
	now, commits := testNow.UnixMilli(), 0
	in := NewIntake(t.Context(), "a", func(tenant string) Batch { return countingBatch{s.NewBatch(tenant), &commits} })
	const n = BatchBytes/SampleBytes + 10
	for i := range n {
		ls := labels.FromStrings("__name__", "m", "x", strconv.Itoa(i%2))
		require.NoError(t, in.Float(ls, now-int64(i), 0, 1))
	}
	require.Equal(t, 1, commits, "one commit in the middle")
	in.Release()
	require.Equal(t, n-10, in.DurableSamples())
	series, samples := countStored(t, s, "a", "m")
	require.Equal(t, [2]int{2, n - 10}, [2]int{series, samples})
}

// droppingBatch is a Batch that drops samples and exemplars with negative values, as a relabeling rule may drop a
// series.
type droppingBatch struct{ Batch }

func (d droppingBatch) Float(ref *storage.Series, t, st int64, v float64) error {
	if v < 0 {
		return ErrDropped
	}
	return d.Batch.Float(ref, t, st, v)
}

func (d droppingBatch) Exemplar(ref *storage.Series, e exemplar.Exemplar) error {
	if e.Value < 0 {
		return ErrDropped
	}
	return d.Batch.Exemplar(ref, e)
}

func TestIntakeDropsByRules(t *testing.T) {
	s := newStore(t)
	now, commits := testNow.UnixMilli(), 0
	rules := Shape(func(_ string, b *storage.Batch) Batch { return droppingBatch{countingBatch{b, &commits}} })
	in := NewIntake(t.Context(), "a", func(tenant string) Batch { return rules.WrapBatch(tenant, s.NewBatch(tenant)) })
	ls := labels.FromStrings("__name__", "m")
	require.Equal(t, ErrDropped, in.Float(ls, now, 0, -1))
	require.Equal(t, ErrDropped, in.Exemplar(ls, exemplar.Exemplar{Value: -1, Ts: now, HasTs: true}))
	require.NoError(t, in.Commit())
	require.Zero(t, commits, "there is nothing to commit")
	require.NoError(t, in.Exemplar(ls, exemplar.Exemplar{Value: 1, Ts: now, HasTs: true}))
	var rejected *RejectedError
	require.ErrorAs(t, in.Exemplar(ls, exemplar.Exemplar{
		Labels: labels.FromStrings("trace_id", strings.Repeat("x", 200)), Ts: now, HasTs: true,
	}), &rejected)
	require.Equal(t, ReasonInvalidExemplar, rejected.Reason)
	require.NoError(t, in.Commit())
	require.Equal(t, 1, commits, "exemplars alone are committed, too")
	require.Zero(t, in.DurableSamples(), "samples")

	none := NewIntake(t.Context(), "b", func(tenant string) Batch {
		return Shape(nil).WrapBatch(tenant, s.NewBatch(tenant))
	})
	require.NoError(t, none.Float(ls, now, 0, -1))
	require.NoError(t, none.Commit())
	require.Equal(t, 1, none.DurableSamples())
	series, _ := countStored(t, s, "a", "m")
	require.Zero(t, series)
	series, _ = countStored(t, s, "b", "m")
	require.Equal(t, 1, series)
}

// A tenant's limit that is reached in a later batch of a request is reported for the whole request, because senders
// repeat all of it.
func TestIntakeTellsALimitOfAllItsSamples(t *testing.T) {
	const burst = BatchBytes/SampleBytes + 5
	limits, err := tenant.ParseLimits([]byte(fmt.Sprintf("tenants: {a: {samples_per_second: 1, samples_burst: %d}}",
		burst)))
	require.NoError(t, err)
	s := storagetest.Open(t, storagetest.Pebble(t), storagetest.FixedClock(testNow), func(o *storage.Options) {
		o.Limiter = tenant.NewLimiter(o.Now, nil)
		o.Limiter.Set(limits)
	})
	in := NewIntake(t.Context(), "a", func(tenant string) Batch { return s.NewBatch(tenant) })
	for i := range burst + 1 {
		require.NoError(t, in.Float(labels.FromStrings("__name__", "m"), testNow.UnixMilli()-int64(i), 0, 1))
	}
	var limit *tenant.LimitError
	require.ErrorAs(t, in.Commit(), &limit)
	require.Equal(t, http.StatusRequestEntityTooLarge, limit.Status,
		"the last six would be taken a little later, the request never will be")
	require.Contains(t, limit.Detail, fmt.Sprint(burst+1, " samples, more than the burst limit of "))
	require.Equal(t, BatchBytes/SampleBytes, in.DurableSamples())
}
