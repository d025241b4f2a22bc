package cassandra

import (
	"fmt"
	"io"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
)

// schemaVersion is the version of the tables' columns and of the encoding of keys and values in them. It is in every
// table's comment. The store encodes the contents of values, and has a separate version for this encoding.
const schemaVersion = 1

// valueColumn is the last column of every table. It isn't named value, because that is a key field of table catalog.
const valueColumn = "data"

// reserved are the words that must be quoted in CQL as names of columns and tables.
var reserved = makeSet(`add allow alter and apply asc authorize batch begin by columnfamily create default
	delete desc describe drop entries execute from full grant if in index infinity insert into is keyspace
	limit materialized mbean mbeans modify nan norecursive not null of on or order primary rename replace
	revoke schema select set table to token truncate unlogged unset update use using view where with`)

func makeSet(words string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(words) {
		set[w] = true
	}
	return set
}

// quoteName returns a name of this package (lower-case letters, digits, _) in CQL.
func quoteName(name string) string {
	if reserved[name] {
		return `"` + name + `"`
	}
	return name
}

// quoteText returns a text in CQL.
func quoteText(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// columnType returns a field's type in CQL.
func columnType(k engine.Kind) string {
	switch k {
	case engine.KindInt:
		return "bigint"
	case engine.KindText:
		return "text"
	default:
		return "blob"
	}
}

// schema returns the statements that create the keyspace and its tables, without semicolons. If Options.Replication is
// empty, every data center gets 3 replicas, because the number of nodes isn't read from the cluster.
func schema(o Options) ([]string, error) {
	if err := o.validateSchema(); err != nil {
		return nil, err
	}
	copies, err := parseReplication(o.Replication)
	if err != nil {
		return nil, err
	}
	if copies == nil {
		copies = replication{everyDataCenter: 3}
	}
	statements := []string{createKeyspace(o.Keyspace, copies)}
	for _, t := range engine.Tables {
		statements = append(statements, createTable(&o, t))
	}
	return statements, nil
}

// WriteSchema writes the statements that create the keyspace and its tables, for operators and for cqlsh.
func WriteSchema(w io.Writer, o Options) error {
	statements, err := schema(o)
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "-- Cassia's schema, version %d, for Cassandra 4.0 and later.\n", schemaVersion)
	if o.Replication == "" {
		b.WriteString(
			"-- Adjust the replication to your cluster: quorums need at least half as many nodes as copies.\n",
		)
	}
	for _, s := range statements {
		b.WriteString("\n" + s + ";\n")
	}
	_, err = io.WriteString(w, b.String())
	return err
}

func createKeyspace(keyspace string, copies replication) string {
	return fmt.Sprintf("CREATE KEYSPACE IF NOT EXISTS %s\n    WITH replication = %s\n    AND durable_writes = true",
		quoteName(keyspace), copies)
}

func createTable(o *Options, t *engine.Table) string {
	p := policyOf(t)
	var b strings.Builder
	fmt.Fprintf(&b, "CREATE TABLE IF NOT EXISTS %s.%s (\n", quoteName(o.Keyspace), quoteName(t.Name))
	for _, c := range columnsOf(t) {
		fmt.Fprintf(&b, "    %s %s,\n", quoteName(c.name), c.cql)
	}
	fmt.Fprintf(&b, "    PRIMARY KEY ((%s), %s)\n)", joinNames(t.Partition), joinNames(t.Clustering))
	order := make([]string, len(t.Clustering))
	for i, f := range t.Clustering {
		order[i] = quoteName(f.Name) + " ASC"
	}
	fmt.Fprintf(&b, " WITH CLUSTERING ORDER BY (%s)\n", strings.Join(order, ", "))
	fmt.Fprintf(&b, "    AND comment = %s\n", quoteText(tableComment(p)))
	fmt.Fprintf(&b, "    AND compaction = {%s}\n", p.compaction.options(o.retentionOf(t)))
	fmt.Fprintf(&b, "    AND compression = {%s}\n", p.compressor)
	fmt.Fprintf(&b, "    AND gc_grace_seconds = %d\n", p.graceSeconds)
	// Without blocking read repair, a read could return an older state than an earlier read.
	b.WriteString("    AND read_repair = 'BLOCKING'\n")
	b.WriteString("    AND speculative_retry = '99p'\n")
	// Scans read slices of partitions, so a row cache would only waste heap.
	b.WriteString("    AND caching = {'keys': 'ALL', 'rows_per_partition': 'NONE'}")
	return b.String()
}

// tableComment returns a table's comment. versionOf parses it.
func tableComment(p policy) string {
	return fmt.Sprintf("cassia schema %d: %s", schemaVersion, p.about)
}

// versionOf returns the schema version in a table's comment, or 0.
func versionOf(comment string) int {
	var version int
	if n, _ := fmt.Sscanf(comment, "cassia schema %d:", &version); n != 1 {
		return 0
	}
	return version
}

// column is a column of a table, with the values of system_schema.columns.
type column struct {
	name, cql, kind string
	position        int
}

// columnsOf returns a table's columns: partition key, clustering key, value.
func columnsOf(t *engine.Table) []column {
	var columns []column
	for i, f := range t.Partition {
		columns = append(columns, column{f.Name, columnType(f.Kind), "partition_key", i})
	}
	for i, f := range t.Clustering {
		columns = append(columns, column{f.Name, columnType(f.Kind), "clustering", i})
	}
	return append(columns, column{valueColumn, "blob", "regular", -1})
}

// joinNames joins the names of fields for CQL.
func joinNames(fields []engine.Field) string {
	quotedNames := make([]string, len(fields))
	for i, f := range fields {
		quotedNames[i] = quoteName(f.Name)
	}
	return strings.Join(quotedNames, ", ")
}
