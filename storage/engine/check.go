package engine

import (
	"fmt"
	"slices"
)

// CheckBatches returns an error if a batch is invalid. Every engine calls it before it writes anything, so that all
// engines reject the same batches and a rejected write has no effect. Engines that support Clear call CheckClearing
// instead.
func CheckBatches(batches []Batch) error { return checkBatches(batches, false) }

// CheckClearing is like CheckBatches, for engines that support Clear.
func CheckClearing(batches []Batch) error { return checkBatches(batches, true) }

func checkBatches(batches []Batch, clears bool) error {
	for i := range batches {
		if err := checkBatch(&batches[i], clears); err != nil {
			return err
		}
	}
	return nil
}

// CheckBatch returns an error if a batch is invalid for an engine that doesn't support Clear.
func CheckBatch(b *Batch) error { return checkBatch(b, false) }

func checkBatch(b *Batch, clears bool) error {
	t := b.Table
	if t == nil {
		return fmt.Errorf("%w: a batch has no table", ErrBadWrite)
	}
	if t.Conditional {
		return fmt.Errorf("%w: %s is written by CompareAndSet only", ErrBadWrite, t)
	}
	if err := CheckKey(t.Partition, b.Partition, false); err != nil {
		return fmt.Errorf("partition key of %s: %w", t, err)
	}
	size := keySize(t.Partition, b.Partition)
	for i := range b.Mutations {
		m := &b.Mutations[i]
		if err := checkMutation(t, m, clears); err != nil {
			return fmt.Errorf("row of %s: %w", t, err)
		}
		size += keySize(t.Clustering, m.Clustering) + keySize(t.Clustering, m.To) + len(m.Value)
	}
	if size > MaxBatch {
		return fmt.Errorf("%w: a batch for %s has %d bytes; the maximum is %d", ErrTooLarge, t, size, MaxBatch)
	}
	return nil
}

func checkMutation(t *Table, m *Mutation, clears bool) error {
	if m.Op == Clear {
		return checkClear(t, m, clears)
	}
	if err := CheckKey(t.Clustering, m.Clustering, false); err != nil {
		return err
	}
	switch m.Op {
	case Put:
		return checkValue(m.Value)
	case Delete, DeleteRange:
		if t.Converging {
			return fmt.Errorf("%w: rows of a converging table can't be deleted individually", ErrBadWrite)
		}
		if m.Op == DeleteRange {
			return checkDeleteRange(t, m)
		}
		return nil
	default:
		return fmt.Errorf("%w: unknown operation %d", ErrBadWrite, m.Op)
	}
}

func checkValue(value []byte) error {
	if len(value) > MaxValue {
		return fmt.Errorf("%w: a value has %d bytes; the maximum is %d", ErrTooLarge, len(value), MaxValue)
	}
	return nil
}

func checkDeleteRange(t *Table, m *Mutation) error {
	if err := CheckKey(t.Clustering, m.To, false); err != nil {
		return err
	}
	last := len(t.Clustering) - 1
	if f := t.Clustering[last]; f.Kind != KindInt {
		return fmt.Errorf("%w: a range of %s can't be deleted, because the field isn't an integer", ErrBadWrite, f.Name)
	}
	if Compare(m.Clustering[:last], m.To[:last]) != 0 {
		return fmt.Errorf("%w: the bounds of a deleted range may differ only in %s", ErrBadWrite,
			t.Clustering[last].Name)
	}
	if m.Clustering[last].Int > m.To[last].Int {
		return fmt.Errorf("%w: a deleted range ends before it starts: %d > %d", ErrBadWrite,
			m.Clustering[last].Int, m.To[last].Int)
	}
	return nil
}

func checkClear(t *Table, m *Mutation, clears bool) error {
	if !clears {
		return fmt.Errorf("%w: this engine can't remove rows regardless of their timestamps", ErrBadWrite)
	}
	for _, bound := range []Key{m.Clustering, m.To} {
		if err := CheckKey(t.Clustering, bound, true); err != nil {
			return err
		}
		if len(bound) == 0 {
			return fmt.Errorf("%w: a cleared range has no bounds", ErrBadWrite)
		}
	}
	if Compare(m.Clustering, m.To) > 0 {
		return fmt.Errorf("%w: a cleared range ends before it starts", ErrBadWrite)
	}
	return nil
}

// CheckRange returns an error if a range is invalid.
func CheckRange(r *Range) error {
	if r.Table == nil {
		return fmt.Errorf("%w: a range has no table", ErrBadKey)
	}
	if err := CheckKey(r.Table.Partition, r.Partition, false); err != nil {
		return fmt.Errorf("partition key of %s: %w", r.Table, err)
	}
	for _, bound := range []Key{r.From, r.To} {
		if err := CheckKey(r.Table.Clustering, bound, true); err != nil {
			return fmt.Errorf("bound in %s: %w", r.Table, err)
		}
	}
	return nil
}

