package cache

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/meter"
)

// fixed is an EntryValue of a fixed size.
type fixed int64

func (f fixed) Bytes() int64 { return int64(f) }

func keyOf(text string) EntryKey { return EntryKey{Kind: KindSeries, Tenant: "t", Text: text} }

func load(v fixed) func(context.Context) (EntryValue, error) {
	return func(context.Context) (EntryValue, error) { return v, nil }
}

func TestCacheKeepsOneVersion(t *testing.T) {
	c := New(1 << 20)
	for _, want := range []struct {
		version uint64
		value   fixed
		hits    uint64
	}{{1, 10, 0}, {1, 10, 1}, {2, 20, 1}, {2, 20, 2}, {1, 30, 2}} {
		v, err := c.Get(t.Context(), keyOf("a"), want.version, load(want.value))
		require.NoError(t, err)
		require.Equal(t, want.value, v)
		require.Equal(t, want.hits, c.Tally().Hits)
		require.Equal(t, int64(1), c.Tally().Entries)
	}
	require.Equal(t, uint64(3), c.Tally().Misses)
}

func TestCacheIsBoundedAndKeepsWhatIsUsed(t *testing.T) {
	c := New(10_000)
	for i := range 100 {
		_, err := c.Get(t.Context(), keyOf(fmt.Sprint(i)), 1, load(1000))
		require.NoError(t, err)
		_, err = c.Get(t.Context(), keyOf("0"), 1, func(context.Context) (EntryValue, error) {
			return nil, errors.New("let go of though it is used")
		})
		require.NoError(t, err)
		require.LessOrEqual(t, c.Tally().Bytes, int64(10_000))
	}
	require.Equal(t, int64(8), c.Tally().Entries)
	v, err := c.Get(t.Context(), keyOf("huge"), 1, load(1<<30))
	require.NoError(t, err)
	require.Equal(t, fixed(1<<30), v, "it is answered, not kept")
	require.Zero(t, c.Tally().Bytes)
	require.Zero(t, c.Tally().Entries)
}

// growing is a value that grows after it was put.
type growing struct{ n atomic.Int64 }

func (g *growing) Bytes() int64 { return g.n.Load() }

func TestCacheMeasuresAgain(t *testing.T) {
	c := New(10_000)
	g := &growing{}
	_, err := c.Get(t.Context(), keyOf("g"), 1, func(context.Context) (EntryValue, error) { return g, nil })
	require.NoError(t, err)
	g.n.Store(5000)
	_, err = c.Get(t.Context(), keyOf("g"), 1, nil)
	require.NoError(t, err)
	require.Greater(t, c.Tally().Bytes, int64(5000))
	g.n.Store(50_000)
	v, err := c.Get(t.Context(), keyOf("g"), 1, nil)
	require.NoError(t, err)
	require.Same(t, g, v)
	require.Zero(t, c.Tally().Entries, "too large by now")
}

func TestCacheLoadsOnce(t *testing.T) {
	c := New(1 << 20)
	var loads atomic.Int64
	begun, end := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			v, err := c.Get(t.Context(), keyOf("a"), 1, func(context.Context) (EntryValue, error) {
				loads.Add(1)
				close(begun)
				<-end
				return fixed(7), nil
			})
			if err != nil || v != fixed(7) {
				t.Errorf("got %v, %v", v, err)
			}
		})
	}
	<-begun
	// A canceled caller doesn't wait for the load.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Get(ctx, keyOf("a"), 1, nil)
	require.ErrorIs(t, err, context.Canceled)
	close(end)
	wg.Wait()
	require.Equal(t, int64(1), loads.Load())
}

func TestCacheForgetsErrors(t *testing.T) {
	c := New(1 << 20)
	broken := errors.New("broken")
	_, err := c.Get(t.Context(), keyOf("a"), 1, func(context.Context) (EntryValue, error) { return nil, broken })
	require.ErrorIs(t, err, broken)
	v, err := c.Get(t.Context(), keyOf("a"), 1, load(3))
	require.NoError(t, err)
	require.Equal(t, fixed(3), v)
}

