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

// patiently tries again while a process answers that it can't do something now: Cassandra may be silent for a while.
func patiently(do func() error) error {
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		err := do()
		if !busy(err) || time.Since(began) > cassiatest.Patience {
			return err
		}
	}
}

// busy reports whether something is to be tried again that ended so.
func busy(err error) bool { return err != nil && strings.Contains(err.Error(), ": 503 ") }

// underLoad is locked by tests that send an unlimited load, one at a time.
var underLoad sync.Mutex

// underLoadAlone waits for the other tests that load a cluster. Side by side each would take longer, so send more, so
// compare more.
func underLoadAlone(t *testing.T) {
	underLoad.Lock()
	t.Cleanup(underLoad.Unlock)
}

// balancer sends requests to one of several processes, and to the next one after an error.
type balancer struct {
	addresses []string
	// spread takes the next one for each request.
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

// owned is how many partitions a process seals.
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

// waitOwned waits until processes own this number of partitions. Leases move within seconds, but the test doesn't
// depend on the time.
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
