package main

import (
	"errors"
	"log/slog"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

func TestReloadTakesAllOrNothing(t *testing.T) {
	applied, broken := 0, error(nil)
	good := reloadable{"good", func() (func(), error) { return func() { applied++ }, nil }}
	maybe := reloadable{"maybe", func() (func(), error) { return func() { applied++ }, broken }}
	r := newReloader(slog.New(slog.DiscardHandler), prometheus.NewRegistry(), good, maybe)
	require.Equal(t, 1.0, testutil.ToFloat64(r.successful), "they were read at the start")
	require.NoError(t, r.reload())
	require.Equal(t, 2, applied)
	broken = errors.New("broken")
	require.ErrorIs(t, r.reload(), broken)
	require.Equal(t, 2, applied, "all stays as it was")
	require.Zero(t, testutil.ToFloat64(r.successful))
	broken = nil
	require.NoError(t, r.reload())
	require.Equal(t, 1.0, testutil.ToFloat64(r.successful))
}

func TestHangupReloads(t *testing.T) {
	reloaded := make(chan struct{}, 1)
	r := newReloader(slog.New(slog.DiscardHandler), prometheus.NewRegistry(), reloadable{"x", func() (func(), error) {
		return func() { reloaded <- struct{}{} }, nil
	}})
	r.onHangup(t.Context())
	require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGHUP))
	select {
	case <-reloaded:
	case <-time.After(time.Minute):
		require.Fail(t, "SIGHUP did nothing")
	}
}
