package cassandra

import (
	"context"
	"fmt"
	"strings"

	"github.com/gocql/gocql"
)

// AlterSchema changes the options of existing tables to the options with which this release creates tables, for example
// compaction windows after a change of the retention. It yields each statement before it runs it. If dry is set, it
// runs none. It returns an error for a difference that only an operator can fix, such as a missing table.
func AlterSchema(ctx context.Context, opts Options, dry bool, yield func(statement string) error) error {
	f, err := ReadFacts(ctx, opts)
	if err != nil {
		return err
	}
	if f.Replication == nil {
		return newRefusal("keyspace %s doesn't exist; %s", opts.Keyspace, bySchemaCommand)
	}
	for _, d := range f.Differences {
		if !d.isAlteration() {
			return newRefusal("table %s: %s; %s", d.Table, d.What, d.Do)
		}
	}
	statements := map[string]bool{} // Multiple differences may have the same remedy.
	var session *gocql.Session
	for _, d := range f.Differences {
		if statements[d.Do] {
			continue
		}
		statements[d.Do] = true
		if err := yield(d.Do); err != nil || dry {
			if err != nil {
				return err
			}
			continue
		}
		if session == nil {
			if session, err = opts.openSchemaSession(f); err != nil {
				return err
			}
			defer session.Close()
		}
		if err := opts.changeSchema(ctx, session, d.Do); err != nil {
			return fmt.Errorf("cassandra: alter table %s: %w", d.Table, err)
		}
	}
	return nil
}

// isAlteration reports whether the remedy is a statement that changes an option of the table.
func (d *Difference) isAlteration() bool { return strings.HasPrefix(d.Do, "ALTER TABLE ") }

// openSchemaSession opens a session for schema changes with a node that was up when f was read.
func (o *Options) openSchemaSession(f *Facts) (*gocql.Session, error) {
	longer := *o
	longer.Timeout = max(o.Timeout, 2*schemaTimeout)
	var errs []error
	for _, n := range f.Nodes {
		if !n.Up {
			continue
		}
		session, err := longer.openDirect(n.Address)
		if err == nil {
			return session, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("cassandra: no node can change the schema: %w", oneLine(errs))
}
