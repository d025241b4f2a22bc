package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cassia-db/cassia/storage/cassandra"
)

const (
	// wideMiB is the partition size from which reads, repairs and compactions slow down.
	wideMiB = 100
	// manyTombstones is the number of tombstones per read above which reads cost more than their rows. At
	// tooManyTombstones, Cassandra rejects the read by default (tombstone_failure_threshold).
	manyTombstones    = 1000
	tooManyTombstones = 100_000
)

// ClusterOptions holds the flags of the processes that affect how they use the cluster.
type ClusterOptions struct {
	Keyspace, Consistency string
	// Partitions is the number of partitions of staging and sealing; 0: unknown.
	Partitions int
}

// CheckCluster checks the nodes, the replication and the schema.
func CheckCluster(f *cassandra.Facts, o ClusterOptions) []Finding {
	found := checkNodes(f, o)
	if f.Replication == nil {
		return append(found, append(checkCommitLog(f, 0),
			Finding{Warning, fmt.Sprintf("the keyspace %s doesn't exist", o.Keyspace),
				"nothing is stored yet, or the keyspace has another name",
				"start `cassia serve`, or create it by hand: cassia schema --cassandra.keyspace=" +
					o.Keyspace + " | cqlsh"})...)
	}
	found = append(found, checkConsistency(f, o)...)
	found = append(found, checkCommitLog(f, needOf("LOCAL_QUORUM", f).copies)...)
	found = append(found, checkSchema(f)...)
	found = append(found, checkPartitionSizes(f, o)...)
	return append(found, checkTombstones(f, o)...)
}

// checkNodes reports which nodes respond, and whether they agree on the schema and the release.
func checkNodes(f *cassandra.Facts, o ClusterOptions) (found []Finding) {
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
		found = append(found, ok("all nodes of data center %s are up (%d of %d); Cassandra %s", f.Cluster.LocalDC,
			total, total, strings.Join(releases, ", ")))
	} else {
		spare := 0
		if f.Replication != nil {
			spare = needOf(o.Consistency, f).maxDown()
		}
		missing := Finding{Warning, fmt.Sprintf("%d of %s don't respond: %s", len(down),
			plural(total, "node"), joinNames(down)),
			"writes and queries still work, because other nodes have enough copies; if more nodes fail, they may " +
				"stop working",
			"run nodetool status, and read the node's system.log"}
		if total-countUp(f) > spare {
			missing.Level, missing.Why = Error,
				"too few copies of some rows are reachable: writes and queries of these rows fail until the nodes "+
					"are back"
		}
		found = append(found, missing)
	}
	if len(schemas) > 1 {
		found = append(found, Finding{Warning, fmt.Sprintf("the nodes have %d different schema versions", len(schemas)),
			"requests to a node that is missing a table fail",
			"run nodetool describecluster, and restart the nodes whose version differs"})
	}
	if len(releases) > 1 {
		found = append(found, Finding{Note, "the nodes run different releases: " + strings.Join(releases, ", "),
			"mixed releases are only supported during an upgrade, and the schema can't change until it is complete",
			"upgrade the remaining nodes"})
	}
	if len(odd) > 0 {
		found = append(found, Finding{Note, "some information is missing: " + joinNames(odd), "",
			"grant the user SELECT on the keyspace system_views, or use nodetool"})
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

// checkCommitLog checks whether writes are on disk when they are acknowledged. copies is the number of replicas in this
// data center.
func checkCommitLog(f *cassandra.Facts, copies int) []Finding {
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
			return nil // No node responded.
		}
		return []Finding{ok("commitlog_sync is %s on all nodes that respond: acknowledged samples are on disk",
			strings.Join(slices.Compact(synced), ", "))}
	}
	slices.Sort(periodic)
	level, why := Warning, "when a node is killed or loses power, it loses the last 10 s of acknowledged samples; if "+
		"nodes fail together, all copies of these samples are lost"
	if copies <= 1 {
		level, why = Error,
			"when the node is killed or loses power, the last 10 s of acknowledged samples are lost, because there "+
				"is no other copy"
	}
	return []Finding{{level, "commitlog_sync is periodic on " + joinNames(periodic), why,
		"in cassandra.yaml of these nodes, remove the line commitlog_sync_period, and set the following; then " +
			"restart the nodes one at a time:\ncommitlog_sync: group\ncommitlog_sync_group_window: 10ms"}}
}

