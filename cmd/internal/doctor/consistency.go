package doctor

import (
	"fmt"

	"github.com/cassia-db/cassia/storage/cassandra"
)

// allDataCenters is the replication option that applies to all data centers.
const allDataCenters = "replication_factor"

// replicaNeed is the number of replicas that a consistency level requires.
type replicaNeed struct {
	// where is the data center of the counted replicas; if empty, the replicas of all data centers count.
	where string
	// copies is the number of replicas, and nodes is the number of nodes. write and read are the numbers of replicas
	// that must respond to a write and to a read.
	copies, nodes, write, read int
}

// needOf returns the replicas that a consistency level requires: in the local data center, or in the cluster if the
// level counts the replicas of all data centers.
func needOf(consistency string, f *cassandra.Facts) replicaNeed {
	copies := func(dc string) int {
		if n, ok := f.Replication[dc]; ok {
			return n
		}
		return f.Replication[allDataCenters]
	}
	nodes := map[string]int{}
	for _, n := range f.Cluster.Nodes {
		nodes[n.DataCenter]++
	}
	all := replicaNeed{nodes: len(f.Cluster.Nodes)}
	for dc := range nodes {
		all.copies += copies(dc)
	}
	local := replicaNeed{where: f.Cluster.LocalDC, copies: copies(f.Cluster.LocalDC), nodes: nodes[f.Cluster.LocalDC]}
	same := func(n replicaNeed, k int) replicaNeed {
		n.write, n.read = k, k
		return n
	}
	switch consistency {
	case "ONE":
		return same(all, 1)
	case "TWO":
		return same(all, 2)
	case "THREE":
		return same(all, 3)
	case "QUORUM":
		return same(all, quorum(all.copies))
	case "ALL":
		return same(all, all.copies)
	case "LOCAL_ONE":
		return same(local, 1)
	default: // LOCAL_QUORUM, or EACH_QUORUM in this data center
		return same(local, quorum(local.copies))
	}
}

func quorum(copies int) int { return copies/2 + 1 }

// maxDown returns the number of a row's replicas that may be down without requests failing.
func (n replicaNeed) maxDown() int { return n.copies - max(n.write, n.read) }

// checkConsistency checks which requests fail when a node is down.
func checkConsistency(f *cassandra.Facts, o ClusterOptions) []Finding {
	n := needOf(o.Consistency, f)
	alter := func(copies int) string {
		return fmt.Sprintf(
			"ALTER KEYSPACE %s WITH replication = {'class': 'NetworkTopologyStrategy', '%s': %d};\nnodetool repair "+
				"-full %s   # on every node, one after the other",
			o.Keyspace, f.Cluster.LocalDC, copies, o.Keyspace,
		)
	}
	copies := fmt.Sprintf("keyspace %s keeps %s", o.Keyspace, n.text())
	what := fmt.Sprintf("%s, and consistency level %s needs %d of them", copies, o.Consistency, n.write)
	var found []Finding
	switch {
	case n.write > min(n.copies, n.nodes):
		return append(found, Finding{Error, what + fmt.Sprintf("; at most %d can exist", min(n.copies, n.nodes)),
			"every write and every query fails",
			"use --cassandra.consistency=LOCAL_QUORUM, or add nodes, or\n" + alter(min(3, n.nodes))})
	case n.nodes == 1:
		found = append(found, Finding{Note, "the cluster has a single node" + inDC(n.where),
			"while this node is down, writes and queries fail, and its disk has the only copy of all data",
			"for redundancy, add nodes until there are three, then\n" + alter(3)})
	case n.maxDown() == 0 && n.copies == 1:
		found = append(found, Finding{Warning, what,
			"each row has one copy: while its node is down, writes and queries of the row fail, and a lost disk " +
				"loses it",
			alter(min(3, n.nodes))})
	case n.maxDown() == 0:
		found = append(found, Finding{Warning, what, "a single node failure stops writes and queries", alter(3)})
	default:
		found = append(found, ok("%s: writes and queries work while %s of each row is unavailable", what,
			plural(n.maxDown(), "node")))
	}
	if n.write+n.read <= n.copies {
		found = append(found, Finding{Warning,
			fmt.Sprintf("consistency level %s writes %d and reads %d of %s", o.Consistency, n.write, n.read, n.text()),
			"a query can miss acknowledged samples, and the failure of one node can lose them",
			"use --cassandra.consistency=LOCAL_QUORUM in every process"})
	}
	return found
}

func (n replicaNeed) text() string {
	text := "1 copy"
	if n.copies != 1 {
		text = fmt.Sprintf("%d copies", n.copies)
	}
	return text + inDC(n.where)
}

func inDC(dc string) string {
	if dc == "" {
		return ""
	}
	return " in data center " + dc
}
