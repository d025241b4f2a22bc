package promql

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/meter"
	"github.com/cassia-db/cassia/storage/storagetest"
	"github.com/cassia-db/cassia/storage/tenant"
)

// TestSmallReadsAlwaysHaveRoom checks that part of the memory is reserved for small reads: they start and aren't ended,
// however much memory large reads use.
func TestSmallReadsAlwaysHaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := DefaultOptions()
		o.Memory, o.UnreadBytes, o.MaxConcurrency = 1<<30, 1<<26, 4
		e := NewEngine(o)
		defer func() { require.NoError(t, e.Close()) }()
		defer time.Sleep(time.Second) // Wait until memory is no longer measured.
		var used atomic.Int64
		e.pressure.used = used.Load
		enter := func() (ctx context.Context, leave func()) {
			ctx, leave, err := e.Enter(t.Context())
			require.NoError(t, err)
			return ctx, leave
		}
		begins := func(when string) {
			began := time.Now()
			ctx, leave := enter()
			require.NoError(t, meter.Grow(ctx, e.gate.largeBytes), when)
			require.Zero(t, time.Since(began), when)
			leave()
		}
		var larges []context.Context
		var leaves []func()
		for range 3 {
			ctx, leave := enter()
			require.NoError(t, meter.Grow(ctx, o.Memory/16))
			larges, leaves = append(larges, ctx), append(leaves, leave)
		}
		small, leaveSmall := enter()
		require.NoError(t, meter.Grow(small, e.gate.largeBytes))

		used.Store(o.Memory * 85 / 100)
		time.Sleep(pressureInterval + time.Millisecond)
		synctest.Wait()
		begins("memory is full")
		used.Store(o.Memory * 99 / 100)
		time.Sleep(10*pressureInterval + time.Millisecond)
		synctest.Wait()
		for _, ctx := range larges {
			require.Error(t, ctx.Err())
		}
		begins("all large reads are about to end")
		time.Sleep(time.Minute)
		require.NoError(t, small.Err(), "the newest read is small")
		for _, leave := range leaves {
			leave()
		}
		used.Store(0)
		time.Sleep(pressureInterval + time.Millisecond)
		leaveSmall()

		var answers [2]context.Context
		for i := range answers {
			ctx, leave := enter()
			require.NoError(t, meter.Grow(ctx, o.Memory/8))
			answers[i] = ctx
			defer leave()
		}
		for _, ctx := range answers {
			HoldAnswer(ctx, o.Memory/4)
		}
		begins("nobody reads the answers of large reads")
		waits := func(enter func(context.Context) error, message string) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			require.ErrorIs(t, enter(ctx), context.DeadlineExceeded, message)
		}
		waits(func(ctx context.Context) error {
			ctx, leave, err := e.Enter(ctx)
			require.NoError(t, err)
			defer leave()
			return meter.Grow(ctx, 2*e.gate.largeBytes)
		}, "a large read")
		for range minUnreadAnswers * 4 {
			ctx, leave := enter()
			HoldAnswer(ctx, e.gate.largeBytes)
			defer leave()
		}
		waits(func(ctx context.Context) error {
			_, leave, err := e.Enter(ctx)
			leave()
			return err
		}, "nobody reads the answers of small reads")
	})
}

// TestReadsThatWorkForLongAreLarge checks that reads that compute for long give their places to other reads, and wait
// for their turn among large reads. They are ended if too many reads already wait for a turn.
func TestReadsThatWorkForLongAreLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := DefaultOptions()
		o.Memory, o.MaxConcurrency = 1<<30, 4
		e := NewEngine(o)
		defer func() { require.NoError(t, e.Close()) }()
		defer time.Sleep(time.Second) // Wait until the measuring of memory ends.
		e.pressure.used = func() int64 { return 0 }
		var reads []context.Context
		for range maxWaitingReads + 2*o.MaxConcurrency {
			ctx, leave, err := e.Enter(t.Context())
			require.NoError(t, err)
			defer leave()
			meter.Working(ctx, nil)
			require.False(t, readOf(ctx).large.Load(), "it has just begun")
			time.Sleep(maxSmallTime)
			go meter.Working(meter.WithLoading(ctx), nil)
			synctest.Wait()
			require.False(t, readOf(ctx).large.Load(), "others may wait for a load")
			go meter.Working(ctx, nil)
			synctest.Wait()
			reads = append(reads, ctx)
		}
		large, over := 0, 0
		for _, ctx := range reads {
			if readOf(ctx).large.Load() {
				large++
			}
			if err := ctx.Err(); err != nil {
				over++
				require.ErrorIs(t, ReadError(ctx, err), ErrTooManyQueries)
				require.ErrorIs(t, ReadError(ctx, err), tsdb.ErrNotReady)
			}
		}
		require.Equal(t, o.MaxConcurrency, large)
		require.Equal(t, len(reads)-maxWaitingReads-large, over)
	})
}

