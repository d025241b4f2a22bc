package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/storage/soak"
)

// memoryCell is a memory limit of a server, with the kinds of large requests that many clients send concurrently, one
// kind after another.
type memoryCell struct {
	bound int64
	// series is the number of series in each of the memoryMetrics metrics.
	series int
	kinds  []string
}

const (
	memoryMetrics = 6
	// memoryClients is the number of clients that send large requests, each for one metric, one after another.
	// memorySmall is the number of clients that query few series.
	memoryClients, memorySmall = 40, 4
	// memoryExports is the number of concurrent exports. It is smaller because each export is a separate process, whose
	// memory and CPU aren't the server's.
	memoryExports = 6
	// memoryInterval is the interval between measurements of the anonymous memory.
	memoryInterval = 100 * time.Millisecond
)

// memoryCells returns some random kinds of requests, with a low limit and few series. In a soak test of n times, it
// returns all kinds with n − 1 random limits, each of which takes about 20 minutes on an idle machine. With n = 5 it
// returns the whole table.
func memoryCells(t *testing.T) (cells []memoryCell) {
	kinds := slices.Sorted(maps.Keys(largeRequests))
	random := rand.New(rand.NewPCG(soak.Seed(t), 0))
	times := soak.Times(t, 1)
	if times == 1 {
		const drawn = 3
		random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		return []memoryCell{{256 << 20, 12_000, kinds[:drawn]}}
	}
	for _, bound := range []int64{512 << 20, 1 << 30, 2 << 30, 4 << 30} {
		cells = append(cells, memoryCell{bound, int(min(500_000, 240_000*(bound>>20)/1024)), kinds})
	}
	random.Shuffle(len(cells), func(i, j int) { cells[i], cells[j] = cells[j], cells[i] })
	return cells[:min(len(cells), times-1)]
}

// TestMemoryStaysWithinItsBound sends requests for more data than fits into the server's memory, from many clients and
// while samples arrive. The server's anonymous memory must never exceed --memory.max-bytes, and the server must
// continue to respond.
func TestMemoryStaysWithinItsBound(t *testing.T) {
	if testing.Short() {
		t.Skip("fills a server's memory: leave -short out")
	}
	for _, c := range memoryCells(t) {
		t.Run(fmt.Sprint(c.bound>>20, " MiB"), func(t *testing.T) {
			dir := t.TempDir()
			r := startBounded(t, dir, c.bound)
			fillMemory(t, r, c.series)
			for _, kind := range c.kinds {
				t.Run(kind, func(t *testing.T) { c.ask(t, r, dir, kind) })
			}
		})
	}
}

// ask sends large requests of one kind, while samples and small queries are sent.
func (c memoryCell) ask(t *testing.T, r running, dir, kind string) {
	anonymous := watchAnonymous(t, r.pid)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var beside errgroup.Group
	beside.Go(func() error { return ingestBeside(ctx, r) })
	latencies := make([][]time.Duration, memorySmall)
	for i := range memorySmall {
		beside.Go(func() (err error) {
			latencies[i], err = askSmall(ctx, r, i)
			return err
		})
	}
	var outcome outcomes
	before := cpuOf(t, r.pid)
	var large errgroup.Group
	clients := memoryClients
	if kind == "export" {
		clients = memoryExports
	}
	for i := range clients {
		large.Go(func() error { return outcome.ask(ctx, r, kind, dir, i) })
	}
	require.NoError(t, large.Wait())
	used := cpuOf(t, r.pid) - before
	stop()
	require.NoError(t, beside.Wait())
	all := slices.Concat(latencies...)
	slices.Sort(all)
	t.Logf("%d MiB of %d at most; %.1f CPU-s; large: %s; small: %d, p50 %v, p99 %v, longest %v",
		anonymous()>>20, c.bound>>20, used.Seconds(), &outcome, len(all), all[len(all)/2].Round(time.Millisecond),
		all[len(all)*99/100].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond))
	require.LessOrEqual(t, anonymous(), c.bound)
	require.NotEmpty(t, r.Value(t, "small_0", time.Now()), "it goes on answering")
	if c.bound >= 1<<30 {
		require.GreaterOrEqual(t, outcome.answered.Load(), int64(clients/2), "most are answered: %s", &outcome)
	}
}

// outcomes counts the results of large requests.
type outcomes struct {
	answered, late, refused atomic.Int64 // late: answered after 30 s; refused: 422, or 503 until the end
	again                   atomic.Int64 // 503 responses after which the request was retried
	mu                      sync.Mutex
	texts                   map[string]int // texts of rejections
}

func (o *outcomes) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return fmt.Sprintf("%d answered (%d after 30 s), %d refused, %d tries refused; %v",
		o.answered.Load(), o.late.Load(), o.refused.Load(), o.again.Load(), o.texts)
}

// ask sends a large request until it succeeds or is rejected permanently.
func (o *outcomes) ask(ctx context.Context, r running, kind, dir string, client int) error {
	began := time.Now()
	for time.Since(began) < cassiatest.Patience {
		code, text, err := largeRequests[kind](ctx, r, dir, client%memoryMetrics)
		switch {
		case err != nil:
			return err
		case code == http.StatusOK:
			o.answered.Add(1)
			if time.Since(began) > 30*time.Second {
				o.late.Add(1)
			}
			return nil
		case code != http.StatusServiceUnavailable && code != http.StatusTooManyRequests &&
			code != http.StatusUnprocessableEntity:
			return fmt.Errorf("%d: %s", code, text)
		}
		o.mu.Lock()
		if o.texts == nil {
			o.texts = map[string]int{}
		}
		o.texts[fmt.Sprint(code, " ", text)]++
		o.mu.Unlock()
		if code == http.StatusUnprocessableEntity {
			break
		}
		o.again.Add(1)
		time.Sleep(time.Second) // as requested by Retry-After
	}
	o.refused.Add(1)
	return nil
}

// askSmall queries a few series until ctx ends, and at least until it has one response. It returns the duration of each
// request.
func askSmall(ctx context.Context, r running, i int) (latencies []time.Duration, err error) {
	started := time.Now()
	for ctx.Err() == nil || len(latencies) == 0 && time.Since(started) < cassiatest.Patience {
		asking := ctx
		if ctx.Err() != nil {
			asking = context.WithoutCancel(ctx)
		}
		began := time.Now()
		query := []string{
			"small_%d", "rate(small_%d[5m])", "sum(small_%d)", "count by (id) (small_%d)",
		}[len(latencies)%4]
		code, text, err := getAnswer(asking, r, "/api/v1/query", "query", fmt.Sprintf(query, i))
		switch {
		case asking.Err() != nil: // The response was interrupted.
		case err != nil:
			return nil, err
		case code != http.StatusOK:
			return nil, fmt.Errorf("a small query: %d: %s", code, text)
		default:
			latencies = append(latencies, time.Since(began))
		}
		time.Sleep(20 * time.Millisecond)
	}
	if len(latencies) == 0 {
		return nil, errors.New("no small query was answered")
	}
	return latencies, nil
}
