package downsample

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/storagetest"
)

func TestShareIsEvenAndStable(t *testing.T) {
	var workers []string
	var before []string
	for n := 1; n <= 9; n++ {
		workers = append(workers, fmt.Sprintf("worker %d", n))
		shares := share(64, workers)
		count := map[string]int{}
		for _, w := range shares {
			require.NotEmpty(t, w)
			count[w]++
		}
		for _, w := range workers {
			require.InDelta(t, 64/n, count[w], 1, "%d workers", n)
		}
		moved := 0
		for p := range before {
			if before[p] != shares[p] {
				moved++
			}
		}
		require.Less(t, moved, 64/n*2+n, "%d workers", n)
		before = shares
	}
}

// awaitBeats waits until each of the given processes has sent another heartbeat.
func awaitBeats(t *testing.T, s *storage.Store, writers ...string) {
	t.Helper()
	beats := func() map[string]int64 {
		list, err := s.Member().Processes(t.Context())
		require.NoError(t, err)
		last := map[string]int64{}
		for _, p := range list {
			last[p.Writer] = p.Beat
		}
		return last
	}
	for before := beats(); ; time.Sleep(10 * time.Millisecond) {
		now := beats()
		if !slices.ContainsFunc(writers, func(w string) bool { return now[w] == before[w] }) {
			return
		}
	}
}

// TestLeases checks how the partitions are divided while processes join, crash and leave.
func TestLeases(t *testing.T) {
	eng := memory.New()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	start := func(name string) *leases {
		s := storagetest.Open(
			t, eng, storagetest.SharedTarget(name, "all"), func(o *storage.Options) { o.Partitions = 8 },
		)
		return newLeases(s, clock)
	}
	owned := func(all ...*leases) (n []int) {
		seen := map[int]bool{}
		for _, l := range all {
			_, err := l.balance(t.Context())
			require.NoError(t, err)
		}
		for _, l := range all {
			_, err := l.balance(t.Context())
			require.NoError(t, err)
			for p := range l.owned {
				require.False(t, seen[p], "two owners of %d", p)
				seen[p] = true
			}
			n = append(n, len(l.owned))
		}
		return n
	}
	a := start("a")
	require.Equal(t, []int{8}, owned(a))
	b := start("b")
	require.Equal(t, []int{4, 4}, owned(a, b))

	// c sends one heartbeat, acquires its share of the leases, and then sends no more heartbeats.
	c := start("c")
	owned(a, b, c)
	n := owned(a, b, c)
	require.Equal(t, 8, n[0]+n[1]+n[2])
	require.InDelta(t, 2.5, n[2], 1)
	require.NoError(t, c.store.Close())
	now = now.Add(membership.LivenessTimeout - time.Second)
	awaitBeats(t, a.store, a.self, b.self)
	owned(a, b)
	now = now.Add(2 * time.Second)
	owned(a, b)
	require.Equal(t, []int{4, 4}, owned(a, b))

	require.NoError(t, b.free(t.Context()))
	leases, err := a.store.Member().Leases(t.Context(), a.store.Partitions())
	require.NoError(t, err)
	for _, l := range leases {
		require.NotEqual(t, b.self, l.Owner)
	}
	require.Equal(t, []int{8}, owned(a), "at once: b said that it leaves")
}

// TestMorePartitionsWhileRunning checks that running loops also divide and seal the partitions of a period that is
// added, as by cassia schema set-period on a shared engine.
func TestMorePartitionsWhileRunning(t *testing.T) {
	t.Parallel()
	for _, idle := range []bool{false, true} {
		t.Run(fmt.Sprint("idle ", idle), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(so *storage.Options, o *Options) {
				so.Shared, so.Follow, o.Shared, o.Idle = true, true, true, idle
			})
			look := func() {
				if idle {
					return
				}
				_, err := r.loop.leases.balance(t.Context())
				require.NoError(t, err)
				r.loop.hold()
			}
			look()
			r.loop.Round(t.Context())
			next, err := r.store.SetPeriod(t.Context(), format.Period{Partitions: 16}, time.Time{})
			require.NoError(t, err)
			r.loop.Round(t.Context()) // before the leases were updated
			require.True(t, r.loop.Relieve(t.Context()))
			look()
			r.clock.Store(next.FromMS)
			r.advance(25 * hour)
			awaitBeats(t, r.store, r.store.Member().Writer())
			r.write(r.now().Add(-24*hour), 1)
			r.loop.Round(t.Context())
			status := r.loop.Status(t.Context())
			require.Len(t, status.Partitions, 16)
			sealed := 40
			if idle {
				sealed = 0
			}
			for _, p := range status.Partitions {
				require.Equal(t, !idle, p.Mine)
			}
			require.Equal(t, sealed, r.check().Samples)
		})
	}
}