// TestCacheLoadsAgainForOthers checks that queries that wait for a load don't fail if the query that runs the load is
// canceled.
func TestCacheLoadsAgainForOthers(t *testing.T) {
	c := New(1 << 20)
	begun, end, done := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		_, err := c.Get(context.Background(), keyOf("a"), 1, func(context.Context) (EntryValue, error) {
			close(begun)
			<-end
			return nil, context.Canceled
		})
		done <- err
	}()
	<-begun
	go func() {
		v, err := c.Get(context.Background(), keyOf("a"), 1, load(4))
		if err == nil && v != fixed(4) {
			err = fmt.Errorf("got %v", v)
		}
		done <- err
	}()
	for c.Tally().Hits == 0 { // until the second waits
		runtime.Gosched()
	}
	close(end)
	first, second := <-done, <-done
	if first == nil {
		first, second = second, first
	}
	require.ErrorIs(t, first, context.Canceled)
	require.NoError(t, second)
}

func TestCacheSurvivesAPanic(t *testing.T) {
	c := New(1 << 20)
	require.Panics(t, func() {
		_, _ = c.Get(t.Context(), keyOf("a"), 1, func(context.Context) (EntryValue, error) { panic("a bug") })
	})
	v, err := c.Get(t.Context(), keyOf("a"), 1, load(3))
	require.NoError(t, err)
	require.Equal(t, fixed(3), v)
}

// turns is a Meter that requires a turn for large loads.
type turns struct {
	had   atomic.Bool
	count atomic.Int64
}

func (m *turns) Grow(context.Context, int64) error { return nil }

func (m *turns) Load(context.Context, int64) error {
	if m.had.Load() {
		return nil
	}
	return meter.ErrNoTurn
}

func (m *turns) Working(context.Context, any) {}

func (m *turns) Turn(context.Context, any) error {
	m.count.Add(1)
	m.had.Store(true)
	return nil
}

// TestCacheLoadsWaitForATurnOutside checks that a load that needs much memory is canceled until its caller has its
// turn. Other callers load the same value concurrently, and a load inside a load cancels both.
func TestCacheLoadsWaitForATurnOutside(t *testing.T) {
	c := New(1 << 20)
	inner, outer := EntryKey{Kind: KindMetrics}, EntryKey{Kind: KindIDs}
	load := func(ctx context.Context) (EntryValue, error) {
		return c.Get(ctx, inner, 1, func(ctx context.Context) (EntryValue, error) {
			return fixed(7), meter.Grow(ctx, 1<<20)
		})
	}
	m := &turns{}
	v, err := c.Get(meter.WithMeter(t.Context(), m), outer, 1, load)
	require.NoError(t, err)
	require.Equal(t, fixed(7), v)
	require.Equal(t, int64(1), m.count.Load())

	c = New(1 << 20)
	waits, release := make(chan struct{}), make(chan struct{})
	first := &turnsSlowly{turns: &turns{}, waits: waits, release: release}
	done := make(chan error, 1)
	go func() {
		_, err := c.Get(meter.WithMeter(t.Context(), first), outer, 1, load)
		done <- err
	}()
	<-waits
	second := &turns{}
	second.had.Store(true)
	_, err = c.Get(meter.WithMeter(t.Context(), second), outer, 1, load)
	require.NoError(t, err, "it doesn't wait for one that has no turn yet")
	close(release)
	require.NoError(t, <-done)
}

// turnsSlowly is a Meter whose Turn returns when it is released.
type turnsSlowly struct {
	*turns

	waits, release chan struct{}
}

func (m *turnsSlowly) Turn(ctx context.Context, load any) error {
	close(m.waits)
	<-m.release
	return m.turns.Turn(ctx, load)
}

// TestCallersThatWaitForALoadAreWorking checks that a caller that waits long for a load of another caller calls Working
// of its meter, which may wait for a turn. The load itself doesn't wait for a turn.
func TestCallersThatWaitForALoadAreWorking(t *testing.T) {
	c, loads, release := New(1<<20), make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, err := c.Get(t.Context(), keyOf("a"), 1, func(context.Context) (EntryValue, error) {
			close(loads)
			<-release
			return fixed(1), nil
		})
		done <- err
	}()
	<-loads
	m := &worker{works: make(chan struct{}, 100)}
	go func() {
		_, err := c.Get(meter.WithMeter(t.Context(), m), keyOf("a"), 1, load(2))
		done <- err
	}()
	<-m.works
	close(release)
	require.NoError(t, <-done)
	require.NoError(t, <-done)
}

// worker is a Meter that records calls of Working.
type worker struct {
	turns

	works chan struct{}
}

func (m *worker) Working(context.Context, any) {
	select {
	case m.works <- struct{}{}:
	default:
	}
}