// CheckPartitions returns an error if prefix is invalid for Engine.Partitions.
func CheckPartitions(t *Table, prefix Key) error {
	if t == nil || t.Conditional {
		return fmt.Errorf("%w: only the partitions of a table that isn't conditional can be listed", ErrBadKey)
	}
	return CheckKey(t.Partition, prefix, true)
}

// CheckDrop returns an error if prefix is invalid for Engine.Drop.
func CheckDrop(t *Table, prefix Key) error {
	if t == nil {
		return fmt.Errorf("%w: a drop has no table", ErrBadKey)
	}
	if err := CheckKey(t.Partition, prefix, true); err != nil {
		return fmt.Errorf("partitions of %s: %w", t, err)
	}
	return nil
}

// CheckCompareAndSet returns an error if CompareAndSet can't set this row of t.
func CheckCompareAndSet(t *Table, partition, clustering Key, value []byte) error {
	if t == nil || !t.Conditional {
		return fmt.Errorf("%w: only conditional tables have CompareAndSet", ErrBadWrite)
	}
	if err := CheckKey(t.Partition, partition, false); err != nil {
		return fmt.Errorf("partition key of %s: %w", t, err)
	}
	if err := CheckKey(t.Clustering, clustering, false); err != nil {
		return fmt.Errorf("row of %s: %w", t, err)
	}
	return checkValue(value)
}

// CheckProbe returns ErrBadKey if the partitions are invalid for Prober. Otherwise it returns the field in which they
// differ, or any integer field if there is at most one partition.
func CheckProbe(t *Table, partitions []Key) (field int, err error) {
	return differingField(KindInt, "an integer", &Range{Table: t}, partitions)
}

// CheckSeveral returns ErrBadKey if the partitions are invalid for SeveralScanner. Otherwise it returns the field in
// which they differ, or any text field if there is at most one partition.
func CheckSeveral(r *Range, partitions []Key) (field int, err error) {
	if field, err = differingField(KindText, "a text", r, partitions); err != nil {
		return 0, err
	}
	seen := map[string]bool{}
	for _, p := range partitions {
		if seen[p[field].Text] {
			return 0, fmt.Errorf("%w: a partition of %s is scanned twice", ErrBadKey, r.Table)
		}
		seen[p[field].Text] = true
	}
	return field, nil
}

// differingField returns the only field in which partitions differ. The field must have the given kind, whose name in
// errors is name. If the partitions don't differ, differingField returns any field of this kind. r is the range in each
// partition, without Partition, of a table that isn't Conditional.
func differingField(kind Kind, name string, r *Range, partitions []Key) (field int, err error) {
	t := r.Table
	if t == nil || t.Conditional {
		return 0, fmt.Errorf("%w: multiple partitions can be read only from a table that isn't conditional", ErrBadKey)
	}
	field = -1
	for _, p := range partitions {
		each := *r
		each.Partition = p
		if err := CheckRange(&each); err != nil {
			return 0, err
		}
		for i := range p {
			if p[i] == partitions[0][i] {
				continue
			}
			if t.Partition[i].Kind != kind || field >= 0 && field != i {
				return 0, fmt.Errorf("%w: the partitions of %s in one request may differ only in %s",
					ErrBadKey, t, name)
			}
			field = i
		}
	}
	if field < 0 { // At most one partition.
		field = slices.IndexFunc(t.Partition, func(f Field) bool { return f.Kind == kind })
	}
	if field < 0 {
		return 0, fmt.Errorf("%w: partitions of %s can't be read in one request, because they don't have %s",
			ErrBadKey, t, name)
	}
	return field, nil
}

// keySize returns the size of a key in bytes that counts towards MaxBatch. It is the same for all engines.
func keySize(fields []Field, key Key) int {
	n := 0
	for i, v := range key {
		if fields[i].Kind == KindInt {
			n += 8
		} else {
			n += len(v.Text)
		}
	}
	return n
}

// Compare compares two keys of the same fields, field by field up to the end of the shorter key. A key and each of its
// prefixes are equal.
func Compare(a, b Key) int {
	for i := range min(len(a), len(b)) {
		switch {
		case a[i].Int != b[i].Int:
			if a[i].Int < b[i].Int {
				return -1
			}
			return 1
		case a[i].Text != b[i].Text:
			if a[i].Text < b[i].Text {
				return -1
			}
			return 1
		}
	}
	return 0
}
