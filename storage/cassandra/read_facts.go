package cassandra

import (
	"context"
	"errors"
	"fmt"
)

// Facts describes a cluster and a keyspace, as seen by a client.
type Facts struct {
	Cluster *Cluster
	// Replication is the number of replicas per data center, as returned by Engine.Replication. It is nil if the
	// keyspace doesn't exist.
	Replication map[string]int
	// Nodes are the nodes of the local data center, as returned by Engine.Nodes.
	Nodes []NodeFacts
	// Differences are the differences of the schema, as returned by Engine.CompareSchema. It is empty if the keyspace
	// doesn't exist.
	Differences []Difference
}

// ReadFacts reads the state of a cluster and a keyspace, even if Open would reject them or too few nodes are up for
// reads. It changes nothing. It returns an error if no node responds.
func ReadFacts(ctx context.Context, opts Options) (*Facts, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	c, err := opts.readCluster(ctx)
	if err != nil {
		return nil, err
	}
	f := &Facts{Cluster: c, Nodes: opts.readNodes(ctx, c)}
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

// readSchema reads the keyspace from one node.
func (o *Options) readSchema(ctx context.Context, address string, f *Facts) error {
	session, err := o.openDirect(address)
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
