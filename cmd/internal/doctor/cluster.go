package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cassia-db/cassia/storage/cassandra"
)

const (
	// wideMiB is the size of a partition from which reads, repairs and compactions suffer.
	wideMiB = 100
	// manyTombstones in nearly every read cost more than the rows; at tooManyTombstones Cassandra's default
	// refuses the read (tombstone_failure_threshold).
	manyTombstones    = 1000
	tooManyTombstones = 100_000
)

// ClusterOptions are the processes' flags about the cluster.
type ClusterOptions struct {
	Keyspace, Consistency string
	// Partitions is how many the work of sealing is divided into; 0: not known.
	Partitions int
}

// Cluster looks at nodes, replication and schema.
func Cluster(f *cassandra.Facts, o ClusterOptions) []Finding {
	found := reachability(f, o)
	if f.Replication == nil {
		return append(found, append(commitlog(f, 0), Finding{Warning, fmt.Sprintf("there is no keyspace %s", o.Keyspace),
			"nothing is stored yet, or the name is another one", "start `cassia serve`, or make it by hand: cassia schema --cassandra.keyspace=" + o.Keyspace + " | cqlsh"})...)
	}
	found = append(found, consistency(f, o)...)
	found = append(found, commitlog(f, needOf("LOCAL_QUORUM", f).copies)...)
	found = append(found, schema(f)...)
	found = append(found, wide(f, o)...)
	return append(found, tombstones(f, o)...)
}

// reachability reports which nodes answer, and whether they agree.
func reachability(f *cassandra.Facts, o ClusterOptions) (found []Finding) {
	var down, schemas, releases, odd []string
	for _, n := range f.Nodes {
		switch {
		case !n.Up:
			down = append(down, n.Address)
			continue
		case n.Err != nil:
			odd = append(odd, n.Err.Error())
		}
		schemas, releases = append(schemas, n.Schema), append(releases, n.Release)
	}
	slices.Sort(schemas)
	slices.Sort(releases)
	schemas, releases = slices.Compact(schemas), slices.Compact(releases)
	total := len(f.Nodes)
	if len(down) == 0 {
		found = append(found, ok("every node of data center %s answers (%d of %d); Cassandra %s", f.Cluster.LocalDC, total, total, strings.Join(releases, ", ")))
	} else {
		spare := 0
		if f.Replication != nil {
			spare = needOf(o.Consistency, f).survives()
		}
		missing := Finding{Warning, fmt.Sprintf("%d of %s don't answer: %s", len(down), plural(total, "node"), listed(down)),
			"writes and queries go on, for enough copies are elsewhere; of the next nodes to fail, some would stop them",
			"nodetool status; the node's system.log"}
		if total-countUp(f) > spare {
			missing.Level, missing.Why = Error, "too few copies of some rows can be reached: their writes and queries fail until nodes are back"
		}
		found = append(found, missing)
	}
	if len(schemas) > 1 {
		found = append(found, Finding{Warning, fmt.Sprintf("the nodes know %d different schemas", len(schemas)),
			"requests to a node that lacks a table fail", "nodetool describecluster; restart the nodes that are alone with their version"})
	}
	if len(releases) > 1 {
		found = append(found, Finding{Note, "the nodes run different releases: " + strings.Join(releases, ", "),
			"that is for the time of an upgrade only; the schema can't be changed meanwhile", "upgrade the rest"})
	}
	if len(odd) > 0 {
		found = append(found, Finding{Note, "some facts are missing: " + listed(odd), "", "grant the user SELECT on keyspace system_views, or look with nodetool"})
	}
	return found
}

func countUp(f *cassandra.Facts) (up int) {
	for _, n := range f.Nodes {
		if n.Up {
			up++
		}
	}
	return up
}

// commitlog checks whether acknowledged writes are on a disk. copies is how many there are here.
func commitlog(f *cassandra.Facts, copies int) []Finding {
	var periodic, synced []string
	for _, n := range f.Nodes {
		switch n.CommitlogSync {
		case "periodic":
			periodic = append(periodic, n.Address)
		case "group", "batch":
			synced = append(synced, n.CommitlogSync)
		}
	}
	slices.Sort(synced)
	if len(periodic) == 0 {
		if len(synced) == 0 {
			return nil // No node answered.
		}
		return []Finding{ok("commitlog_sync is %s on every node that answers: acknowledged samples are on its disk", strings.Join(slices.Compact(synced), ", "))}
	}
	slices.Sort(periodic)
	level, why := Warning, "what was acknowledged in up to 10 s before is gone from a node that is killed or loses power; where several do at once, from all copies"
	if copies <= 1 {
		level, why = Error, "what was acknowledged in up to 10 s before is gone when the node is killed or loses power, and there is no other copy"
	}
	return []Finding{{level, "commitlog_sync is periodic on " + listed(periodic), why,
		"in cassandra.yaml of these nodes, which are then restarted one by one:\ncommitlog_sync: group\ncommitlog_sync_group_window: 10ms\nand without the line commitlog_sync_period"}}
}

