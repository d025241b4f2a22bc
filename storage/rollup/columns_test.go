package rollup

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// columnNames returns the fields of Buckets that have one entry per bucket.
func columnNames() (names []string) {
	for f := range reflect.TypeFor[Buckets]().Fields() {
		if f.IsExported() && f.Name != "Wholes" {
			names = append(names, f.Name)
		}
	}
	return names
}

// columnOf returns a field of b.
func columnOf(b *Buckets, name string) reflect.Value {
	return reflect.ValueOf(b).Elem().FieldByName(name)
}

// mayBeNil returns true if a column of all buckets may be nil after all columns have been read.
func mayBeNil(name string) bool {
	return slices.Contains([]string{
		"FirstST", "LastST", "StartCorrection", "StartResets", "Histograms", "Sketches",
	}, name)
}

// filledBuckets returns n buckets that end at 1, 2, …, n. Every entry of every column is set, and differs from the
// other entries of its column.
func filledBuckets(n int) *Buckets {
	b := &Buckets{}
	for _, name := range columnNames() {
		column := columnOf(b, name)
		for i := range n {
			entry := reflect.New(column.Type().Elem()).Elem()
			switch {
			case entry.Kind() == reflect.Pointer:
				entry.Set(reflect.New(entry.Type().Elem()))
			default:
				entry.Set(reflect.ValueOf(i + 1).Convert(entry.Type()))
			}
			column.Set(reflect.Append(column, entry))
		}
	}
	return b
}

// requireColumns requires that every column of got has the entries of b at the indices in want.
func requireColumns(t *testing.T, operation string, b, got *Buckets, want ...int) {
	t.Helper()
	for _, name := range columnNames() {
		column, from := columnOf(got, name), columnOf(b, name)
		require.Equal(t, len(want), column.Len(),
			"%s ignores column %s: add it there; doc.go lists the other places of a column", operation, name)
		for i, k := range want {
			require.Equal(t, from.Index(k).Interface(), column.Index(i).Interface(), "%s: column %s", operation, name)
		}
	}
}

// TestOperationsHaveAllColumns requires that every operation on buckets includes every column.
func TestOperationsHaveAllColumns(t *testing.T) {
	b := filledBuckets(4)
	part := b.Slice(1, 3)
	requireColumns(t, "Slice", b, &part, 1, 2)

	kept := filledBuckets(4)
	kept.KeepRange(1, 2, 3)
	requireColumns(t, "KeepRange", filledBuckets(4), kept, 0, 2)

	left := filledBuckets(4)
	left.Delete(1, func(end int64) bool { return end == 3 })
	requireColumns(t, "Delete", filledBuckets(4), left, 0, 1, 3)

	var merged Buckets
	first, last := b.Slice(0, 2), b.Slice(2, 4)
	Merge(&merged, &last, &first, AllColumns)
	requireColumns(t, "Merge, in AppendRange,", b, &merged, 0, 1, 2, 3)

	grown := filledBuckets(4)
	grown.add(4, 5)
	for _, name := range columnNames() {
		column := columnOf(grown, name)
		require.Equal(t, 5, column.Len(), "add ignores column %s", name)
		require.True(t, column.Index(4).IsZero() || name == "Start" || name == "End", name)
	}

	grown.Reset()
	requireColumns(t, "Reset", b, grown)
}

// TestEqualComparesAllColumns requires that Equal reports a difference in any single column.
func TestEqualComparesAllColumns(t *testing.T) {
	for _, name := range columnNames() {
		a, b := filledBuckets(2), filledBuckets(2)
		a.Histograms, b.Histograms = nil, nil
		require.True(t, a.Equal(b))
		switch column := columnOf(b, name); {
		case name == "Histograms":
			b.Histograms = make([]*Histograms, 2)
		case name == "Sketches":
			b.Sketches[1] = &Sketch{Bins: []SketchBin{{Key: 1, Count: 1}}}
		default:
			column.Index(1).Set(reflect.ValueOf(9).Convert(column.Type().Elem()))
		}
		require.False(t, a.Equal(b), "Equal ignores column %s: add it there", name)
	}
}

// TestColumnsAreWrittenInOrder requires that the encoder panics if a column is written after one with a higher number.
func TestColumnsAreWrittenInOrder(t *testing.T) {
	var e encoder
	e.ints(columnChanges, []int64{1})
	require.PanicsWithValue(
		t, "rollup: column 14 is written after column 15: encode writes columns in the order of their numbers",
		func() { e.ints(columnResets, []int64{1}) },
	)
	e.ints(columnResets, []int64{0}) // Nothing is written.
}

// TestFieldsHaveAllColumns requires that FieldsOf finds the stored columns of every column of buckets.
func TestFieldsHaveAllColumns(t *testing.T) {
	require.Equal(t, AllColumns, Columns(1)<<len(columnsOf)-1, "columnsOf in fields.go needs an element per column")
	var stored uint32 = alwaysColumns
	for _, of := range columnsOf {
		stored |= of
	}
	require.Equal(t, uint32(math.MaxUint32)>>(32-columnsEnd), stored, "columnsOf in fields.go lacks a stored column")
}

// TestCoarsenHasAllColumns requires that hours that are made from 5m buckets equal hours that are made from samples.
// Columns of sums are left out, because they may differ by rounding.
func TestCoarsenHasAllColumns(t *testing.T) {
	rounded := []string{
		"Flags", "Sum", "SumLow", "Moment", "Comoment", "Correction", "StartCorrection", "Histograms", "Sketches",
	}
	for _, of := range series(t, 150) {
		var fine, coarse, want Buckets
		AppendEvery(&fine, of.samples, fiveMinutes)
		Coarsen(&coarse, &fine, oneHour)
		AppendEvery(&want, of.samples, oneHour)
		for _, name := range columnNames() {
			if !slices.Contains(rounded, name) {
				require.Equal(t, fmt.Sprint(columnOf(&want, name)), fmt.Sprint(columnOf(&coarse, name)),
					"%s: does coarsen.go compute column %s?", of.name, name)
			}
		}
	}
}
