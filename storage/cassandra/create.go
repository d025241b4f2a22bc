package cassandra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gocql/gocql"

	"github.com/cassia-db/cassia/storage/engine"
)

const (
	// schemaAgreement is the max time until all nodes have a new table.
	schemaAgreement = 30 * time.Second
	// schemaTimeout is the max time in which one node creates a table.
	schemaTimeout = time.Minute
	// schemaTries is the max number of times that Open reads and completes the schema.
	schemaTries = 4
)

// bySchemaCommand describes how operators can create the schema.
const bySchemaCommand = "create the schema with `cassia schema | cqlsh`, or let Cassia create it"

// prepareSchema creates missing tables and checks the existing ones.
//
// Cassandra evaluates IF NOT EXISTS on one node. If two nodes create a table at the same time, it can get two
// identities. All processes therefore use the same node: the one with the smallest host ID that responds.
func (o *Options) prepareSchema(ctx context.Context, c *Cluster) error {
	var errs []error
	for range schemaTries {
		for _, n := range c.local() {
			err := o.prepareSchemaOn(ctx, c, n)
			if err == nil || errors.Is(err, ErrSettings) || ctx.Err() != nil {
				return err
			}
			errs = append(errs, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
	return fmt.Errorf("cassandra: no node can check or create the schema: %w", errs[len(errs)-1])
}

func (o *Options) prepareSchemaOn(ctx context.Context, c *Cluster, n Node) error {
	longer := *o
	longer.Timeout = max(o.Timeout, 2*schemaTimeout)
	session, err := longer.openDirect(n.Address)
	if err != nil {
		return err
	}
	defer session.Close()
	if err := o.prepareKeyspace(ctx, c, session); err != nil {
		return err
	}
	live, err := readSchema(ctx, session, o.Keyspace)
	if err != nil {
		return err
	}
	if err := live.checkVersion(); err != nil {
		return err
	}
	missing := live.missing()
	if len(missing) > 0 && !o.CreateSchema {
		return newRefusal("keyspace %s is missing the tables %s; %s",
			o.Keyspace, strings.Join(namesOf(missing), ", "), bySchemaCommand)
	}
	for _, t := range missing {
		if err := o.changeSchema(ctx, session, createTable(o, t)); err != nil {
			return fmt.Errorf("create table %s: %w", t, err)
		}
	}
	if len(missing) > 0 {
		o.Logger.Info("created tables", "keyspace", o.Keyspace, "tables", strings.Join(namesOf(missing), ","))
		if err := session.AwaitSchemaAgreement(ctx); err != nil {
			return fmt.Errorf("the nodes don't agree on the schema: %w", err)
		}
	}
	return live.checkColumns()
}

// prepareKeyspace creates the keyspace if it is missing, and checks that the consistency level can be reached.
func (o *Options) prepareKeyspace(ctx context.Context, c *Cluster, session *gocql.Session) error {
	copies, err := readReplication(ctx, session, o.Keyspace)
	if err != nil {
		return err
	}
	exists := copies != nil
	if !exists {
		if !o.CreateSchema {
			return newRefusal("keyspace %s doesn't exist; %s", o.Keyspace, bySchemaCommand)
		}
		if copies, err = parseReplication(o.Replication); err != nil {
			return err
		}
		if copies == nil {
			copies = replication{c.LocalDC: min(3, len(c.local()))}
		}
	}
	if err := checkConsistency(o, c, copies); err != nil || exists {
		return err
	}
	if err := o.changeSchema(ctx, session, createKeyspace(o.Keyspace, copies)); err != nil {
		return fmt.Errorf("create keyspace %s: %w", o.Keyspace, err)
	}
	o.Logger.Info("created the keyspace", "keyspace", o.Keyspace, "replication", copies.String())
	return nil
}

// changeSchema runs a statement that changes the schema. gocql then waits until all nodes have the change.
func (o *Options) changeSchema(ctx context.Context, session *gocql.Session, statement string) error {
	err := session.Query(statement).WithContext(ctx).Consistency(gocql.One).Exec()
	var exists *gocql.RequestErrAlreadyExists
	var request gocql.RequestError
	switch {
	case err == nil || errors.As(err, &exists):
		return nil
	case isUnauthorized(err):
		return newRefusal("user %q has no permission to change the schema; %s: %w", o.Username, bySchemaCommand, err)
	case errors.As(err, &request) && !isTransient(err):
		return newRefusal("Cassandra rejects %q: %w", firstLine(statement), err)
	default:
		return err
	}
}

func firstLine(statement string) string {
	line, _, _ := strings.Cut(statement, "\n")
	return line
}

// checkConsistency returns an error if the consistency level can't be reached with this replication on the existing
// nodes.
func checkConsistency(o *Options, c *Cluster, copies replication) error {
	nodes, total := c.nodesIn(), 0
	for _, dc := range c.dataCenters() {
		total += copies.countIn(dc)
	}
	if copies.countIn(c.LocalDC) == 0 {
		return newRefusal(
			"keyspace %s has no copies in data center %s: replication %s; alter the keyspace, or choose another "+
				"local data center",
			o.Keyspace, c.LocalDC, copies,
		)
	}
	need := func(where string, copies, needed, nodes int) error {
		switch {
		case needed > copies:
			return newRefusal(
				"consistency level %s needs %d copies, but keyspace %s has %d%s; raise the replication factor, or "+
					"use LOCAL_QUORUM",
				o.Consistency, needed, o.Keyspace, copies, where,
			)
		case needed > nodes:
			return newRefusal(
				"consistency level %s of %d copies needs %d nodes, but the cluster has %d%s; lower the replication "+
					"factor of keyspace %s, or add nodes",
				o.Consistency, copies, needed, nodes, where, o.Keyspace,
			)
		}
		return nil
	}
	here := func(dc string) string { return " in data center " + dc }
	switch o.Consistency {
	case "LOCAL_ONE", "ONE":
		return need("", total, 1, len(c.Nodes))
	case "TWO":
		return need("", total, 2, len(c.Nodes))
	case "THREE":
		return need("", total, 3, len(c.Nodes))
	case "QUORUM":
		return need("", total, quorum(total), len(c.Nodes))
	case "ALL":
		return need("", total, total, len(c.Nodes))
	case "EACH_QUORUM":
		for _, dc := range c.dataCenters() {
			if n := copies.countIn(dc); n > 0 {
				if err := need(here(dc), n, quorum(n), nodes[dc]); err != nil {
					return err
				}
			}
		}
		return nil
	default:
		n := copies.countIn(c.LocalDC)
		return need(here(c.LocalDC), n, quorum(n), nodes[c.LocalDC])
	}
}

func namesOf(tables []*engine.Table) []string {
	names := make([]string, len(tables))
	for i, t := range tables {
		names[i] = t.Name
	}
	slices.Sort(names)
	return names
}