// TestReadsThatHoldMoreThanIsKnownEnd checks that a small read that doesn't end, and whose memory isn't metered, is
// ended if there is no other read to end. So memory stays below its bound.
func TestReadsThatHoldMoreThanIsKnownEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := DefaultOptions()
		o.Memory = 1 << 30
		e := NewEngine(o)
		var used atomic.Int64
		e.pressure.used = used.Load
		large, leaveLarge, err := e.Enter(t.Context())
		require.NoError(t, err)
		require.NoError(t, meter.Grow(large, o.Memory/16))
		HoldAnswer(large, o.Memory/16)
		ctx, leave, err := e.Enter(t.Context())
		require.NoError(t, err)
		used.Store(o.Memory * 99 / 100)
		time.Sleep(maxSmallTime / 2)
		require.NoError(t, ctx.Err(), "it may be the answer")
		time.Sleep(maxSmallTime)
		synctest.Wait()
		require.ErrorIs(t, context.Cause(ctx), engine.ErrUnavailable)
		leave()
		leaveLarge()
		time.Sleep(time.Second)
		require.NoError(t, e.Close())
	})
}

// TestLargeResultsOfLittleAreLarge checks that memory that the evaluator needs for few samples is also counted: for the
// steps of subqueries before they are computed, and for a large answer of a small read.
func TestLargeResultsOfLittleAreLarge(t *testing.T) {
	store := sampled(t, memory.New(), nil)
	synctest.Test(t, func(t *testing.T) {
		o := DefaultOptions()
		o.Memory, o.Timeout = 1<<30, time.Minute
		e := NewEngine(o)
		e.pressure.used = func() int64 { return 0 }
		holder, leave, err := e.Enter(t.Context())
		require.NoError(t, err)
		require.NoError(t, meter.Grow(holder, o.Memory/2))
		run := func(q promstorage.Queryable, text string, step time.Duration) error {
			query, err := e.NewRangeQuery(t.Context(), q, nil, text, time.Unix(0, 0), time.Unix(100_000, 0), step)
			require.NoError(t, err)
			defer query.Close()
			return query.Exec(t.Context()).Err
		}
		require.NoError(t, run(NewQueryable(store), "vector(1)", time.Minute))
		require.ErrorContains(t, run(NewQueryable(store), "count_over_time(vector(1)[1000000s:1s])", time.Hour),
			"timed out", "it waits for its turn")
		require.ErrorContains(t, run(stuck{}, "vector(1)", time.Second), "timed out",
			"it waits for its turn with its answer")
		leave()
		require.NoError(t, run(NewQueryable(store), "vector(1)", time.Second))
		require.Zero(t, e.gate.queries.heldBytes())
		require.Zero(t, e.gate.large.heldBytes())
		require.Zero(t, e.gate.unread.Load())
		require.NoError(t, e.Close())
		time.Sleep(time.Second)
	})
}

// TestBuffersOfLongSeriesAreMetered checks that the buffer of decoded samples is counted if a series has many samples.
// A read of one series over years holds as much memory as a read of many series.
func TestBuffersOfLongSeriesAreMetered(t *testing.T) {
	store := storagetest.Open(t, memory.New(), storagetest.KeepForever)
	const samples = 3 * maxPooledSamples
	b := store.NewBatch(tenant.Default)
	series, err := b.Define(nil, labels.FromStrings(labels.MetricName, "long"))
	require.NoError(t, err)
	for i := range int64(samples) {
		require.NoError(t, b.Float(series, 1000+10*i, 0, float64(i)))
	}
	require.NoError(t, b.Commit(t.Context()))
	b.Release()
	for _, planned := range []bool{true, false} {
		o := DefaultOptions()
		o.Memory, o.NoPlanner = 1<<30, !planned
		e := NewEngine(o)
		e.pressure.used = func() int64 { return 0 }
		q, err := e.NewInstantQuery(t.Context(), NewQueryable(store), nil, "count_over_time(long[1h])",
			time.UnixMilli(1000+10*samples))
		require.NoError(t, err)
		require.NoError(t, q.Exec(t.Context()).Err)
		require.NotEqual(t, e.gate.large.bytes/4, e.gate.averageLargeSize(), "the size of a large read counts")
		q.Close()
		require.NoError(t, e.Close())
	}
}

// TestReadsThatHoldLittleAreNotUsual checks that the size that is reserved at the start of a large read is the average
// of reads that held much memory. Reads that were large only because they took long don't lower it.
func TestReadsThatHoldLittleAreNotUsual(t *testing.T) {
	g := newGate(Options{MaxConcurrency: 20, Memory: 1 << 30})
	usual := g.averageLargeSize()
	require.Positive(t, usual)
	for range 10 * averagedReads {
		g.recordLargeSize(g.largeBytes)
	}
	require.Equal(t, usual, g.averageLargeSize())
	g.recordLargeSize(2 * usual)
	require.Greater(t, g.averageLargeSize(), usual)
}
