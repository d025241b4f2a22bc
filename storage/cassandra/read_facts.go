package cassandra

import (
	"context"
	"errors"
	"fmt"
)

// Facts are what can be found out of a cluster and a keyspace from outside.
type Facts struct {
	Cluster *Cluster
	// Replication is how many copies each data center keeps, as Engine.Replication returns it; nil if there is
	// no such keyspace.
	Replication map[string]int
	// Nodes are those of the local data center, as Engine.Nodes returns them.
	Nodes []NodeFacts
	// Differences are those of the schema, as Engine.CompareSchema returns them; none without a keyspace.
	Differences []Difference
}

// ReadFacts finds out about a cluster and a keyspace in whatever state they are, also one in which Open refuses them
// or too few nodes are left for reads. It changes nothing. Without a single node that answers it returns an error.
func ReadFacts(ctx context.Context, opts Options) (*Facts, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	c, err := opts.scout(ctx)
	if err != nil {
		return nil, err
	}
	f := &Facts{Cluster: c, Nodes: opts.askNodes(ctx, c)}
	var errs []error
	for _, n := range f.Nodes {
		if !n.Up {
			continue
		}
		if err := opts.readSchema(ctx, n.Address, f); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", n.Address, err))
			continue
		}
		return f, nil
	}
	if len(errs) == 0 {
		errs = append(errs, errors.New("no node of the local data center responds"))
	}
	return nil, fmt.Errorf("cassandra: examine keyspace %s: %w", opts.Keyspace, oneLine(errs))
}

// readSchema asks one node about the keyspace.
func (o *Options) readSchema(ctx context.Context, address string, f *Facts) error {
	session, err := o.direct(address)
	if err != nil {
		return err
	}
	defer session.Close()
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	copies, err := readReplication(ctx, session, o.Keyspace)
	if err != nil || copies == nil {
		return err
	}
	live, err := readSchema(ctx, session, o.Keyspace)
	if err != nil {
		return err
	}
	f.Replication, f.Differences = copies, live.compare(o)
	return nil
}
