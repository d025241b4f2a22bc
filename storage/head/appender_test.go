package head

import (
	"math"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/format"
)

const testSlot = 7_200_000 // milliseconds

// testHead is a head with an appender and a series.
type testHead struct {
	*Head
	appender *Appender
	series   *Series
}

func newTestHead(t *testing.T) *testHead {
	h := New(1, format.NewPeriods(format.Period{SlotMS: testSlot, RawWindowMS: format.DayMS, Partitions: 1}))
	series, err := h.Define(h.Tenant("ann"), labels.FromStrings(labels.MetricName, "up"), nil)
	require.NoError(t, err)
	return &testHead{h, NewAppender(h, "w", format.BlobFull, func(int64) bool { return false }), series}
}

// stage stages samples with the given timestamps and returns the number of rows that a commit would write.
func (h *testHead) stage(times ...int64) (rows int) {
	var samples []Sample
	for _, at := range times {
		samples = append(samples, Sample{Series: h.series, T: at, V: math.Float64bits(float64(at))})
	}
	h.appender.Begin()
	h.appender.Stage(samples, nil)
	for _, b := range h.appender.Batches(nil) {
		rows += len(b.Mutations)
	}
	return rows
}

// times returns the timestamps found by a query.
func (h *testHead) times(t *testing.T) []int64 {
	var samples chunk.Samples
	for _, unsealed := range h.Select(t.Context(), "ann", nil, -format.MaxTime, format.MaxTime, false) {
		require.NoError(t, unsealed.Read(-format.MaxTime, format.MaxTime, &samples))
	}
	samples.Normalize()
	return samples.T
}

// TestAppender commits samples, fails a commit to an open generation and a commit to a new slot, and seals. Samples
// must be found only once they are published, and only until they are released.
func TestAppender(t *testing.T) {
	h := newTestHead(t)
	require.Equal(t, 1, h.stage(1, 2))
	require.Empty(t, h.times(t), "it isn't durable yet")
	h.appender.Publish(time.Time{})
	require.Equal(t, []int64{1, 2}, h.times(t))
	require.Zero(t, h.stage(2), "the last one was sent again")
	h.appender.Publish(time.Time{})

	require.Equal(t, 2, h.stage(3, testSlot+1))
	h.appender.Fail()
	require.Equal(t, []int64{1, 2}, h.times(t))
	require.Len(t, h.Slots(0), 1, "nothing durable is in the other slot")

	require.Equal(t, 1, h.stage(3))
	require.Equal(t, int64(3), h.appender.Streams()[0].LastSeq(), "no number names two contents")
	require.False(t, h.appender.Streams()[0].DependsOnEarlier(), "what the blob that failed defined may not be there")
	h.appender.Publish(time.Time{})
	require.Equal(t, []int64{1, 2, 3}, h.times(t))

	at := SlotPartition{Slot: h.Slots(0)[0]}
	closed, last := h.CloseGenerations(at)
	require.Len(t, closed, 2)
	require.Equal(t, int64(3), last)
	require.True(t, IsCovered(closed, format.StageRow{Writer: "w", Seq: 1}))
	require.False(t, IsCovered(closed, format.StageRow{Writer: "w", Seq: 2}), "its commit failed")
	require.Equal(t, []int64{1, 2, 3}, h.times(t))
	h.ReleaseGenerations(at, closed, true)
	require.Empty(t, h.times(t))
	require.Equal(t, 1, h.GC())
	require.Zero(t, h.Bytes())

	require.Equal(t, 1, h.stage(4), "a batch may still hold the series")
	require.Equal(t, int64(4), h.appender.Streams()[0].LastSeq(), "numbers go on")
	h.appender.Publish(time.Time{})
	require.Equal(t, []int64{4}, h.times(t))
}

// TestReleaseFindsASlotThatGoes fails a commit and starts another one in the same slot, after ReleaseGenerations has
// found the slot and before it drops the generations. The samples of the second commit, and the numbers of its blobs,
// must be kept.
func TestReleaseFindsASlotThatGoes(t *testing.T) {
	h := newTestHead(t)
	h.stage(1)
	var found *openSlot
	require.True(t, h.viewSlot(SlotPartition{}, func(c *openSlot) { found = c }))
	h.appender.Fail()
	h.stage(2)
	h.dropGenerations(found, nil)
	h.appender.Publish(time.Time{})
	require.Equal(t, []int64{2}, h.times(t))

	h.stage(3)
	require.Equal(t, int64(3), h.appender.Streams()[0].LastSeq(), "no number names two contents")
	h.appender.Publish(time.Time{})
	closed, _ := h.CloseGenerations(SlotPartition{})
	h.ReleaseGenerations(SlotPartition{}, closed, true)
	require.Equal(t, 1, h.GC())
	require.Zero(t, h.Bytes())
}

// TestStageBesideRevival checks, with -race, that samples of a released series can be staged while another goroutine
// revives the series, as a follower of other processes does.
func TestStageBesideRevival(t *testing.T) {
	h := newTestHead(t)
	// This series keeps the tenant in the head.
	other, err := h.Define(h.Tenant("ann"), labels.FromStrings(labels.MetricName, "other"), nil)
	require.NoError(t, err)
	h.appender.Begin()
	h.appender.Stage([]Sample{{Series: other, T: 2 * testSlot}}, nil)
	h.appender.Publish(time.Time{})
	for at := int64(1); at < 100; at++ {
		var revival sync.WaitGroup
		revival.Go(func() { h.reinsertSeries(h.series) })
		runtime.Gosched()
		require.Equal(t, 1, h.stage(at))
		revival.Wait()
		h.appender.Publish(time.Time{})
		closed, _ := h.CloseGenerations(SlotPartition{})
		h.ReleaseGenerations(SlotPartition{}, closed, true)
		require.Equal(t, 1, h.GC())
	}
}

// TestQueriesBesideCommits checks, with -race, that samples can be read while others are added and generations are
// closed and released.
func TestQueriesBesideCommits(t *testing.T) {
	h := newTestHead(t)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	readers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				var samples chunk.Samples
				for _, unsealed := range h.Select(t.Context(), "ann", nil, -format.MaxTime, format.MaxTime, false) {
					if err := unsealed.Read(-format.MaxTime, format.MaxTime, &samples); err != nil {
						t.Error(err)
					}
				}
				h.Stats()
			}
		}
	})
	for i := range int64(3 * freezeAfter) {
		h.stage(i + 1)
		h.appender.Publish(time.Time{})
		if at := (SlotPartition{}); i%100 == 99 && h.HasSlotPartition(at) {
			closed, _ := h.CloseGenerations(at)
			h.ReleaseGenerations(at, closed, true)
		}
	}
	close(stop)
	readers.Wait()
	require.Len(t, h.times(t), 3*freezeAfter%100)
}
