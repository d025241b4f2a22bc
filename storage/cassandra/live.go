package cassandra

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gocql/gocql"

	"github.com/cassia-db/cassia/storage/engine"
)

// liveTable is a table as described by Cassandra.
type liveTable struct {
	columns []column
	comment string
	options map[string]string
}

// liveSchema is the current schema of a keyspace, by table names.
type liveSchema struct {
	keyspace string
	tables   map[string]*liveTable
}

// readReplication returns the replication of a keyspace, or nil if the keyspace doesn't exist.
func readReplication(ctx context.Context, session *gocql.Session, keyspace string) (replication, error) {
	var options map[string]string
	err := session.Query("SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?", keyspace).
		WithContext(ctx).Consistency(gocql.One).Scan(&options)
	if err == gocql.ErrNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the replication of keyspace %s: %w", keyspace, err)
	}
	copies := replication{}
	for name, text := range options {
		// The number may be followed by a slash and the number of transient replicas.
		text, _, _ = strings.Cut(text, "/")
		if n, err := strconv.Atoi(text); err == nil && name != "class" {
			copies[name] = n
		}
	}
	return copies, nil
}

// readSchema reads the tables of a keyspace. If the keyspace doesn't exist, the result has no tables.
func readSchema(ctx context.Context, session *gocql.Session, keyspace string) (*liveSchema, error) {
	live := &liveSchema{keyspace: keyspace, tables: map[string]*liveTable{}}
	tables := session.Query(`SELECT table_name, comment, compaction, compression, gc_grace_seconds, read_repair
		FROM system_schema.tables WHERE keyspace_name = ?`, keyspace).WithContext(ctx).Consistency(gocql.One).Iter()
	var name, comment, readRepair string
	var grace int
	for {
		var compaction, compression map[string]string
		if !tables.Scan(&name, &comment, &compaction, &compression, &grace, &readRepair) {
			break
		}
		live.tables[name] = &liveTable{comment: comment, options: map[string]string{
			"compaction": compaction["class"], "compression": compression["class"],
			"compaction_window_size": compaction["compaction_window_size"],
			"compaction_window_unit": compaction["compaction_window_unit"], "gc_grace_seconds": strconv.Itoa(grace),
			"read_repair": readRepair,
		}}
	}
	if err := tables.Close(); err != nil {
		return nil, fmt.Errorf("read system_schema.tables: %w", err)
	}
	columns := session.Query(`SELECT table_name, column_name, type, kind, position
		FROM system_schema.columns WHERE keyspace_name = ?`, keyspace).WithContext(ctx).Consistency(gocql.One).Iter()
	var c column
	for columns.Scan(&name, &c.name, &c.cql, &c.kind, &c.position) {
		if t := live.tables[name]; t != nil {
			t.columns = append(t.columns, c)
		}
	}
	if err := columns.Close(); err != nil {
		return nil, fmt.Errorf("read system_schema.columns: %w", err)
	}
	return live, nil
}

// missing returns the tables that don't exist.
func (l *liveSchema) missing() []*engine.Table {
	return slices.DeleteFunc(slices.Clone(engine.Tables), func(t *engine.Table) bool { return l.tables[t.Name] != nil })
}

// checkVersion returns an error if a later release created the schema.
func (l *liveSchema) checkVersion() error {
	for _, t := range engine.Tables {
		if live := l.tables[t.Name]; live != nil && versionOf(live.comment) > schemaVersion {
			return newRefusal(
				"table %s.%s has schema version %d, but this release supports version %d; use a later release, or "+
					"another keyspace",
				l.keyspace, t, versionOf(live.comment), schemaVersion,
			)
		}
	}
	return nil
}

// checkColumns returns an error if another program created the tables.
func (l *liveSchema) checkColumns() error {
	for _, t := range engine.Tables {
		if live := l.tables[t.Name]; live != nil && live.otherColumns(t) != "" {
			return newRefusal("table %s.%s wasn't created by Cassia: %s; use another keyspace",
				l.keyspace, t, live.otherColumns(t))
		}
	}
	return nil
}

