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

// nodesAtOnce is how many nodes are asked for facts at the same time.
const nodesAtOnce = 8

// NodeFacts is what a node reports about itself.
type NodeFacts struct {
	Node
	// Up is true if this process is connected to it, or for Look, can be.
	Up bool
	// CommitlogSync is when a write is on the disk: "group" or "batch", before it is acknowledged;
	// "periodic", seconds after, so that a power failure loses acknowledged writes.
	CommitlogSync string
	// ClockAhead is by how much its clock is ahead of this process', give or take ClockError.
	ClockAhead, ClockError time.Duration
	// Tables are the engine's, as this node keeps them.
	Tables []TableFacts
	// Err is the reason why the other fields, or some of them, are missing.
	Err error
}

// TableFacts is what a node reports about one of its tables. Reads are counted since the node started.
type TableFacts struct {
	Table string
	// DiskMiB is the room of its files; MaxPartitionMiB the size of the largest partition in one of them.
	DiskMiB, MaxPartitionMiB int64
	// TombstonesPerRead and RowsPerRead are what nearly all reads (99 of 100) pass over at most.
	TombstonesPerRead, RowsPerRead float64
	// MaxTombstonesPerRead is what the worst read passed over.
	MaxTombstonesPerRead float64
}

// Cluster asks a node about the cluster anew.
func (e *Engine) Cluster(ctx context.Context) (*Cluster, error) {
	if err := e.begin(ctx); err != nil {
		return nil, err
	}
	return e.opts.scout(ctx)
}

// Replication returns how many copies each data center keeps; "replication_factor" stands for all of them.
func (e *Engine) Replication(ctx context.Context) (map[string]int, error) {
	if err := e.begin(ctx); err != nil {
		return nil, err
	}
	copies, err := readReplication(ctx, e.session, e.opts.Keyspace)
	return copies, err
}

// Nodes asks every node of the local data center about itself, and returns them in the order of their host
// IDs. A node that doesn't answer has an error. More than Options.ConnectTimeout plus Options.Timeout aren't
// spent on one.
func (e *Engine) Nodes(ctx context.Context) ([]NodeFacts, error) {
	c, err := e.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	facts := e.opts.askNodes(ctx, c)
	for i := range facts {
		facts[i].Up = e.nodes.isUp(facts[i].HostID)
	}
	return facts, nil
}

// askNodes asks the nodes of the local data center, some at a time.
func (o *Options) askNodes(ctx context.Context, c *Cluster) (facts []NodeFacts) {
	for _, n := range c.local() {
		facts = append(facts, NodeFacts{Node: n})
	}
	var asking sync.WaitGroup
	turn := make(chan struct{}, nodesAtOnce)
	for i := range facts {
		asking.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			facts[i].Err = panics.Do("examining the cluster", func() error { return o.askNode(ctx, &facts[i]) })
		})
	}
	asking.Wait()
	return facts
}

// askNode fills in what a node reports, and that it is up if it answers at all.
func (o *Options) askNode(ctx context.Context, n *NodeFacts) error {
	session, err := o.direct(n.Address)
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
	err = session.Query("SELECT value FROM system_views.settings WHERE name = 'commitlog_sync'").WithContext(ctx).Scan(&n.CommitlogSync)
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

// tableFacts reads a node's statistics of the keyspace's tables, in the order of engine.Tables; what it has none of stays 0.
// Cassandra computes such a view for all tables of all keyspaces, also when it is asked for one of them. So each view is read
// once, whole.
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
		{"tombstones_per_read", "p99th, max", []any{&p99th, &most}, func(f *TableFacts) { f.TombstonesPerRead, f.MaxTombstonesPerRead = p99th, most }},
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

// clockAhead compares a node's clock with ours: read between two looks at ours, it is off by half of the
// time between them at most, plus the millisecond that CQL's timestamps have.
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
	err := session.Query("SELECT toTimestamp(now()) FROM system.local").WithContext(ctx).Consistency(gocql.One).Scan(&there)
	return there, err
}

// ExpiresRows returns true: rows expire by themselves, at the time that they were written with.
func (e *Engine) ExpiresRows() bool { return true }

// Clock returns what time it is on one of the nodes.
func (e *Engine) Clock(ctx context.Context) (time.Time, error) {
	if err := e.begin(ctx); err != nil {
		return time.Time{}, err
	}
	var there time.Time
	err := e.request(ctx, opOther, transient, func(ctx context.Context) (int, error) {
		before := e.opts.Now()
		var err error
		if there, err = readClock(ctx, e.session); err == nil {
			e.clock.Store(&clusterClock{there, before.Add(e.opts.Now().Sub(before) / 2)})
		}
		return 1, err
	})
	return there, e.translate(ctx, "read the coordinator's clock", err)
}

// Difference is something about the schema that isn't as this release would have made it.
type Difference struct {
	// Table is the table's name.
	Table string
	// Option names what was set otherwise, such as compaction; empty: the table is missing, or isn't Cassia's.
	Option string
	// What is the difference, as text with the actual and the wanted value; Do is the remedy, as CQL or words.
	What, Do string
}

// CompareSchema compares the keyspace with what this release would create. Only what matters is compared;
// an operator may have reasons to keep a difference.
func (e *Engine) CompareSchema(ctx context.Context) ([]Difference, error) {
	if err := e.begin(ctx); err != nil {
		return nil, err
	}
	live, err := readSchema(ctx, e.session, e.opts.Keyspace)
	if err != nil {
		return nil, e.translate(ctx, "compare the schema", err)
	}
	return live.compare(&e.opts), nil
}

// Finding is something about the cluster that needs an operator's attention.
type Finding struct {
	// What is the problem, and its possible consequence; Do is the remedy.
	What, Do string
}

// Findings looks at what decides whether acknowledged writes survive, as is worth doing at start. Nodes that
// don't answer are left out.
func (e *Engine) Findings(ctx context.Context) ([]Finding, error) {
	nodes, err := e.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	copies, err := e.Replication(ctx)
	if err != nil {
		return nil, err
	}
	return findings(e.opts.Keyspace, e.dc, nodes, copies), nil
}

func findings(keyspace, dc string, nodes []NodeFacts, copies replication) []Finding {
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
			What: fmt.Sprintf("commitlog_sync is periodic on %s: the last seconds of acknowledged writes may be lost if several nodes lose power at once", listed(periodic)),
			Do:   "set commitlog_sync: group and commitlog_sync_group_window: 10ms in cassandra.yaml, and restart the nodes one at a time",
		})
	}
	if n := copies.in(dc); n == 1 && len(nodes) > 1 {
		found = append(found, Finding{
			What: fmt.Sprintf("keyspace %s keeps 1 copy in data center %s, which has %d nodes: while a node is down, its rows are unavailable", keyspace, dc, len(nodes)),
			Do:   fmt.Sprintf("run ALTER KEYSPACE %s WITH replication = %s; then run nodetool repair -full %s on every node", quoted(keyspace), replication{dc: min(3, len(nodes))}, keyspace),
		})
	} else if n == 2 {
		found = append(found, Finding{
			What: fmt.Sprintf("keyspace %s keeps 2 copies in data center %s: a quorum needs both, so a single node failure stops reads and writes", keyspace, dc),
			Do:   fmt.Sprintf("run ALTER KEYSPACE %s WITH replication = %s; then run nodetool repair -full %s on every node", quoted(keyspace), replication{dc: 3}, keyspace),
		})
	}
	return found
}

// listed is a list of which the end may be left out.
func listed(names []string) string {
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
