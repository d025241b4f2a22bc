package cassandra

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// TestNoNodeIsUp checks that requests fail immediately once no node has been up for noNodeTimeout. If a node is up,
// requests are retried until their timeout.
func TestNoNodeIsUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := host(t, "10.0.0.1"), host(t, "10.0.0.2")
		n := newNodes("dc1", slog.New(slog.DiscardHandler))
		e := &Engine{
			opts: DefaultOptions(), nodes: n, metrics: newMetrics(), slots: make(chan struct{}, 1),
			idle: make(chan struct{}),
		}
		e.ctx, e.close = context.WithCancel(t.Context())
		defer e.close()
		try := func() (took time.Duration) {
			begun := time.Now()
			err := e.sendRequest(t.Context(), opWrite, isTransient, func(context.Context) (int, error) {
				return 1, gocql.ErrNoConnections
			})
			require.Error(t, err)
			require.ErrorIs(t, e.translateError(t.Context(), "write", err), engine.ErrUnavailable)
			return time.Since(begun)
		}
		n.set(a, true)
		n.set(b, true)
		n.set(a, false)
		require.Greater(t, try(), e.opts.Timeout-2*lastPause, "one is up")
		n.set(b, false)
		require.Less(t, try(), noNodeTimeout+2*lastPause, "it may be for a moment")
		require.Zero(t, try())
		n.set(a, true)
		require.Greater(t, try(), e.opts.Timeout-2*lastPause, "one is back")
		n.set(a, false)
		time.Sleep(2 * noNodeTimeout)
		require.Zero(t, try())
	})
}

func host(t *testing.T, address string) *gocql.HostInfo {
	t.Helper()
	h := &gocql.HostInfo{}
	h.SetConnectAddress(net.ParseIP(address))
	h.SetHostID(address)
	return h
}