// otherColumns describes the differences between a table's columns and the columns that package engine declares for t,
// or returns "" if there are no differences. Additional columns outside the key are accepted.
func (l *liveTable) otherColumns(t *engine.Table) string {
	for _, want := range columnsOf(t) {
		if !slices.Contains(l.columns, want) {
			return fmt.Sprintf(
				"it has no %s column %s %s", strings.ReplaceAll(want.kind, "_", " "), want.name, want.cql,
			)
		}
	}
	for _, c := range l.columns {
		if c.kind != "regular" && !slices.Contains(columnsOf(t), c) {
			return fmt.Sprintf("%s %s isn't declared", strings.ReplaceAll(c.kind, "_", " "), c.name)
		}
	}
	return ""
}

// compare returns the differences between the existing tables and the tables that this release would create.
func (l *liveSchema) compare(o *Options) []Difference {
	var found []Difference
	for _, t := range engine.Tables {
		live := l.tables[t.Name]
		differs := func(option, do, format string, args ...any) {
			found = append(found, Difference{Table: t.Name, Option: option, What: fmt.Sprintf(format, args...), Do: do})
		}
		if live == nil {
			differs("", "run `cassia schema | cqlsh`", "the table is missing")
			continue
		}
		if other := live.otherColumns(t); other != "" {
			differs("", "use another keyspace", "the table wasn't created by Cassia: %s", other)
			continue
		}
		p := policyOf(t)
		alter := func(option string) string {
			return fmt.Sprintf("ALTER TABLE %s.%s WITH %s", quoteName(l.keyspace), quoteName(t.Name), option)
		}
		switch v := versionOf(live.comment); {
		case v > schemaVersion:
			differs("comment", "use a later release",
				"its comment has schema version %d; this release supports version %d", v, schemaVersion)
			continue
		case v < schemaVersion:
			differs("comment", alter("comment = "+quoteText(tableComment(p))),
				"its comment has schema version %d; this release uses %d", v, schemaVersion)
		}
		for _, option := range p.comparedOptions(o, t) {
			if have := live.option(option.name); have != option.want {
				differs(option.name, alter(option.cql), "its %s is %s; this release uses %s",
					option.name, have, option.want)
			}
		}
	}
	return found
}

// comparedOption is a table option to compare, with the CQL that sets it.
type comparedOption struct{ name, want, cql string }

// comparedOptions returns the options of a table that are compared.
func (p policy) comparedOptions(o *Options, t *engine.Table) []comparedOption {
	compaction := p.compaction.options(o.retentionOf(t))
	whole := "compaction = {" + compaction + "}"
	wanted := cqlMap(compaction)
	options := []comparedOption{{"compaction", wanted["class"], whole}}
	if size := wanted["compaction_window_size"]; size != "" {
		options = append(options, comparedOption{
			"compaction_window", size + " " + wanted["compaction_window_unit"], whole,
		})
	}
	return append(options,
		comparedOption{"compression", cqlMap(p.compressor)["class"], "compression = {" + p.compressor + "}"},
		comparedOption{
			"gc_grace_seconds", strconv.Itoa(p.graceSeconds), fmt.Sprintf("gc_grace_seconds = %d", p.graceSeconds),
		},
		comparedOption{"read_repair", "BLOCKING", "read_repair = 'BLOCKING'"})
}

// option returns an option of a live table in the form used by comparedOptions: Java class names without their
// packages.
func (t *liveTable) option(name string) string {
	if name == "compaction_window" {
		if t.options["compaction_window_size"] == "" {
			return "none"
		}
		return t.options["compaction_window_size"] + " " + t.options["compaction_window_unit"]
	}
	value := t.options[name]
	return value[strings.LastIndexByte(value, '.')+1:]
}

// cqlMap parses a CQL map of simple words that this package wrote.
func cqlMap(text string) map[string]string {
	m := map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, ":")
		m[unquote(name)] = unquote(value)
	}
	return m
}
