package inspect

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/page"
)

// errNotShown means that the arguments of Rows are invalid.
var errNotShown = errors.New("inspect: invalid arguments")

// Overview describes the stored data: settings, tenants, their windows, and unsealed slots.
func Overview(ctx context.Context, v storage.View, out func(line string)) error {
	o := overview{View: v, ctx: ctx, out: out}
	list := v.Period().All()
	o.printLine("created %s, %s", format.FormatTime(v.Created().UnixMilli()), list[0])
	for _, p := range list[1:] {
		o.printLine("after %s, %s", format.FormatTime(p.FromMS), p)
	}
	if err := o.describeStaged(); err != nil {
		return err
	}
	tenants, err := v.Tenants(ctx)
	if err != nil {
		return err
	}
	for _, tenant := range tenants {
		if err := o.describeWindows(tenant); err != nil {
			return err
		}
	}
	return nil
}

type overview struct {
	storage.View
	ctx context.Context
	out func(line string)
}

func (o *overview) printLine(line string, args ...any) { o.out(fmt.Sprintf(line, args...)) }

// describeStaged describes the slots that aren't sealed.
func (o *overview) describeStaged() error {
	staged := map[int64]int{}
	for p := range o.Period().Partitions() {
		work, err := o.WaitingWork(o.ctx, p)
		if err != nil {
			return err
		}
		for _, w := range work {
			if found, err := hasRows(o.ctx, o.Engine(), engine.Stage, format.StagePartition(w.Slot, p)); err != nil {
				return err
			} else if found {
				staged[w.Slot]++
			}
		}
	}
	for _, slot := range slices.Sorted(maps.Keys(staged)) {
		from, to := o.Period().SlotStart(slot), o.Period().SlotEnd(slot)
		o.printLine("slot %d, from %s to %s: staged in %d partitions", slot, format.FormatTime(from),
			format.FormatTime(to), staged[slot])
	}
	return nil
}

// describeWindows describes a tenant's windows.
func (o *overview) describeWindows(tenant string) error {
	windows, err := o.Windows(o.ctx, tenant)
	if err != nil {
		return err
	}
	o.printLine("tenant %q, %d windows", tenant, len(windows))
	for _, w := range windows {
		marks := 0
		for _, err := range o.Engine().Scan(o.ctx,
			engine.Range{Table: engine.Sealed, Partition: format.SealedPartition(w, tenant), KeysOnly: true}) {
			if err != nil {
				return err
			}
			marks++
		}
		if marks > 0 {
			o.printLine("  %s window %d, until %s: %d seals", format.ResolutionOf(w), w,
				format.FormatTime(o.Period().WindowEnd(w)), marks)
		}
	}
	return nil
}

// hasRows reports whether a partition of a table has any rows.
func hasRows(ctx context.Context, eng engine.Engine, t *engine.Table, partition engine.Key) (bool, error) {
	for _, err := range eng.Scan(ctx, engine.Range{Table: t, Partition: partition, KeysOnly: true, Limit: 1}) {
		if err != nil {
			return false, fmt.Errorf("inspect: looking for rows of table %s: %w", t, err)
		}
		return true, nil
	}
	return false, nil
}

// Rows describes the rows of one partition of a table. fields maps names of key fields to their values. It must contain
// all fields of the partition key, and may contain the first fields of the clustering key. Integers are decimal, and
// ids are hexadecimal.
func Rows(ctx context.Context, eng engine.Engine, table string, fields map[string]string, out func(line string)) error {
	rows, err := rangeOf(table, fields)
	if err != nil {
		return err
	}
	for row, err := range eng.Scan(ctx, rows) {
		if err != nil {
			return err
		}
		words, err := describeRow(rows, row)
		if err != nil {
			words = "CORRUPT: " + err.Error()
		}
		out(keyText(rows.Table.Clustering, row.Clustering) + ": " + words)
	}
	return nil
}

func describeRow(rows engine.Range, row engine.Row) (string, error) {
	switch rows.Table {
	case engine.RawPages, engine.R5mPages, engine.R1hPages:
		if row.Clustering[0].Int == format.KindFilter {
			return page.DescribeFilter(row.Value)
		}
		return page.Describe(row.Value)
	default:
		return format.Describe(rows.Table, rows.Partition, row)
	}
}

// rangeOf returns the rows of a table that fields select.
func rangeOf(table string, fields map[string]string) (rows engine.Range, err error) {
	i := slices.IndexFunc(engine.Tables, func(t *engine.Table) bool { return t.Name == table })
	if i < 0 {
		names := make([]string, len(engine.Tables))
		for i, t := range engine.Tables {
			names[i] = t.Name
		}
		return rows, fmt.Errorf("%w: unknown table %q; the tables are %s", errNotShown, table,
			strings.Join(names, ", "))
	}
	t := engine.Tables[i]
	partition, err := parseKey(t, t.Partition, fields)
	if err != nil {
		return rows, err
	}
	if len(partition) < len(t.Partition) {
		return rows, fmt.Errorf("%w: rows of %s need the partition key %s; %s=… is missing", errNotShown, t,
			fieldNames(t.Partition), t.Partition[len(partition)].Name)
	}
	from, err := parseKey(t, t.Clustering, fields)
	if err != nil {
		return rows, err
	}
	for name := range fields {
		known := func(f engine.Field) bool { return f.Name == name }
		if !slices.ContainsFunc(t.Partition, known) && !slices.ContainsFunc(t.Clustering, known) {
			return rows, fmt.Errorf("%w: %s has no field %q; its fields are %s and %s", errNotShown, t, name,
				fieldNames(t.Partition), fieldNames(t.Clustering))
		}
	}
	return engine.Range{Table: t, Partition: partition, From: from, To: from}, nil
}

// parseKey returns a key with the values in given, in the order of fields, up to the first field that has no value.
func parseKey(t *engine.Table, fields []engine.Field, given map[string]string) (engine.Key, error) {
	var key engine.Key
	for _, f := range fields {
		text, ok := given[f.Name]
		if !ok {
			break
		}
		v := engine.Text(text)
		switch f.Kind {
		case engine.KindInt:
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%w: %s=%q of %s is not an integer", errNotShown, f.Name, text, t)
			}
			v = engine.Int(n)
		case engine.KindID:
			raw, err := hex.DecodeString(text)
			if err != nil || len(raw) != engine.IDLen {
				return nil, fmt.Errorf("%w: %s=%q of %s isn't %d bytes in hexadecimal", errNotShown,
					f.Name, text, t, engine.IDLen)
			}
			v = engine.Text(string(raw))
		}
		key = append(key, v)
	}
	return key, nil
}

func fieldNames(fields []engine.Field) string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return strings.Join(names, ", ")
}

func keyText(fields []engine.Field, key engine.Key) string {
	var parts []string
	for i, v := range key {
		switch fields[i].Kind {
		case engine.KindInt:
			parts = append(parts, fmt.Sprintf("%s=%d", fields[i].Name, v.Int))
		case engine.KindID:
			parts = append(parts, fmt.Sprintf("%s=%x", fields[i].Name, v.Text))
		default:
			parts = append(parts, fmt.Sprintf("%s=%q", fields[i].Name, v.Text))
		}
	}
	return strings.Join(parts, " ")
}
