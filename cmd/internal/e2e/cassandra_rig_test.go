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

// patiently repeats do while a process responds with 503, because Cassandra may not respond for a while.
func patiently(do func() error) error {
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		err := do()
		if !busy(err) || time.Since(began) > cassiatest.Patience {
			return err
		}
	}
}

// busy reports whether err is a 503, after which the request should be retried.
func busy(err error) bool { return err != nil && strings.Contains(err.Error(), ": 503 ") }

// underLoad is held by a test that sends load to a cluster at an unlimited rate.
var underLoad sync.Mutex

// underLoadAlone waits for other tests that send load to a cluster. If they ran concurrently, each would take longer,
// and would therefore send and compare more samples.
func underLoadAlone(t *testing.T) {
	underLoad.Lock()
	t.Cleanup(underLoad.Unlock)
}

// balancer sends requests to one of multiple processes, and moves on to the next process after an error.
type balancer struct {
	addresses []string
	// spread is set if each request is sent to the next process.
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

// waitOwned waits until each of the processes owns want partitions. Leases move within seconds, but the test doesn't
// depend on how long it takes.
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
