package expand

import (
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/rollup"
)

// AppendSketch appends samples that have the sketch of bucket i of b: as many as the bucket's count, evenly spaced, and
// ascending by value from the min to the max. b must have Columns and rollup.ColumnSketches. It returns false and
// appends nothing in three cases: the bucket's values differ and the bucket has no sketch, a value isn't finite, or the
// bucket has histograms or isn't simple.
func AppendSketch(into *chunk.Samples, b *rollup.Buckets, i int) bool {
	n := int(b.Count[i])
	switch {
	case b.Flags[i]&(rollup.HasHistograms|rollup.NotSimple) != 0:
		return false
	case !(b.Min[i] < b.Max[i]):
		if n > 0 && !areFinite(b.Sum[i]) {
			return false
		}
		for k := range n {
			into.AppendFloat(timeOf(k, n, b.FirstT[i], b.LastT[i]), 0, b.Min[i])
		}
		return true
	case b.Sketches == nil || b.Sketches[i] == nil:
		return false
	}
	k := 0
	for _, bin := range b.Sketches[i].Bins {
		v := min(max(bin.Value(), b.Min[i]), b.Max[i])
		for range bin.Count {
			at := timeOf(k, n, b.FirstT[i], b.LastT[i])
			switch k++; k {
			case 1:
				into.AppendFloat(at, 0, b.Min[i])
			case n:
				into.AppendFloat(at, 0, b.Max[i])
			default:
				into.AppendFloat(at, 0, v)
			}
		}
	}
	return true
}
