package bucketfn

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/soak"
)

// plainFactor computes Slope.Factor as extrapolatedRate does, without shortcuts.
func plainFactor(s Slope, spacing Spacing, sinceStart int64, first, rise float64) float64 {
	sampled := toSeconds(spacing.Sampled)
	interval := 0.0
	if spacing.Count > 1 {
		interval = sampled / float64(spacing.Count-1)
	}
	left, right := toSeconds(spacing.BeforeFirst), toSeconds(spacing.AfterLast)
	if left >= interval*1.1 {
		left = interval / 2
	}
	if sinceStart > 0 {
		sampled, left = toSeconds(spacing.Sampled+sinceStart), 0
	} else if s.Counter && rise > 0 && first >= 0 {
		if toZero := sampled * (first / rise); toZero < left {
			left = toZero
		}
	}
	if right >= interval*1.1 {
		right = interval / 2
	}
	factor := 1.
	if sampled != 0 {
		factor = (sampled + left + right) / sampled
	}
	if s.PerSecond != 0 {
		return factor / s.PerSecond
	}
	return factor * s.Scale
}

// TestFactorsOfSlopes checks that factors equal those of the full computation to the last bit: for spacings that equal
// the previous spacing and for other spacings, for counters that may or may not have been close to 0 in the window, and
// for values at the limits of floats.
func TestFactorsOfSlopes(t *testing.T) {
	for seed := range soak.Seeds(t, 40) {
		r := rand.New(rand.NewPCG(seed, 46))
		s := Slope{Counter: r.IntN(4) > 0, Scale: 1}
		if r.IntN(2) > 0 {
			s.PerSecond = 300
		}
		plain := s
		var spacing Spacing
		var sinceStart int64
		for range 2_000 {
			if spacing.Count == 0 || r.IntN(3) == 0 {
				spacing = Spacing{BeforeFirst: r.Int64N(20_000), AfterLast: r.Int64N(20_000),
					Sampled: r.Int64N(300_000), Count: 2 + r.Uint64N(20)}
				if sinceStart = 0; r.IntN(3) == 0 {
					sinceStart = 1 + r.Int64N(20_000)
					spacing.Count -= r.Uint64N(2)
				}
				if r.IntN(20) == 0 {
					spacing.Sampled = r.Int64N(2)
				}
			}
			rise := math.Ldexp(r.Float64(), r.IntN(60)-30)
			// The counter is close to 0 at the left edge.
			first := rise * toSeconds(spacing.BeforeFirst) / max(1e-3, toSeconds(spacing.Sampled))
			switch r.IntN(8) {
			case 0:
				first *= 1 + float64(r.IntN(9)-4)*0x1p-52
			case 1:
				first = math.Ldexp(r.Float64(), r.IntN(2000)-1000)
			case 2:
				first, rise = math.Ldexp(r.Float64(), 1023), math.Ldexp(r.Float64(), 1023)
			case 3:
				first, rise = float64(r.IntN(3))*math.SmallestNonzeroFloat64,
					float64(r.IntN(3))*math.SmallestNonzeroFloat64
			case 4:
				first = []float64{0, -1, math.NaN(), math.Inf(1), math.Copysign(0, -1)}[r.IntN(5)]
			case 5:
				rise = []float64{0, -1, math.NaN(), math.Inf(1)}[r.IntN(4)]
			}
			want := plainFactor(plain, spacing, sinceStart, first, rise)
			got := s.Factor(spacing, sinceStart, first, rise)
			require.Equal(
				t, math.Float64bits(want), math.Float64bits(got), "%+v, start %d, first %g, rise %g: %g, not %g",
				spacing, sinceStart, first, rise, got, want,
			)
		}
	}
}