// whyOption contains the consequences of a wrong table option, by option.
var whyOption = map[string]string{
	"": "requests to it fail",
	"compaction": "the wrong files are compacted together: disk space is released late or never, and reads open " +
		"more files",
	"compaction_window": "files don't expire as a whole, or there are too many of them. The width is computed from " +
		"--retention.raw, so use the same value as `cassia serve`",
	"compression": "the table uses more disk space",
	"gc_grace_seconds": "if longer, reads scan more tombstones; if shorter, a replica that missed a delete can bring " +
		"rows back",
	"read_repair": "a query may not see samples that an earlier query returned",
	"comment":     "Cassia reads the version of the tables from it",
}

// checkSchema reports differences between the keyspace's tables and the schema of this release.
func checkSchema(f *cassandra.Facts) (found []Finding) {
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
		found = append(found, ok("the tables match this release"))
	}
	return found
}

// tableMax returns, for each table, the max of a value over all nodes, and the node that has this max.
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

// checkPartitionSizes checks for partitions that are too large.
func checkPartitionSizes(f *cassandra.Facts, o ClusterOptions) (found []Finding) {
	worst := tableMax(f, func(t cassandra.TableFacts) float64 { return float64(t.MaxPartitionMiB) })
	for _, w := range worst {
		if w.value <= wideMiB {
			continue
		}
		do := fmt.Sprintf(
			"run nodetool tablestats %s.%s; to find the large partitions, search for 'Writing large partition' in "+
				"the system.log of %s",
			o.Keyspace, w.table, w.node,
		)
		switch w.table {
		case "stage", "defined":
			do = fmt.Sprintf("cassia schema set-period --partitions=%s", morePartitions(o.Partitions, w.value))
		case "raw":
			do += "\nthe rows of a metric are split again from the next window on; existing rows expire unchanged"
		}
		found = append(found, Finding{Warning,
			fmt.Sprintf("table %s has a partition of %.0f MiB, on %s", w.table, w.value, w.node),
			fmt.Sprintf("above %d MiB, reads, compactions and repairs of a partition need much memory and time",
				wideMiB), do})
	}
	switch {
	case len(found) > 0 || len(worst) == 0:
	case worst[0].value <= 1:
		found = append(found, ok("no partition is larger than 1 MiB on disk"))
	default:
		found = append(found, ok("the largest partition, in table %s, is %.0f MiB", worst[0].table, worst[0].value))
	}
	return found
}

// morePartitions returns the number of partitions to recommend if a partition has mib MiB. It is the current number,
// doubled until the partition would shrink to half of wideMiB.
func morePartitions(partitions int, mib float64) string {
	if partitions == 0 {
		return "N, a multiple of the number that `cassia inspect` shows"
	}
	n := partitions
	for ; mib > wideMiB/2 && n < 4096; mib /= 2 {
		n *= 2
	}
	return fmt.Sprint(n)
}

// checkTombstones checks for many tombstones per read.
func checkTombstones(f *cassandra.Facts, o ClusterOptions) (found []Finding) {
	most := tableMax(f, func(t cassandra.TableFacts) float64 { return t.MaxTombstonesPerRead })
	for _, w := range most {
		if w.value >= tooManyTombstones {
			found = append(found, Finding{Error,
				fmt.Sprintf("a read of table %s scanned %.0f tombstones, on %s", w.table, w.value, w.node),
				"Cassandra aborts reads that scan more than 100,000 tombstones", tombstonesDo(o, w.table)})
		}
	}
	usual := tableMax(f, func(t cassandra.TableFacts) float64 { return t.TombstonesPerRead })
	for _, w := range usual {
		if w.value > manyTombstones {
			found = append(found, Finding{Warning,
				fmt.Sprintf("1 in 100 reads of table %s scans %.0f tombstones or more, on %s",
					w.table, w.value, w.node),
				"such reads are slow, and Cassandra aborts reads that scan more than 100,000 tombstones",
				tombstonesDo(o, w.table)})
		}
	}
	if len(found) == 0 && len(most) > 0 {
		found = append(found, ok("max tombstones scanned by a read: %.0f, in table %s", most[0].value, most[0].table))
	}
	return found
}

func tombstonesDo(o ClusterOptions, table string) string {
	return fmt.Sprintf(
		"make sure that gc_grace_seconds and the compaction match the findings above, then run on every "+
			"node:\nnodetool compact %s %s",
		o.Keyspace, table,
	)
}
