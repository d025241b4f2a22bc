package cassandra

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/panics"
)

// nodesAtOnce is the number of nodes that are queried for facts concurrently.
const nodesAtOnce = 8

// NodeFacts is the state of a node as reported by the node.
type NodeFacts struct {
	Node
	// Up is true if this process is connected to the node or, in the result of ReadFacts, could connect to it.
	Up bool
	// CommitlogSync determines when a write is on the disk. With "group" and "batch", the write is on the disk before
	// it is acknowledged. With "periodic", it is on the disk up to seconds later, and a power failure may lose
	// acknowledged writes.
	CommitlogSync string
	// ClockAhead is the node's clock minus this process's clock: negative if the node's clock is slow. It may be wrong
	// by up to ClockError.
	ClockAhead, ClockError time.Duration
	// Tables are the engine's tables on this node.
	Tables []TableFacts
	// Err is the reason why some or all of the other fields are missing.
	Err error
}

// TableFacts is the state of a table as reported by a node. Reads are counted from the node's start.
type TableFacts struct {
	Table string
	// DiskMiB is the size of the table's files. MaxPartitionMiB is the size of the largest partition in one of them.
	DiskMiB, MaxPartitionMiB int64
	// TombstonesPerRead and RowsPerRead are the 99th percentiles of the numbers of tombstones and rows per read.
	TombstonesPerRead, RowsPerRead float64
	// MaxTombstonesPerRead is the max number of tombstones in one read.
	MaxTombstonesPerRead float64
}

// Cluster reads the state of the cluster again from a node.
func (e *Engine) Cluster(ctx context.Context) (*Cluster, error) {
	if err := e.begin(ctx); err != nil {
		return nil, err
	}
	return e.opts.readCluster(ctx)
}

// Replication returns the number of replicas per data center. The key "replication_factor" applies to all data centers.
func (e *Engine) Replication(ctx context.Context) (map[string]int, error) {
	if err := e.begin(ctx); err != nil {
		return nil, err
	}
	copies, err := readReplication(ctx, e.session, e.opts.Keyspace)
	return copies, err
}

// Nodes queries every node of the local data center and returns the nodes in the order of their host IDs. For a node
// that doesn't respond, NodeFacts.Err is set. Nodes spends at most Options.ConnectTimeout plus Options.Timeout on one
// node.
func (e *Engine) Nodes(ctx context.Context) ([]NodeFacts, error) {
	c, err := e.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	facts := e.opts.readNodes(ctx, c)
	for i := range facts {
		facts[i].Up = e.nodes.isUp(facts[i].HostID)
	}
	return facts, nil
}

// readNodes queries the nodes of the local data center, nodesAtOnce at a time.
func (o *Options) readNodes(ctx context.Context, c *Cluster) (facts []NodeFacts) {
	for _, n := range c.local() {
		facts = append(facts, NodeFacts{Node: n})
	}
	var asking sync.WaitGroup
	turn := make(chan struct{}, nodesAtOnce)
	for i := range facts {
		asking.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			facts[i].Err = panics.Call("examining the cluster", func() error { return o.readNode(ctx, &facts[i]) })
		})
	}
	asking.Wait()
	return facts
}

