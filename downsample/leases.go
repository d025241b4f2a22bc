package downsample

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/membership"
)

// leases divides the partitions among the processes that downsample. Each process computes the same even division of
// the partitions among the live processes. It releases the leases of partitions that are no longer its own, and
// acquires the leases of its own partitions that are free or whose owner is no longer live. Compare-and-set guarantees
// one owner per lease. Correctness doesn't depend on this: two owners only do the same work twice.
//
//	processes ─► live ones ─► division ─► acquire, keep or release ─► owned
type leases struct {
	store    *storage.Store
	self     string
	liveness *membership.Liveness
	owned    map[int]bool
}

// leaseInterval is the time between updates of the leases.
const leaseInterval = 2 * time.Second

func newLeases(store *storage.Store, now func() time.Time) *leases {
	return &leases{
		store: store, self: store.Member().Writer(), liveness: membership.NewLiveness(store.Member(), now),
		owned: map[int]bool{},
	}
}

// balance acquires and releases leases according to the current division. It reports whether this process owns a
// partition that it didn't own before.
func (l *leases) balance(ctx context.Context) (more bool, err error) {
	if l.store.Member().MayRemove() != nil { // untrusted clock: other processes don't count this one
		return false, l.giveUp(ctx)
	}
	workers, err := l.workers(ctx)
	if err != nil {
		return false, err
	}
	all, err := l.store.Member().Leases(ctx, l.store.Partitions())
	if err != nil {
		return false, err
	}
	shares := share(len(all), workers)
	for p, lease := range all {
		mine := shares[p] == l.self
		owner := ""
		switch {
		case lease.Owner == l.self && mine:
			more = more || !l.owned[p]
			l.owned[p] = true
			continue
		case lease.Owner == l.self: // to be released
		case mine && !slices.Contains(workers, lease.Owner):
			owner = l.self
		default:
			delete(l.owned, p)
			continue
		}
		delete(l.owned, p)
		_, ok, err := l.store.Member().SetLeaseOwner(ctx, p, lease, owner)
		if err != nil {
			return more, err
		}
		if ok && owner != "" {
			l.owned[p] = true
			more = true
		}
	}
	return more, nil
}

// workers returns the live processes that downsample, including this one, sorted.
func (l *leases) workers(ctx context.Context) ([]string, error) {
	others, err := l.liveness.Others(ctx)
	if err != nil {
		return nil, err
	}
	workers := []string{l.self}
	for _, p := range others {
		if p.Downsamples() {
			workers = append(workers, p.Writer)
		}
	}
	slices.Sort(workers)
	return workers, nil
}

// free announces that this process stops, and releases all its leases, so that other processes don't have to wait for
// LivenessTimeout.
func (l *leases) free(ctx context.Context) error {
	if err := l.store.Member().Leave(ctx); err != nil {
		return err
	}
	return l.giveUp(ctx)
}

// giveUp releases all leases of this process.
func (l *leases) giveUp(ctx context.Context) error {
	all, err := l.store.Member().Leases(ctx, l.store.Partitions())
	if err != nil {
		return err
	}
	for p, lease := range all {
		if lease.Owner != l.self {
			continue
		}
		if _, _, err := l.store.Member().SetLeaseOwner(ctx, p, lease, ""); err != nil {
			return err
		}
	}
	clear(l.owned)
	return nil
}

// share divides n partitions among workers. The workers' numbers of partitions differ by at most one, and few
// partitions move when a worker joins or leaves. It uses rendezvous hashing (Thaler and Ravishankar, "Using Name-Based
// Mappings to Increase Hit Rates", 1998) with a max number of partitions per worker.
func share(n int, workers []string) []string {
	shares := make([]string, n)
	taken := map[string]int{}
	extra := n % max(1, len(workers)) // number of workers that may have one more
	for p := range shares {
		ranked := slices.Clone(workers)
		slices.SortFunc(ranked, func(a, b string) int {
			return cmp.Or(cmp.Compare(score(p, b), score(p, a)), cmp.Compare(a, b))
		})
		for _, w := range ranked {
			room := n / len(workers)
			if taken[w] == room && extra > 0 {
				extra--
				room++
			}
			if taken[w] < room {
				taken[w]++
				shares[p] = w
				break
			}
		}
	}
	return shares
}

func score(partition int, worker string) uint64 {
	return xxhash.Sum64String(fmt.Sprint(worker, " ", strconv.Itoa(partition)))
}
