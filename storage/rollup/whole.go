package rollup

import "math"

// Whole is a bucket from Start to End that was cut into pieces.
type Whole struct {
	Start, End int64
	// Moment is the bucket's moment minus the sum of its pieces' moments; 0 if one of these moments is unknown.
	Moment float64
	// Comoment, TimeSum and TimeSquares are also the bucket's values minus the sums of its pieces' values, and 0 where
	// unknown. Mean is the mean of the values, and First the time of the first sample in milliseconds.
	Comoment, TimeSum, TimeSquares, Mean float64
	First                                int64
}

// AddWhole appends to Wholes the difference of moment and line between bucket i of whole and its pieces, unless there
// is none. The pieces are the buckets of b from index first on. They must have no histograms, and ColumnCount,
// ColumnFirst, ColumnLast, ColumnSum, ColumnMoment and ColumnLine.
func (b *Buckets) AddWhole(first int, whole *Buckets, i int) {
	var pieces run
	count, firstT := int64(0), int64(0)
	for k := first; k < b.Len(); k++ {
		if b.Count[k] == 0 {
			continue
		}
		if count == 0 {
			firstT = b.FirstT[k]
		}
		pieces.addMoment(float64(count), b, k)
		pieces.addLine(count, firstT, b, k)
		pieces.sum.AddSum(b.Sum[k], b.SumLow[k])
		count += int64(b.Count[k])
	}
	if count == 0 {
		return
	}
	w := Whole{Start: whole.Start[i], End: whole.End[i], First: firstT, Mean: pieces.sum.Total() / float64(count)}
	isOff := false
	if missing := whole.Moment[i] - pieces.moment; whole.Moment[i] >= 0 && pieces.moment >= 0 &&
		math.Abs(missing) > 1e-13*whole.Moment[i] {
		w.Moment, isOff = missing, true
	}
	if whole.TimeSquares[i] >= 0 && pieces.line.squares >= 0 && isFinite(w.Mean) {
		w.Comoment = whole.Comoment[i] - pieces.line.comoment
		w.TimeSum, w.TimeSquares = float64(whole.TimeSum[i]-pieces.line.timeSum),
			float64(whole.TimeSquares[i]-pieces.line.squares)
		isOff = isOff || w.Comoment != 0 || w.TimeSquares != 0 || w.TimeSum != 0
	}
	if isOff {
		b.Wholes = append(b.Wholes, w)
	}
}
