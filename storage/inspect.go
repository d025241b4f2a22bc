package storage

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// ErrInspect says that what was asked of Inspect can't be shown.
var ErrInspect = errors.New("storage: can't show that")

// Overview tells in words what is stored: settings, tenants, their windows, and slots not yet sealed.
func (s *Store) Overview(ctx context.Context, out func(line string)) error {
	say := func(format string, args ...any) { out(fmt.Sprintf(format, args...)) }
	list := s.period.All()
	say("created %s, %s", format.Instant(s.created.UnixMilli()), list[0])
	for _, p := range list[1:] {
		say("after %s, %s", format.Instant(p.FromMS), p)
	}
	staged := map[int64]int{}
	for p := range s.period.Partitions() {
		work, err := s.Waiting(ctx, p)
		if err != nil {
			return err
		}
		for _, w := range work {
			if empty, err := s.empty(ctx, engine.Stage, format.StagePartition(w.Slot, p)); err != nil {
				return err
			} else if !empty {
				staged[w.Slot]++
			}
		}
	}
	slots := make([]int64, 0, len(staged))
	for slot := range staged {
		slots = append(slots, slot)
	}
	slices.Sort(slots)
	for _, slot := range slots {
		say("slot %d, from %s to %s: staged in %d partitions", slot, format.Instant(s.period.SlotStart(slot)), format.Instant(s.period.SlotEnd(slot)), staged[slot])
	}
	tenants, err := s.Tenants(ctx)
	if err != nil {
		return err
	}
	for _, tenant := range tenants {
		windows, err := s.windowsOf(ctx, tenant, -allWindows, allWindows)
		if err != nil {
			return err
		}
		say("tenant %q, %d windows", tenant, len(windows))
		for _, w := range windows {
			marks := 0
			for _, err := range s.eng.Scan(ctx, engine.Range{Table: engine.Sealed, Partition: format.SealedPartition(w, tenant), KeysOnly: true}) {
				if err != nil {
					return err
				}
				marks++
			}
			if marks > 0 {
				say("  %s window %d, until %s: %d seals", format.ResolutionOf(w), w, format.Instant(s.period.WindowEnd(w)), marks)
			}
		}
	}
	return nil
}

// Inspect tells in words what stands in the rows of one partition of a table. fields gives the whole
// partition key by the names of its fields, and may give the first fields of the clustering key; integers
// are decimal, ids hexadecimal.
func (s *Store) Inspect(ctx context.Context, table string, fields map[string]string, out func(line string)) error {
	i := slices.IndexFunc(engine.Tables, func(t *engine.Table) bool { return t.Name == table })
	if i < 0 {
		names := make([]string, len(engine.Tables))
		for i, t := range engine.Tables {
			names[i] = t.Name
		}
		return fmt.Errorf("%w: there is no table %q; there are %s", ErrInspect, table, strings.Join(names, ", "))
	}
	t := engine.Tables[i]
	partition, err := parseKey(t, t.Partition, fields)
	if err != nil {
		return err
	}
	if len(partition) < len(t.Partition) {
		return fmt.Errorf("%w: rows of %s are found by %s; %s=… is missing", ErrInspect, t, fieldNames(t.Partition), t.Partition[len(partition)].Name)
	}
	from, err := parseKey(t, t.Clustering, fields)
	if err != nil {
		return err
	}
	for name := range fields {
		known := func(f engine.Field) bool { return f.Name == name }
		if !slices.ContainsFunc(t.Partition, known) && !slices.ContainsFunc(t.Clustering, known) {
			return fmt.Errorf("%w: %s has no field %q; it has %s and %s", ErrInspect, t, name, fieldNames(t.Partition), fieldNames(t.Clustering))
		}
	}
	for row, err := range s.eng.Scan(ctx, engine.Range{Table: t, Partition: partition, From: from, To: from}) {
		if err != nil {
			return err
		}
		words, err := format.Describe(t, partition, row)
		if err != nil {
			words = "CORRUPT: " + err.Error()
		}
		out(keyText(t.Clustering, row.Clustering) + ": " + words)
	}
	return nil
}

// parseKey makes a key of the fields that are given, up to the first that isn't.
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
				return nil, fmt.Errorf("%w: %s=%q of %s is no integer", ErrInspect, f.Name, text, t)
			}
			v = engine.Int(n)
		case engine.KindID:
			raw, err := hex.DecodeString(text)
			if err != nil || len(raw) != engine.IDLen {
				return nil, fmt.Errorf("%w: %s=%q of %s isn't %d bytes in hexadecimal", ErrInspect, f.Name, text, t, engine.IDLen)
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
