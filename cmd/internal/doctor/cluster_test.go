package doctor

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/cassandra"
)

// facts returns the facts of a healthy cluster with the given numbers of nodes and replicas. change modifies the facts.
// It may be nil.
func facts(nodes, copies int, change func(*cassandra.Facts)) *cassandra.Facts {
	f := &cassandra.Facts{Cluster: &cassandra.Cluster{LocalDC: "dc1"}, Replication: map[string]int{"dc1": copies}}
	for i := range nodes {
		n := cassandra.Node{
			Address: fmt.Sprintf("10.0.0.%d:9042", i+1), DataCenter: "dc1", Release: "5.0.4", Schema: "s",
		}
		f.Cluster.Nodes = append(f.Cluster.Nodes, n)
		f.Nodes = append(f.Nodes, cassandra.NodeFacts{
			Node: n, Up: true, CommitlogSync: "group", Tables: []cassandra.TableFacts{
				{Table: "stage", MaxPartitionMiB: 20}, {Table: "raw", MaxPartitionMiB: 40},
			},
		})
	}
	if change != nil {
		change(f)
	}
	return f
}

func nodesDown(nodes ...int) func(*cassandra.Facts) {
	return func(f *cassandra.Facts) {
		for _, n := range nodes {
			f.Nodes[n] = cassandra.NodeFacts{Node: f.Nodes[n].Node, Err: errors.New("connection refused")}
		}
	}
}

// worst returns the most severe finding.
func worst(t *testing.T, findings []Finding) Finding {
	t.Helper()
	require.NotEmpty(t, findings)
	for _, f := range findings {
		require.NotEmpty(t, f.What)
		if f.Level >= Warning {
			require.NotEmpty(t, f.Why, f.What)
			require.NotEmpty(t, f.Do, f.What)
		}
	}
	SortFindings(findings)
	return findings[0]
}

func TestCluster(t *testing.T) {
	for _, c := range []struct {
		name        string
		facts       *cassandra.Facts
		consistency string
		level       Level
		what        string // of the most severe finding
		do          string
	}{
		{name: "healthy", facts: facts(3, 3, nil)},
		{name: "one node", facts: facts(1, 1, nil), level: Note, what: "the cluster has a single node", do: "'dc1': 3}"},
		{name: "one node down", facts: facts(3, 3, nodesDown(1)), level: Warning, what: "1 of 3 nodes don't respond: 10.0.0.2:9042", do: "nodetool status"},
		{name: "two nodes down", facts: facts(3, 3, nodesDown(0, 1)), level: Error, what: "2 of 3 nodes don't respond"},
		{name: "down and one copy", facts: facts(3, 1, nodesDown(2)), level: Error, what: "1 of 3 nodes"},
		{name: "one copy on three", facts: facts(3, 1, nil), level: Warning, what: "keeps 1 copy in data center dc1, and consistency level LOCAL_QUORUM needs 1", do: "'dc1': 3}"},
		{name: "two copies", facts: facts(3, 2, nil), level: Warning, what: "keeps 2 copies in data center dc1, and consistency level LOCAL_QUORUM needs 2", do: "ALTER KEYSPACE ks WITH"},
		{name: "quorum out of reach", facts: facts(1, 3, nil), level: Error, what: "at most 1 can exist", do: "LOCAL_QUORUM"},
		{name: "ONE", facts: facts(3, 3, nil), consistency: "ONE", level: Warning, what: "consistency level ONE writes 1 and reads 1 of 3 copies", do: "--cassandra.consistency=LOCAL_QUORUM"},
		{name: "LOCAL_ONE of one copy", facts: facts(1, 1, nil), consistency: "LOCAL_ONE", level: Note, what: "a single node"},
		{name: "ALL", facts: facts(3, 3, nil), consistency: "ALL", level: Warning, what: "needs 3", do: "ALTER KEYSPACE"},
		{name: "THREE of two", facts: facts(3, 2, nil), consistency: "THREE", level: Error, what: "needs 3"},
		{name: "copies by replication_factor", facts: facts(3, 3, func(f *cassandra.Facts) {
			f.Replication = map[string]int{allDataCenters: 3}
		})},
		{name: "QUORUM over two data centers", facts: facts(3, 3, func(f *cassandra.Facts) {
			for i := range 3 {
				f.Cluster.Nodes = append(f.Cluster.Nodes, cassandra.Node{Address: fmt.Sprint(i), DataCenter: "dc2"})
			}
			f.Replication["dc2"] = 3
		}), consistency: "QUORUM"},
		{name: "no keyspace", facts: facts(3, 3, func(f *cassandra.Facts) { f.Replication = nil }), level: Warning, what: "the keyspace ks doesn't exist", do: "start `cassia serve`, or create it by hand: cassia schema --cassandra.keyspace=ks | cqlsh"},
		{name: "periodic", facts: facts(3, 3, func(f *cassandra.Facts) { f.Nodes[1].CommitlogSync = "periodic" }),
			level: Warning, what: "commitlog_sync is periodic on 10.0.0.2:9042",
			do: "commitlog_sync: group\ncommitlog_sync_group_window: 10ms"},
		{
			name:  "periodic and one copy",
			facts: facts(1, 1, func(f *cassandra.Facts) { f.Nodes[0].CommitlogSync = "periodic" }), level: Error,
			what: "commitlog_sync is periodic",
		},
		{name: "two schemas", facts: facts(3, 3, func(f *cassandra.Facts) { f.Nodes[1].Schema = "t" }), level: Warning, what: "the nodes have 2 different schema versions"},
		{name: "two releases", facts: facts(3, 3, func(f *cassandra.Facts) { f.Nodes[1].Release = "5.0.5" }), level: Note, what: "5.0.4, 5.0.5"},
		{name: "facts withheld", facts: facts(3, 3, func(f *cassandra.Facts) { f.Nodes[1].Err = errors.New("no SELECT") }), level: Note, what: "some information is missing: no SELECT"},
		{name: "table missing", facts: facts(3, 3, func(f *cassandra.Facts) {
			f.Differences = []cassandra.Difference{{Table: "raw", What: "the table is missing", Do: "run it"}}
		}), level: Error, what: "table raw: the table is missing", do: "run it"},
		{name: "compaction", facts: facts(3, 3, func(f *cassandra.Facts) {
			f.Differences = []cassandra.Difference{
				{Table: "raw", Option: "compaction_window", What: "its compaction_window is", Do: "ALTER TABLE x"},
			}
		}), level: Warning, what: "table raw: its compaction_window", do: "ALTER TABLE x;"},
		{name: "wide stage",
			facts: facts(3, 3, func(f *cassandra.Facts) { f.Nodes[2].Tables[0].MaxPartitionMiB = 150 }),
			level: Warning, what: "table stage has a partition of 150 MiB, on 10.0.0.3:9042",
			do: "cassia schema set-period --partitions=64"},
		{name: "wide raw", facts: facts(3, 3, func(f *cassandra.Facts) { f.Nodes[0].Tables[1].MaxPartitionMiB = 101 }),
			level: Warning, what: "table raw has a partition of 101 MiB", do: "tablestats ks.raw"},
		{name: "tombstones",
			facts: facts(3, 3, func(f *cassandra.Facts) { f.Nodes[1].Tables[0].TombstonesPerRead = 1200 }),
			level: Warning, what: "1 in 100 reads of table stage scans 1200 tombstones or more, on",
			do: "nodetool compact ks stage"},
		{
			name:  "refused reads",
			facts: facts(3, 3, func(f *cassandra.Facts) { f.Nodes[1].Tables[0].MaxTombstonesPerRead = 100_001 }),
			level: Error, what: "a read of table stage scanned 100001 tombstones, on",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.consistency == "" {
				c.consistency = "LOCAL_QUORUM"
			}
			got := worst(t, CheckCluster(c.facts, ClusterOptions{
				Keyspace: "ks", Consistency: c.consistency, Partitions: 16,
			}))
			require.Equal(t, c.level, got.Level, got.What)
			require.Contains(t, got.What, c.what)
			require.Contains(t, got.Do, c.do)
		})
	}
}

