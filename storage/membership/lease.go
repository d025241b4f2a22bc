package membership

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/cassia-db/cassia/storage/engine"
)

// The partitions of table lease.
const (
	// leasePartitions has a lease per partition: of the process that seals it.
	leasePartitions = "partitions"
	// leaseRules has one lease, number 0: of the process that evaluates rules.
	leaseRules = "rules"
	// leaseFilling has one lease, number 0: of the process that changes rollups without samples, see Member.Filling.
	leaseFilling = "filling"
)

// Lease names the process that works on a partition or evaluates rules. Leases only avoid duplicate work: two
// concurrent owners would write the same rows. An exception is the lease that a Turn uses, which must have one owner. A
// lease is free once Liveness no longer lists its owner.
type Lease struct {
	// Owner is the owner's Process.Writer, "" if the lease is free. Name is the owner's Process.Name, for display.
	Owner string `json:"owner"`
	Name  string `json:"name"`
	// SinceMS is the time at which the owner acquired the lease, by the owner's clock, in milliseconds.
	SinceMS int64 `json:"since_ms"`

	row []byte // the row's value when it was read
}

// Leases reads the leases of n partitions. A lease that was never acquired is free.
func (m *Member) Leases(ctx context.Context, n int) ([]Lease, error) {
	return m.leases(ctx, leasePartitions, n)
}

// RulesLease reads the lease for evaluating rules. A lease that was never acquired is free.
func (m *Member) RulesLease(ctx context.Context) (Lease, error) {
	leases, err := m.leases(ctx, leaseRules, 1)
	if err != nil {
		return Lease{}, err
	}
	return leases[0], nil
}

func (m *Member) leases(ctx context.Context, name string, n int) ([]Lease, error) {
	leases := make([]Lease, n)
	for row, err := range m.o.Engine.Scan(ctx, engine.Range{
		Table: engine.Lease, Partition: engine.Key{engine.Text(name)},
	}) {
		if err != nil {
			return nil, fmt.Errorf("membership: reading the leases: %w", err)
		}
		p := row.Clustering[0].Int
		if p < 0 || p >= int64(len(leases)) {
			continue
		}
		lease := &leases[p]
		if err := json.Unmarshal(row.Value, lease); err != nil {
			m.o.Corrupt(engine.Lease, fmt.Errorf("membership: lease %d of %s is malformed: %w", p, name, err))
			*lease = Lease{} // The next owner overwrites the malformed row.
		}
		lease.row = slices.Clone(row.Value)
	}
	return leases, nil
}

// SetLeaseOwner acquires a partition's lease for owner, or releases it if owner is "". It writes nothing if the lease
// has changed since lease was read. The second result reports whether the lease was written. After an error it may or
// may not have been written.
func (m *Member) SetLeaseOwner(ctx context.Context, partition int, lease Lease, owner string) (Lease, bool, error) {
	return m.setLeaseOwner(ctx, leasePartitions, partition, lease, owner)
}

// SetRulesLeaseOwner acquires or releases the lease for evaluating rules, as SetLeaseOwner does.
func (m *Member) SetRulesLeaseOwner(ctx context.Context, lease Lease, owner string) (Lease, bool, error) {
	return m.setLeaseOwner(ctx, leaseRules, 0, lease, owner)
}

func (m *Member) setLeaseOwner(
	ctx context.Context, name string, item int, lease Lease, owner string,
) (Lease, bool, error) {
	next := Lease{Owner: owner, SinceMS: m.o.Now().UnixMilli()}
	if owner != "" {
		if err := m.MayRemove(); err != nil {
			return lease, false, err
		}
		next.Name = m.o.Self.Name
	}
	row, err := json.Marshal(next)
	if err != nil {
		return lease, false, err
	}
	next.row = row
	ok, _, err := m.o.Engine.CompareAndSet(
		ctx, engine.Lease, engine.Key{engine.Text(name)}, engine.Key{engine.Int(int64(item))}, lease.row, row,
	)
	if err != nil {
		return lease, false, fmt.Errorf("membership: acquiring lease %d of %s: %w", item, name, err)
	}
	return next, ok, nil
}
