package panics

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// TestPanicsStay checks that a panic isn't recovered without Recover, so that tests detect it.
func TestPanicsStay(t *testing.T) {
	require.Panics(t, func() { _ = Call("work", func() error { panic("bug") }) })
	require.Panics(t, WrapContained("work", func() { panic("bug") }))
	require.Panics(t, func() { Repeat(t.Context(), "work", func() { panic("bug") }) })
}

// TestRecover checks that a recovered panic is an error, is counted, and is logged with the work and the stack.
func TestRecover(t *testing.T) {
	var said bytes.Buffer
	registry := prometheus.NewRegistry()
	recovery := New(slog.New(slog.NewTextHandler(&said, nil)), registry)
	recovery.delay = time.Nanosecond
	defer recovery.Start()()

	own := errors.New("its own")
	require.NoError(t, Call("work", func() error { return nil }))
	require.Equal(t, own, WrapError("work", func() error { return own })())
	require.Empty(t, said.String())

	err := WrapError("work", func() error { panic("bug") })()
	require.ErrorIs(t, err, ErrPanicked)
	require.ErrorContains(t, err, "work: bug")
	require.Contains(t, said.String(), "work=work panic=bug")
	require.Contains(t, said.String(), "TestRecover")

	var running sync.WaitGroup
	running.Go(WrapContained("other", func() { panic(own) }))
	running.Wait()

	times := 0
	Repeat(t.Context(), "loop", func() {
		if times++; times < 3 {
			panic("again")
		}
	})
	require.Equal(t, 3, times)
	for work, n := range map[string]int{"work": 1, "other": 1, "loop": 2} {
		require.EqualValues(t, n, testutil.ToFloat64(current.Load().count.WithLabelValues(work)), work)
	}
}

// TestRepeatEndsWithItsContext checks that a loop that always panics ends with its context.
func TestRepeatEndsWithItsContext(t *testing.T) {
	defer Recover(slog.New(slog.DiscardHandler), nil)()
	ctx, cancel := context.WithCancel(t.Context())
	Repeat(ctx, "loop", func() {
		cancel()
		panic("bug")
	})
}

// TestRegistry checks that a collector that panics loses only its own metrics.
func TestRegistry(t *testing.T) {
	defer Recover(slog.New(slog.DiscardHandler), nil)()
	r := NewRegistry()
	r.MustRegister(bad{})
	good := prometheus.NewGauge(prometheus.GaugeOpts{Name: "good", Help: "-"})
	require.NoError(t, r.Register(good))
	found, err := r.Gather()
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, "good", found[0].GetName())
	require.True(t, r.Unregister(good))
}

type bad struct{}

func (bad) Describe(to chan<- *prometheus.Desc) { to <- prometheus.NewDesc("bad", "-", nil, nil) }
func (bad) Collect(chan<- prometheus.Metric)    { panic("bug") }
