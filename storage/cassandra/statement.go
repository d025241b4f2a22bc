package cassandra

import (
	"fmt"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
)

// statements are the statements of a table, with question marks for bound values, in the order of the columns.
type statements struct {
	// put binds partition, clustering, data and timestamp. putTTL also binds the TTL in seconds.
	put, putTTL string
	// remove binds timestamp, partition and clustering. removeRange also binds the last field of the range's end.
	remove, removeRange string
	// create and replace are for compare-and-set: replace binds data, partition, clustering, expected data.
	create, replace string
	// scans are the scans by their shape.
	scans map[scanShape]string
}

// scanShape identifies scans with the same text.
type scanShape struct {
	from, to       int
	keysOnly, some bool // some: with a limit
}

func newStatements(keyspace string, t *engine.Table) *statements {
	table := quoteName(keyspace) + "." + quoteName(t.Name)
	key := equalConditions(t.Partition) + " AND " + equalConditions(t.Clustering)
	all := joinNames(t.Partition) + ", " + joinNames(t.Clustering) + ", " + quoteName(valueColumn)
	insert := fmt.Sprintf(
		"INSERT INTO %s (%s) VALUES (%s)", table, all, placeholders(len(t.Partition)+len(t.Clustering)+1),
	)
	s := &statements{
		put:     insert + " USING TIMESTAMP ?",
		putTTL:  insert + " USING TIMESTAMP ? AND TTL ?",
		remove:  fmt.Sprintf("DELETE FROM %s USING TIMESTAMP ? WHERE %s", table, key),
		create:  insert + " IF NOT EXISTS",
		replace: fmt.Sprintf("UPDATE %s SET %s = ? WHERE %s IF %[2]s = ?", table, quoteName(valueColumn), key),
		scans:   map[scanShape]string{},
	}
	last := quoteName(t.Clustering[len(t.Clustering)-1].Name)
	where := equalConditions(t.Partition) + " AND "
	if head := t.Clustering[:len(t.Clustering)-1]; len(head) > 0 {
		where += equalConditions(head) + " AND "
	}
	s.removeRange = fmt.Sprintf("DELETE FROM %s USING TIMESTAMP ? WHERE %s%s >= ? AND %s <= ?",
		table, where, last, last)
	for from := range len(t.Clustering) + 1 {
		for to := range len(t.Clustering) + 1 {
			for _, keysOnly := range []bool{false, true} {
				for _, some := range []bool{false, true} {
					shape := scanShape{from, to, keysOnly, some}
					s.scans[shape] = scanText(table, t, shape)
				}
			}
		}
	}
	return s
}

func scanText(table string, t *engine.Table, s scanShape) string {
	text := "SELECT " + selectedColumns(t, s) + " FROM " + table + " WHERE " +
		equalConditions(t.Partition) + boundConditions(t, s)
	if s.some {
		text += " LIMIT ?"
	}
	return text
}

// selectedColumns returns the columns that a scan reads.
func selectedColumns(t *engine.Table, s scanShape) string {
	if s.keysOnly {
		return joinNames(t.Clustering)
	}
	return joinNames(t.Clustering) + ", " + quoteName(valueColumn)
}

// boundConditions returns the conditions for a scan's bounds.
func boundConditions(t *engine.Table, s scanShape) string {
	var b strings.Builder
	bound := func(fields int, than string) {
		if fields > 0 {
			fmt.Fprintf(&b, " AND (%s) %s (%s)", joinNames(t.Clustering[:fields]), than, placeholders(fields))
		}
	}
	bound(s.from, ">=")
	bound(s.to, "<=")
	return b.String()
}

// equalConditions returns conditions that bind every field.
func equalConditions(fields []engine.Field) string {
	parts := make([]string, len(fields))
	for i, f := range fields {
		parts[i] = quoteName(f.Name) + " = ?"
	}
	return strings.Join(parts, " AND ")
}

func placeholders(n int) string { return strings.TrimSuffix(strings.Repeat("?, ", n), ", ") }

// appendValues appends a key's values for gocql.
func appendValues(dst []any, fields []engine.Field, key engine.Key) []any {
	for i, v := range key {
		if fields[i].Kind == engine.KindInt {
			dst = append(dst, v.Int)
		} else {
			dst = append(dst, v.Text)
		}
	}
	return dst
}

// bindValue returns a row's value for gocql. A nil value would be null, which is a delete in Cassandra.
func bindValue(value []byte) []byte {
	if value == nil {
		return []byte{}
	}
	return value
}
