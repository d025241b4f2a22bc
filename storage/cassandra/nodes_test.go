package cassandra

import (
	"context"
	"errors"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/cassandra/cassandratest"
	"github.com/cassia-db/cassia/storage/engine"
)

// load writes rows to some partitions, one row at a time in each, and reads them regularly. It pauses between writes,
// because the test doesn't need a higher load.
type load struct {
	e    *Engine
	quit chan struct{}
	done sync.WaitGroup

	mu      sync.Mutex
	written map[int64]int64 // acknowledged rows, by slot
	errs    []error
	slowest time.Duration
}

const (
	loaders   = 4
	loadEvery = 25 * time.Millisecond
)

func startLoad(e *Engine) *load {
	l := &load{e: e, quit: make(chan struct{}), written: map[int64]int64{}}
	for slot := range int64(loaders) {
		l.done.Go(func() { l.run(slot) })
	}
	return l
}

func (l *load) run(slot int64) {
	ctx := context.Background()
	for seq := int64(0); ; seq++ {
		select {
		case <-l.quit:
			return
		case <-time.After(loadEvery):
		}
		start := time.Now()
		err := l.e.Write(ctx, []engine.Batch{stage(slot, mutation(seq, make([]byte, 1000)))})
		if err == nil && seq%5 == 0 {
			r := rangeOf(stage(slot))
			r.From = engine.Key{writer(1), engine.Int(seq)}
			err = errors.New("an acknowledged row isn't found")
			for _, err = range l.e.Scan(ctx, r) {
			}
		}
		l.mu.Lock()
		if l.slowest = max(l.slowest, time.Since(start)); err != nil {
			l.errs = append(l.errs, err)
		} else {
			l.written[slot] = seq + 1
		}
		l.mu.Unlock()
		if err != nil {
			seq-- // Write the same row again: a key has only one content.
		}
	}
}

// take returns the errors since the last call.
func (l *load) take() (errs []error, slowest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	errs, slowest = l.errs, l.slowest
	l.errs, l.slowest = nil, 0
	return errs, slowest
}

// TestNodesDie kills, pauses and restarts nodes of a cluster of three, under load. It also tests the methods of
// cassandratest's cluster.
func TestNodesDie(t *testing.T) {
	t.Parallel()
	cluster := cassandratest.StartCluster(t, 3, cassandratest.Options{Password: true})
	require.Eventually(t, func() bool {
		// A node that hasn't responded for seconds is considered down until it responds again.
		status, err := cluster.Nodetool(1, "status")
		return err == nil && allUp.MatchString(status)
	}, comesWithin, time.Second, "a node sees all three up")
	o := DefaultOptions()
	o.Timeout, o.ConnectTimeout = 20*time.Second, time.Minute // Three nodes on one machine may be slow.
	o.Hosts, o.Username, o.Password = cluster.Hosts(), cassandratest.Username, "wrong"
	requireRefusal(t, o, "login failed", `"cassandra"`, "check the username and the password")
	o.Username, o.Password = "", ""
	requireRefusal(t, o, "Cassandra requires a username and a password, but none are set")
	o.Username, o.Password = cassandratest.Username, cassandratest.Password

	e := open(t, o)
	defer func() { require.NoError(t, e.Close()) }()
	copies, err := e.Replication(context.Background())
	require.NoError(t, err)
	require.Equal(t, map[string]int{e.dc: 3}, copies, "as many as there are nodes")
	testFacts(t, e)

	l := startLoad(e)
	during := func(what string, d time.Duration) {
		time.Sleep(d)
		errs, slowest := l.take()
		require.Empty(t, errs, what)
		t.Logf("%s: the slowest took %s", what, slowest)
	}
	during("three nodes", 2*time.Second)
	require.NoError(t, cluster.Pause(2))
	during("one paused", 10*time.Second)
	require.NoError(t, cluster.Continue(2))
	during("going on", 2*time.Second)
	require.NoError(t, cluster.Kill(1))
	during("one killed", 5*time.Second)

	require.NoError(t, cluster.Kill(2))
	start := time.Now()
	require.Eventually(t, func() bool {
		errs, _ := l.take()
		return len(errs) > 0
	}, comesWithin, 50*time.Millisecond)
	t.Logf("two killed: the first error after %s", time.Since(start))
	require.NoError(t, cluster.Revive(1))
	require.Eventually(t, func() bool {
		return e.Write(context.Background(), []engine.Batch{stage(loaders, mutation(1, nil))}) == nil
	}, comesWithin, 100*time.Millisecond)
	close(l.quit)
	l.done.Wait()
	errs, _ := l.take()
	for _, err := range errs {
		require.ErrorIs(t, err, engine.ErrUnavailable)
	}
	for slot, n := range l.written {
		require.GreaterOrEqual(t, len(sizes(t, e, rangeOf(stage(slot)))), int(n), "acknowledged rows of slot %d", slot)
	}
	testUsageAndEnd(t, cluster)
}

var allUp = regexp.MustCompile(`(?s)UN .*UN .*UN `)

// testUsageAndEnd reads the usage of a cluster whose node 2 is down, and then wipes the cluster.
func testUsageAndEnd(t *testing.T, cluster *cassandratest.Cluster) {
	require.ErrorIs(t, cluster.Kill(2), cassandratest.ErrCommand, "it is dead already")
	require.ErrorIs(t, cluster.Pause(4), cassandratest.ErrCommand, "there are three")
	seconds, err := cluster.CPUSeconds()
	require.NoError(t, err)
	require.Positive(t, seconds)
	bytes, err := cluster.DiskBytes("system")
	require.NoError(t, err)
	require.Positive(t, bytes)
	require.NoError(t, cluster.Pause(1))
	require.NoError(t, cluster.Wipe(), "also with a paused node")
	require.NoDirExists(t, cluster.Dir())
}
