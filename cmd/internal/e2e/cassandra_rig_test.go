package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// patiently repeats do while the server responds with status 503, but for at most Patience, because Cassandra may be
// unresponsive for a while.
func patiently(do func() error) error {
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		err := do()
		if !busy(err) || time.Since(began) > cassiatest.Patience {
			return err
		}
	}
}

// busy reports whether an error means that the server responded with status 503.
func busy(err error) bool { return err != nil && strings.Contains(err.Error(), ": 503 ") }

// underLoad is held by a test that sends an unlimited load, so that only one such test runs at a time.
var underLoad sync.Mutex

// underLoadAlone waits for other tests that load a cluster. If they ran concurrently, each would take longer, and would
// therefore send and compare more samples.
func underLoadAlone(t *testing.T) {
	underLoad.Lock()
	t.Cleanup(underLoad.Unlock)
}

// balancer is a transport that sends requests to one of multiple processes. It switches to the next process after an
// error or a 5xx response.
type balancer struct {
	addresses []string
	// spread is set if the balancer switches to the next process with every request.
	spread bool
	at     atomic.Int64
	inner  http.Transport
}

func (b *balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	at := b.at.Load()
	if b.spread {
		at = b.at.Add(1)
	}
	elsewhere := r.Clone(r.Context())
	elsewhere.URL.Host = b.addresses[at%int64(len(b.addresses))]
	answer, err := b.inner.RoundTrip(elsewhere)
	if err != nil || answer.StatusCode >= http.StatusInternalServerError {
		b.at.CompareAndSwap(at, at+1)
	}
	return answer, err
}

// owned returns the number of partitions that a process seals.
func owned(ctx context.Context, p *promrig.Process) (int, error) {
	const metric = "cassia_downsample_partitions "
	text, err := get(ctx, p.URL()+"/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, metric); ok {
			return strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return 0, fmt.Errorf("%s has no metric %s", p.Name, metric)
}

// waitOwned waits until each process owns the given number of partitions. Leases usually move within seconds, but the
// test doesn't depend on this time.
func waitOwned(ctx context.Context, t *testing.T, want int, processes ...*promrig.Process) {
	t.Helper()
	began := time.Now()
	require.Eventually(t, func() bool {
		for _, p := range processes {
			if n, err := owned(ctx, p); err != nil || n != want {
				return false
			}
		}
		return true
	}, cassiatest.Patience, 100*time.Millisecond, "each of %d processes should own %d partitions", len(processes), want)
	t.Logf("%d processes owned %d partitions each after %s",
		len(processes), want, time.Since(began).Round(100*time.Millisecond))
}
