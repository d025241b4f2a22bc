package storage

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
)

// gatherRig is a committer on an engine whose commits take 10 ms in the time of a synctest bubble.
type gatherRig struct {
	*committer
	t       *testing.T
	commits int
}

func newGatherRig(t *testing.T, gathers bool) *gatherRig {
	period := format.NewPeriods(format.Period{SlotMS: 7_200_000, RawWindowMS: format.DayMS, Partitions: 1})
	rig := &gatherRig{t: t}
	rig.committer = newCommitter(commitEnv{
		head: head.New(1, period), period: period, writer: "w", shared: true, gathers: gathers,
		queueBytes: 64 << 20, blobBytes: format.BlobFull, now: time.Now, engineTime: time.Now,
		metrics: newMetrics(&Store{}, nil), lock: new(sync.Mutex),
		write: func(context.Context, []engine.Batch) error {
			rig.commits++
			time.Sleep(commit)
			return nil
		},
		mayWrite: func() error { return nil }, mayAcknowledge: func(time.Time) error { return nil },
		isOld: func(int64) bool { return false },
	})
	go rig.run()
	return rig
}

// send sends requests of a sender, with a pause after each, and returns their durations.
func (r *gatherRig) send(sender string, requests int, pause time.Duration) (took []time.Duration) {
	series, err := r.env.head.Define(
		r.env.head.Tenant("ann"), labels.FromStrings(labels.MetricName, "up", "sender", sender), nil,
	)
	assert.NoError(r.t, err)
	for range requests {
		began := time.Now()
		b := &Batch{tenant: r.env.head.Tenant("ann"), free: true, done: make(chan error, 1), bytes: queuedBytes}
		b.entries = []head.Sample{{Series: series, T: time.Now().UnixMilli()}}
		assert.NoError(r.t, r.enqueue(b))
		assert.NoError(r.t, <-b.done)
		took = append(took, time.Since(began))
		time.Sleep(pause)
	}
	return took
}

// commit is the duration of a commit in the bubble's time, in which only sleeping takes time.
const commit = 10 * time.Millisecond

// TestCommitsGather sends the next request of each sender 3 ms after its previous request was acknowledged. The
// requests of the senders must share commits instead of alternating, so that each request takes the time of one commit
// and not of two. A single sender must not wait.
func TestCommitsGather(t *testing.T) {
	const requests = 50
	run := func(gathers bool, senders int, usual time.Duration) (commits int) {
		synctest.Test(t, func(t *testing.T) {
			rig := newGatherRig(t, gathers)
			var all sync.WaitGroup
			for i := range senders {
				all.Go(func() {
					time.Sleep(time.Duration(i) * 2 * time.Millisecond) // The senders start one after the other.
					took := rig.send(string(rune('a'+i)), requests, 3*time.Millisecond)
					for _, took := range took[5 : requests-5] { // while all senders send
						assert.LessOrEqual(t, took, usual)
					}
				})
			}
			all.Wait()
			rig.close()
			commits = rig.commits
		})
		return commits
	}
	require.Equal(t, requests, run(true, 1, commit))
	require.InDelta(t, requests, run(true, 4, commit), 3)
	require.InDelta(t, 2*requests, run(false, 4, 2*commit), 3, "what there is to gain")
}

// TestCommitsWaitOnceForWhoStops stops one of two senders. The commits of the other sender may wait for it only once.
func TestCommitsWaitOnceForWhoStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newGatherRig(t, true)
		var both sync.WaitGroup
		both.Go(func() { rig.send("b", 5, time.Millisecond) })
		both.Go(func() {
			took := rig.send("a", 20, time.Millisecond)
			assert.Contains(t, took[1:7], 2*commit, "it waits for the other one")
			for _, took := range took[7:] {
				assert.Equal(t, commit, took)
			}
		})
		both.Wait()
		rig.close()
	})
}
