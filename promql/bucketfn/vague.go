package bucketfn

import (
	"math"

	"github.com/cassia-db/cassia/storage/rollup"
)

// vagueSums finds the windows whose sum isn't known to 1e-12, because large values cancel out within a bucket (see
// rollup.Vague) or between buckets. These sums are left to samples.
type vagueSums struct {
	b *rollup.Buckets
	// hasVague is set if some bucket has the flag rollup.Vague. largest is the largest absolute sum of a bucket.
	hasVague bool
	largest  float64
}

func newVagueSums(b *rollup.Buckets) vagueSums {
	v := vagueSums{b: b}
	for i, sum := range b.Sum {
		if sum = math.Abs(sum); sum > v.largest && sum <= math.MaxFloat64 {
			v.largest = sum
		}
		v.hasVague = v.hasVague || b.Flags[i]&rollup.Vague != 0
	}
	return v
}

// isVague reports whether the sum of the values in the buckets [lo, hi) isn't known to 1e-12. count is the number of
// values.
func (v *vagueSums) isVague(lo, hi int, sum float64, count uint64) bool {
	within := math.Abs(sum) / (rollup.VagueSum * float64(count)) // of values that aren't too large for the sum
	if sum == 0 || !v.hasVague && v.largest <= within {
		return false
	}
	for i := lo; i < hi; i++ {
		if v.b.Flags[i]&rollup.Vague != 0 || math.Abs(v.b.Sum[i]) > within {
			return true
		}
	}
	return false
}
