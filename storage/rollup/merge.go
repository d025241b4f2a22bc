package rollup

// Merge sets into to the requested columns of the buckets of a and b, ordered by time. If both have a bucket with the
// same end, the bucket of a is used. Merge may move memory between its arguments.
func Merge(into, a, b *Buckets, columns Columns) {
	switch {
	case b.Len() == 0:
		*into, *a = *a, *into
		return
	case a.Len() == 0:
		*into, *b = *b, *into
		return
	}
	into.Reset()
	i, j := 0, 0
	for i < a.Len() || j < b.Len() {
		from, to := i, j
		for i < a.Len() && (to == b.Len() || a.End[i] <= b.End[to]) {
			i++
		}
		into.AppendRange(a, from, i, columns)
		if i > from && to < b.Len() && a.End[i-1] == b.End[to] {
			j++
			continue
		}
		for j < b.Len() && (i == a.Len() || b.End[j] < a.End[i]) {
			j++
		}
		into.AppendRange(b, to, j, columns)
	}
}

// AppendRange appends the given columns of the buckets [from, to) of other, which follow the buckets of b in time. b
// must be empty or have the same columns.
func (b *Buckets) AppendRange(other *Buckets, from, to int, columns Columns) {
	if from == to {
		return
	}
	n := len(b.End)
	b.Start = append(b.Start, other.Start[from:to]...)
	b.End = append(b.End, other.End[from:to]...)
	b.Flags = append(b.Flags, other.Flags[from:to]...)
	if columns&ColumnCount != 0 {
		b.Count = append(b.Count, other.Count[from:to]...)
	}
	if columns&ColumnFirst != 0 {
		b.First, b.FirstT = append(b.First, other.First[from:to]...), append(b.FirstT, other.FirstT[from:to]...)
	}
	if columns&ColumnLast != 0 {
		b.Last, b.LastT = append(b.Last, other.Last[from:to]...), append(b.LastT, other.LastT[from:to]...)
	}
	if columns&ColumnMin != 0 {
		b.Min = append(b.Min, other.Min[from:to]...)
	}
	if columns&ColumnMax != 0 {
		b.Max = append(b.Max, other.Max[from:to]...)
	}
	if columns&ColumnSum != 0 {
		b.Sum, b.SumLow = append(b.Sum, other.Sum[from:to]...), append(b.SumLow, other.SumLow[from:to]...)
	}
	if columns&ColumnMoment != 0 {
		b.Moment = append(b.Moment, other.Moment[from:to]...)
	}
	if columns&ColumnLine != 0 {
		b.Comoment = append(b.Comoment, other.Comoment[from:to]...)
		b.TimeSum, b.TimeSquares = append(b.TimeSum, other.TimeSum[from:to]...),
			append(b.TimeSquares, other.TimeSquares[from:to]...)
	}
	if columns&ColumnCorrection != 0 {
		b.Correction = append(b.Correction, other.Correction[from:to]...)
	}
	if columns&ColumnResets != 0 {
		b.Resets = append(b.Resets, other.Resets[from:to]...)
	}
	if columns&ColumnChanges != 0 {
		b.Changes = append(b.Changes, other.Changes[from:to]...)
	}
	if columns&ColumnStarts != 0 {
		b.FirstST = appendSparse(b.FirstST, n, other.FirstST, from, to)
		b.LastST = appendSparse(b.LastST, n, other.LastST, from, to)
		b.StartCorrection = appendSparse(b.StartCorrection, n, other.StartCorrection, from, to)
		b.StartResets = appendSparse(b.StartResets, n, other.StartResets, from, to)
	}
	b.Histograms = appendSparse(b.Histograms, n, other.Histograms, from, to)
	if columns&ColumnSketches != 0 {
		b.Sketches = appendSparse(b.Sketches, n, other.Sketches, from, to)
	}
}

// appendSparse appends other[from:to] to a column of n buckets. A nil column means zeros.
func appendSparse[T any](column []T, n int, other []T, from, to int) []T {
	switch {
	case other == nil && column == nil:
		return nil
	case column == nil:
		column = make([]T, n, n+to-from)
	case other == nil:
		return append(column, make([]T, to-from)...)
	}
	return append(column, other[from:to]...)
}

// Delete removes the buckets, from the one at index on, for whose ends gone returns true.
func (b *Buckets) Delete(index int, gone func(end int64) bool) {
	n := len(b.End)
	keep := make([]bool, n)
	kept := index
	for i := range n {
		if keep[i] = i < index || !gone(b.End[i]); keep[i] && i >= index {
			kept++
		}
	}
	if kept == n {
		return
	}
	b.Start, b.End, b.Flags = filterColumn(b.Start, keep), filterColumn(b.End, keep), filterColumn(b.Flags, keep)
	b.Count, b.Resets, b.Changes = filterColumn(b.Count, keep), filterColumn(b.Resets, keep), filterColumn(
		b.Changes, keep,
	)
	b.FirstT, b.LastT = filterColumn(b.FirstT, keep), filterColumn(b.LastT, keep)
	b.FirstST, b.LastST = filterColumn(b.FirstST, keep), filterColumn(b.LastST, keep)
	b.StartCorrection, b.StartResets = filterColumn(b.StartCorrection, keep), filterColumn(b.StartResets, keep)
	b.First, b.Last, b.Min, b.Max = filterColumn(b.First, keep), filterColumn(b.Last, keep), filterColumn(b.Min, keep),
		filterColumn(b.Max, keep)
	b.Sum, b.SumLow, b.Moment = filterColumn(b.Sum, keep), filterColumn(b.SumLow, keep), filterColumn(b.Moment, keep)
	b.Comoment, b.TimeSum, b.TimeSquares = filterColumn(b.Comoment, keep), filterColumn(b.TimeSum, keep),
		filterColumn(b.TimeSquares, keep)
	b.Correction = filterColumn(b.Correction, keep)
	b.Histograms, b.Sketches = filterColumn(b.Histograms, keep), filterColumn(b.Sketches, keep)
}

// filterColumn keeps the entries of a column where keep is set. It returns a missing column unchanged.
func filterColumn[T any](column []T, keep []bool) []T {
	if len(column) != len(keep) {
		return column
	}
	kept := column[:0]
	for i, v := range column {
		if keep[i] {
			kept = append(kept, v)
		}
	}
	return kept
}
