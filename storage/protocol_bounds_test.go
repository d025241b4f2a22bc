package storage

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/membership"
)

// blockedStage is a rule for an engine. It counts the writes of blobs, and can block them until letPass is called.
type blockedStage struct {
	mu     sync.Mutex
	wait   chan struct{}
	writes int
}

func (b *blockedStage) rule(op faultengine.Op) faultengine.Action {
	b.mu.Lock()
	defer b.mu.Unlock()
	if op.Kind == faultengine.Write && op.Table == engine.Stage && op.Batch.Mutations[0].Op == engine.Put {
		b.writes++
		if b.wait != nil {
			return faultengine.Pass().After(b.wait)
		}
	}
	return faultengine.Pass()
}

func (b *blockedStage) block() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wait = make(chan struct{})
}

func (b *blockedStage) letPass() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.wait)
	b.wait = nil
}

// TestWhatWaitsGoesInOneCommit sends requests while a commit is blocked. The requests must not be acknowledged, and
// their samples not be visible, until the engine responds. Then they must share one commit.
func TestWhatWaitsGoesInOneCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stage := &blockedStage{}
		ts, _ := openFaultyStore(t, stage.rule, nil)
		at := ts.now.UnixMilli()
		acks := make(chan error, 100)
		write := func(i int) { acks <- ts.tryWrite("ann", upLabels, sample{at + int64(i), float64(i)}) }
		stage.block()
		go write(0)
		synctest.Wait()
		for i := range 50 {
			go write(1 + i)
		}
		synctest.Wait()
		require.Equal(t, 1, stage.writes, "one commit at a time")
		require.Empty(t, acks, "nothing is acknowledged before it is durable")
		require.Empty(t, ts.all("ann"), "nor seen")
		stage.letPass()
		synctest.Wait()
		require.Equal(t, 2, stage.writes, "what waited goes in one commit")
		for range 51 {
			require.NoError(t, <-acks)
		}
		require.Len(t, ts.all("ann")[upLabels.String()], 51)
	})
}

// TestCommitsGiveUp uses an engine that doesn't respond for some time. Waiting senders must get an error, and a later
// write must succeed.
func TestCommitsGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stage := &blockedStage{}
		ts, _ := openFaultyStore(t, stage.rule, nil)
		stage.block()
		begin := time.Now()
		require.ErrorContains(t, ts.tryWrite("ann", upLabels, sample{ts.now.UnixMilli(), 1}), "deadline")
		require.Equal(t, membership.CommitTimeout, time.Since(begin), "by the test's own clock")
		stage.letPass()
		require.NoError(t, ts.tryWrite("ann", upLabels, sample{ts.now.UnixMilli(), 2}))
		require.Equal(t, []sample{{ts.now.UnixMilli(), 2}}, ts.all("ann")[upLabels.String()])
	})
}

// TestQueueIsBounded fills the queue while the engine is blocked. Further requests must be rejected with ErrOverloaded,
// and all queued requests must be acknowledged when the engine responds.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stage := &blockedStage{}
		ts, _ := openFaultyStore(t, stage.rule, func(o *Options) { o.QueueBytes = 10 * queuedBytes })
		at := ts.now.UnixMilli()
		stage.block()
		acks := make(chan error, 100)
		taken := map[int64]bool{}
		send := func(i int) { acks <- ts.tryWrite("ann", upLabels, sample{at + int64(i), 1}) }
		go send(0) // This sample is being committed.
		synctest.Wait()
		refused := 0
		for i := range 30 {
			go send(1 + i)
			synctest.Wait()
			select {
			case err := <-acks:
				require.ErrorIs(t, err, ErrOverloaded)
				refused++
			default:
				taken[at+1+int64(i)] = true
			}
		}
		require.Equal(t, 20, refused)
		stage.letPass()
		for range 11 {
			require.NoError(t, <-acks)
		}
		got := ts.all("ann")[upLabels.String()]
		require.Len(t, got, 11)
		for _, x := range got[1:] {
			require.True(t, taken[x.t], "what was refused isn't there")
		}
		require.NoError(t, ts.tryWrite("ann", upLabels, sample{at + 100, 1}), "there is room again")
	})
}

// TestHeadIsBounded fills the head. New series must be rejected, samples of known series must be accepted, and sealing
// must free memory.
func TestHeadIsBounded(t *testing.T) {
	ts, _ := openFaultyStore(
		t, func(faultengine.Op) faultengine.Action { return faultengine.Pass() },
		func(o *Options) { o.HeadBytes = 100_000 },
	)
	at := ts.now.UnixMilli()
	series := func(i int) labels.Labels { return labels.FromStrings(labels.MetricName, "up", "host", fmt.Sprint(i)) }
	n := 0
	for ; ; n++ {
		require.Less(t, n, 1000, "there is no end to it")
		if err := ts.tryWrite("ann", series(n), sample{at, 1}); err != nil {
			require.ErrorIs(t, err, ErrTooManySeries)
			break
		}
	}
	require.Greater(t, n, 10)
	for i := range n {
		require.NoError(t, ts.tryWrite("ann", series(i), sample{at + 1, 2}), "a known series goes on")
	}
	require.ErrorIs(t, ts.tryWrite("ann", series(n), sample{at, 1}), ErrTooManySeries)
	require.NoError(t, ts.tryWrite("bob", series(0), sample{at, 1}), "another tenant holds less than its share")
	require.Len(t, ts.all("ann"), n)
	require.NoError(t, ts.SealAll(t.Context()))
	ts.requireEmptyHead()
	require.NoError(t, ts.tryWrite("ann", series(n), sample{at, 1}))
	require.Len(t, ts.all("ann"), n+1)
}

// TestRestartTakesWhatIsStaged restarts with a limit below the size of the staging log. New samples must be rejected,
// and staged samples must not be lost.
func TestRestartTakesWhatIsStaged(t *testing.T) {
	ts, eng := openFaultyStore(t, func(faultengine.Op) faultengine.Action { return faultengine.Pass() }, nil)
	for i := range 100 {
		ts.write(
			"ann", labels.FromStrings(labels.MetricName, "up", "host", fmt.Sprint(i)), sample{ts.now.UnixMilli(), 1},
		)
	}
	require.NoError(t, ts.Store.Close())
	ts.opts.HeadBytes = 1000
	ts.Store = openReady(t, eng, ts.opts)
	require.Len(t, ts.all("ann"), 100)
}