func TestSurvives(t *testing.T) {
	for consistency, want := range map[string]int{
		"LOCAL_QUORUM": 1, "QUORUM": 1, "EACH_QUORUM": 1, "ONE": 2, "LOCAL_ONE": 2, "TWO": 1, "THREE": 0, "ALL": 0,
	} {
		require.Equal(t, want, needOf(consistency, facts(3, 3, nil)).maxDown(), consistency)
	}
	require.Equal(t, 2, needOf("LOCAL_QUORUM", facts(5, 5, nil)).maxDown())
	require.Equal(t, 1, needOf("LOCAL_QUORUM", facts(9, 3, nil)).maxDown())
}

func TestClocks(t *testing.T) {
	for _, c := range []struct {
		name   string
		clocks []Clock
		level  Level
		what   string
	}{
		{"alike", []Clock{{"node a", 500 * time.Millisecond, 0}, {"node b", -400 * time.Millisecond, 0}}, OK, "1.0 s"},
		{"off by no more than the error", []Clock{{"node a", 3 * time.Second, 2500 * time.Millisecond}}, OK, ""},
		{"some seconds", []Clock{{"node a", 3 * time.Second, time.Second}}, Note, "the clock of node a is 2.0 s fast compared to the clock of this machine"},
		{"apart from one another", []Clock{{"node a", 800 * time.Millisecond, 0}, {"process b", -800 * time.Millisecond, 0}}, Note, "node a is 1.6 s fast compared to the clock of process b"},
		{"minutes", []Clock{{"process a", -5 * time.Minute, 0}}, Warning, "this machine is 5 min fast compared to the clock of process a"},
		{"hours", []Clock{{"node a", 7 * time.Hour, 0}}, Error, "7 h"},
		{"days", []Clock{{"node a", -72 * time.Hour, 0}}, Error, "3 d"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := worst(t, CheckClocks(c.clocks))
			require.Equal(t, c.level, got.Level, got.What)
			require.Contains(t, got.What, c.what)
		})
	}
	require.Empty(t, CheckClocks(nil))
}