// whyOption is the purpose of an option of a table.
var whyOption = map[string]string{
	"":                  "requests for it fail",
	"compaction":        "files of the wrong kind are merged: space comes back late or never, and reads open more files",
	"compaction_window": "files don't expire whole, or there are too many of them; the width is made from --retention.raw, which must be the one that `cassia serve` has",
	"compression":       "the table takes more room on the disk",
	"gc_grace_seconds":  "longer: reads pass over more deletes. Shorter: a copy that missed a delete may bring rows back",
	"read_repair":       "a query may see less than the one before it",
	"comment":           "Cassia knows the version of the tables by it",
}

// schema reports how the tables differ from those of this release.
func schema(f *cassandra.Facts) (found []Finding) {
	for _, d := range f.Differences {
		level := Warning
		switch d.Option {
		case "":
			level = Error
		case "comment", "compression":
			level = Note
		}
		do := d.Do
		if strings.HasPrefix(do, "ALTER") {
			do += ";"
		}
		found = append(found, Finding{level, fmt.Sprintf("table %s: %s", d.Table, d.What), whyOption[d.Option], do})
	}
	if len(found) == 0 {
		found = append(found, ok("the tables are as this release makes them"))
	}
	return found
}

// tableMax finds for every table the node that has the most of something.
func tableMax(f *cassandra.Facts, of func(cassandra.TableFacts) float64) (worst []worstTable) {
	at := map[string]int{}
	for _, n := range f.Nodes {
		for _, t := range n.Tables {
			i, known := at[t.Table]
			if !known {
				i = len(worst)
				at[t.Table] = i
				worst = append(worst, worstTable{table: t.Table})
			}
			if v := of(t); v > worst[i].value {
				worst[i].node, worst[i].value = n.Address, v
			}
		}
	}
	slices.SortStableFunc(worst, func(a, b worstTable) int { return cmp.Compare(b.value, a.value) })
	return worst
}

type worstTable struct {
	table, node string
	value       float64
}

// wide looks for partitions that are too large.
func wide(f *cassandra.Facts, o ClusterOptions) (found []Finding) {
	worst := tableMax(f, func(t cassandra.TableFacts) float64 { return float64(t.MaxPartitionMiB) })
	for _, w := range worst {
		if w.value <= wideMiB {
			continue
		}
		do := fmt.Sprintf("nodetool tablestats %s.%s; which ones it is stands in the system.log of %s: grep 'Writing large partition'", o.Keyspace, w.table, w.node)
		switch w.table {
		case "stage", "defined":
			do = fmt.Sprintf("cassia schema set-period --partitions=%s", morePartitions(o.Partitions, w.value))
		case "raw":
			do += "\nthe rows of a metric are divided anew in the next window; what is there expires as it is"
		}
		found = append(found, Finding{Warning, fmt.Sprintf("table %s has a partition of %.0f MiB, on %s", w.table, w.value, w.node),
			fmt.Sprintf("above %d MiB reads, compactions and repairs of a partition take memory and time", wideMiB), do})
	}
	switch {
	case len(found) > 0 || len(worst) == 0:
	case worst[0].value <= 1:
		found = append(found, ok("no partition on a disk is larger than 1 MiB"))
	default:
		found = append(found, ok("the largest partition, of table %s, has %.0f MiB", worst[0].table, worst[0].value))
	}
	return found
}

// morePartitions is how many partitions would bring mib down to half of a wide one: the present number,
// doubled some times.
func morePartitions(partitions int, mib float64) string {
	if partitions == 0 {
		return "N, with a multiple of what `cassia inspect` shows"
	}
	n := partitions
	for ; mib > wideMiB/2 && n < 4096; mib /= 2 {
		n *= 2
	}
	return fmt.Sprint(n)
}

// tombstones looks for deletes that reads must pass over.
func tombstones(f *cassandra.Facts, o ClusterOptions) (found []Finding) {
	most := tableMax(f, func(t cassandra.TableFacts) float64 { return t.MaxTombstonesPerRead })
	for _, w := range most {
		if w.value >= tooManyTombstones {
			found = append(found, Finding{Error, fmt.Sprintf("a read of table %s passed over %.0f deleted rows, on %s", w.table, w.value, w.node),
				"Cassandra refuses reads that pass over 100,000", tombstonesDo(o, w.table)})
		}
	}
	usual := tableMax(f, func(t cassandra.TableFacts) float64 { return t.TombstonesPerRead })
	for _, w := range usual {
		if w.value > manyTombstones {
			found = append(found, Finding{Warning, fmt.Sprintf("one in 100 reads of table %s passes over %.0f deleted rows or more, on %s", w.table, w.value, w.node),
				"such reads are slow, and from 100,000 on Cassandra refuses them", tombstonesDo(o, w.table)})
		}
	}
	if len(found) == 0 && len(most) > 0 {
		found = append(found, ok("the most deleted rows that a read passed over are %.0f, in table %s", most[0].value, most[0].table))
	}
	return found
}

func tombstonesDo(o ClusterOptions, table string) string {
	return fmt.Sprintf("see that gc_grace_seconds and the compaction are as above, then on every node:\nnodetool compact %s %s", o.Keyspace, table)
}