// readNode fills in the facts of a node, and sets Up if it responds at all.
func (o *Options) readNode(ctx context.Context, n *NodeFacts) error {
	session, err := o.openDirect(n.Address)
	if err != nil {
		return err
	}
	defer session.Close()
	n.Up = true
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	var errs []error
	if n.ClockAhead, n.ClockError, err = o.clockAhead(ctx, session); err != nil {
		errs = append(errs, fmt.Errorf("read its clock: %w", err))
	}
	err = session.Query(
		"SELECT value FROM system_views.settings WHERE name = 'commitlog_sync'",
	).WithContext(ctx).Scan(&n.CommitlogSync)
	if err != nil {
		errs = append(errs, fmt.Errorf("read its setting commitlog_sync: %w", err))
	}
	if n.Tables, err = tableFacts(ctx, session, o.Keyspace); err != nil {
		errs = append(errs, fmt.Errorf("read its statistics of tables: %w", err))
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w", n.Address, oneLine(errs))
}

// tableFacts reads a node's statistics of the keyspace's tables, in the order of engine.Tables. Missing statistics are
// 0. Each virtual table with statistics is read once, completely, because Cassandra computes its rows for all tables of
// all keyspaces even if a query selects only one table.
func tableFacts(ctx context.Context, session *gocql.Session, keyspace string) ([]TableFacts, error) {
	facts, byName := make([]TableFacts, len(engine.Tables)), map[string]*TableFacts{}
	for i, t := range engine.Tables {
		facts[i].Table = t.Name
		byName[t.Name] = &facts[i]
	}
	var in, table string
	var mebibytes int64
	var p99th, most float64
	for _, view := range []struct {
		name, columns string
		into          []any
		set           func(*TableFacts)
	}{
		{"disk_usage", "mebibytes", []any{&mebibytes}, func(f *TableFacts) { f.DiskMiB = mebibytes }},
		{"max_partition_size", "mebibytes", []any{&mebibytes}, func(f *TableFacts) { f.MaxPartitionMiB = mebibytes }},
		{
			"tombstones_per_read", "p99th, max", []any{&p99th, &most},
			func(f *TableFacts) { f.TombstonesPerRead, f.MaxTombstonesPerRead = p99th, most },
		},
		{"rows_per_read", "p99th", []any{&p99th}, func(f *TableFacts) { f.RowsPerRead = p99th }},
	} {
		rows := session.Query("SELECT keyspace_name, table_name, " + view.columns + " FROM system_views." + view.name).
			WithContext(ctx).Consistency(gocql.One).Iter()
		for into := append([]any{&in, &table}, view.into...); rows.Scan(into...); {
			if f := byName[table]; f != nil && in == keyspace {
				view.set(f)
			}
		}
		if err := rows.Close(); err != nil {
			return nil, fmt.Errorf("%s: %w", view.name, err)
		}
	}
	return facts, nil
}

// clockAhead compares a node's clock with this process's clock. The node's clock is read between two readings of this
// process's clock, so the error is at most half of the time between the two readings, plus the millisecond resolution
// of CQL's timestamps.
func (o *Options) clockAhead(ctx context.Context, session *gocql.Session) (ahead, within time.Duration, err error) {
	var there time.Time
	before := o.Now()
	if there, err = readClock(ctx, session); err != nil {
		return 0, 0, err
	}
	took := o.Now().Sub(before)
	return there.Sub(before.Add(took / 2)), took/2 + time.Millisecond, nil
}

func readClock(ctx context.Context, session *gocql.Session) (time.Time, error) {
	var there time.Time
	err := session.Query(
		"SELECT toTimestamp(now()) FROM system.local",
	).WithContext(ctx).Consistency(gocql.One).Scan(&there)
	return there, err
}

// ExpiresRows returns true: rows expire at the time set when they are written.
func (e *Engine) ExpiresRows() bool { return true }

// Clock returns the time by the clock of one of the nodes.
func (e *Engine) Clock(ctx context.Context) (time.Time, error) {
	if err := e.begin(ctx); err != nil {
		return time.Time{}, err
	}
	var there time.Time
	err := e.sendRequest(ctx, opOther, isTransient, func(ctx context.Context) (int, error) {
		before := e.opts.Now()
		var err error
		if there, err = readClock(ctx, e.session); err == nil {
			e.clock.Store(&clusterClock{there, before.Add(e.opts.Now().Sub(before) / 2)})
		}
		return 1, err
	})
	return there, e.translateError(ctx, "read the coordinator's clock", err)
}

// Difference is a difference between the existing schema of a keyspace and the schema that this release would create.
type Difference struct {
	// Table is the table's name.
	Table string
	// Option is the name of the option that differs, such as compaction. If it is empty, the table is missing or
	// belongs to another program.
	Option string
	// What describes the difference, with the actual and the expected value. Do is the remedy, as CQL or text.
	What, Do string
}

// CompareSchema compares the keyspace with the schema that this release would create. It compares only options that
// matter. An operator may have reasons to keep a difference.
func (e *Engine) CompareSchema(ctx context.Context) ([]Difference, error) {
	if err := e.begin(ctx); err != nil {
		return nil, err
	}
	live, err := readSchema(ctx, e.session, e.opts.Keyspace)
	if err != nil {
		return nil, e.translateError(ctx, "compare the schema", err)
	}
	return live.compare(&e.opts), nil
}

// Finding is a condition of the cluster that needs an operator's attention.
type Finding struct {
	// What is the problem and its possible consequence. Do is the remedy.
	What, Do string
}

// Findings checks the settings on which the durability of acknowledged writes depends. It is meant to be called at
// start. Nodes that don't respond are left out.
func (e *Engine) Findings(ctx context.Context) ([]Finding, error) {
	nodes, err := e.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	copies, err := e.Replication(ctx)
	if err != nil {
		return nil, err
	}
	return findingsOf(e.opts.Keyspace, e.dc, nodes, copies), nil
}

func findingsOf(keyspace, dc string, nodes []NodeFacts, copies replication) []Finding {
	var found []Finding
	var periodic []string
	for _, n := range nodes {
		if n.CommitlogSync == "periodic" {
			periodic = append(periodic, n.Address)
		}
	}
	if len(periodic) > 0 {
		slices.Sort(periodic)
		found = append(found, Finding{
			What: fmt.Sprintf(
				"commitlog_sync is periodic on %s: the last seconds of acknowledged writes may be lost if several "+
					"nodes lose power at once",
				joinShortened(periodic),
			),
			Do: "set commitlog_sync: group and commitlog_sync_group_window: 10ms in cassandra.yaml, and restart the " +
				"nodes one at a time",
		})
	}
	if n := copies.countIn(dc); n == 1 && len(nodes) > 1 {
		found = append(found, Finding{
			What: fmt.Sprintf(
				"keyspace %s keeps 1 copy in data center %s, which has %d nodes: while a node is down, its rows are "+
					"unavailable",
				keyspace, dc, len(nodes),
			),
			Do: fmt.Sprintf(
				"run ALTER KEYSPACE %s WITH replication = %s; then run nodetool repair -full %s on every node",
				quoteName(keyspace), replication{dc: min(3, len(nodes))}, keyspace,
			),
		})
	} else if n == 2 {
		found = append(found, Finding{
			What: fmt.Sprintf(
				"keyspace %s keeps 2 copies in data center %s: a quorum needs both, so a single node failure stops "+
					"reads and writes",
				keyspace, dc,
			),
			Do: fmt.Sprintf(
				"run ALTER KEYSPACE %s WITH replication = %s; then run nodetool repair -full %s on every node",
				quoteName(keyspace), replication{dc: 3}, keyspace,
			),
		})
	}
	return found
}

// joinShortened joins names, and leaves out names of long lists.
func joinShortened(names []string) string {
	const most = 5
	text := ""
	for i, name := range names {
		switch {
		case i == most:
			return fmt.Sprintf("%s and %d more", text, len(names)-most)
		case i > 0:
			text += ", "
		}
		text += name
	}
	return text
}
