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
	// leasePartitions is that whose items are the partitions of the work.
	leasePartitions = "partitions"
	// leaseRules is that with one item, 0: who evaluates rules.
	leaseRules = "rules"
	// leaseFilling is that with one item, 0: who changes rollups that have no samples.
	leaseFilling = "filling"
)

// Lease names the process that works off a partition, or evaluates rules. It saves work and nothing depends on it: two
// owners at once end in the same rows. That of who changes rollups without samples is another matter, see Turn. It is over
// when its owner is no longer heard of (see Processes).
type Lease struct {
	// Owner is the Writer of a process, "" if the lease is free; Name is for people.
	Owner string `json:"owner"`
	Name  string `json:"name"`
	// SinceMS is when the owner took it, by its clock, milliseconds.
	SinceMS int64 `json:"since_ms"`

	row []byte // as it was read
}

// Leases reads who works off which of n partitions. One that nobody ever took is free.
func (m *Member) Leases(ctx context.Context, n int) ([]Lease, error) {
	return m.leases(ctx, leasePartitions, n)
}

// RulesLease reads who evaluates rules. It is free if nobody ever did.
func (m *Member) RulesLease(ctx context.Context) (Lease, error) {
	leases, err := m.leases(ctx, leaseRules, 1)
	if err != nil {
		return Lease{}, err
	}
	return leases[0], nil
}

func (m *Member) leases(ctx context.Context, name string, n int) ([]Lease, error) {
	leases := make([]Lease, n)
	for row, err := range m.o.Engine.Scan(ctx, engine.Range{Table: engine.Lease, Partition: engine.Key{engine.Text(name)}}) {
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
			*lease = Lease{} // Whoever takes it writes it anew.
		}
		lease.row = slices.Clone(row.Value)
	}
	return leases, nil
}

// Take makes owner the owner of a partition's lease, or nobody if it is "", unless the lease has changed
// since it was read. After an error it may have been taken or not.
func (m *Member) Take(ctx context.Context, partition int, lease Lease, owner string) (Lease, bool, error) {
	return m.take(ctx, leasePartitions, partition, lease, owner)
}

// TakeRules makes owner the one who evaluates rules, as Take does.
func (m *Member) TakeRules(ctx context.Context, lease Lease, owner string) (Lease, bool, error) {
	return m.take(ctx, leaseRules, 0, lease, owner)
}

func (m *Member) take(ctx context.Context, name string, item int, lease Lease, owner string) (Lease, bool, error) {
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
	ok, _, err := m.o.Engine.CompareAndSet(ctx, engine.Lease, engine.Key{engine.Text(name)}, engine.Key{engine.Int(int64(item))}, lease.row, row)
	if err != nil {
		return lease, false, fmt.Errorf("membership: acquiring lease %d of %s: %w", item, name, err)
	}
	return next, ok, nil
}
