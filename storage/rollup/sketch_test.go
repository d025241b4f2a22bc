package rollup

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/soak"
)

func TestSketchBinsAreNarrow(t *testing.T) {
	r := rand.New(rand.NewPCG(soak.FirstSeed(t), 4))
	check := func(v float64) {
		key := sketchKey(v)
		near := SketchBin{Key: key}.Value()
		if math.Abs(v) < math.Ldexp(1, -1022) {
			require.Zero(t, near, "%v", v)
			return
		}
		require.LessOrEqual(t, math.Abs(near-v), sketchAccuracy*math.Abs(v), "%v", v)
		require.LessOrEqual(t, key, sketchKey(math.Nextafter(v, math.Inf(1))), "%v", v)
		require.LessOrEqual(t, max(key, -key), int32(maxSketchKey))
	}
	for range 100_000 {
		if v := math.Float64frombits(r.Uint64()); isFinite(v) {
			check(v)
		}
		check(r.NormFloat64())
	}
	for _, v := range []float64{
		0, math.Copysign(0, -1), 1, 2, 4, -1, math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64,
		math.Ldexp(1, -1022), 1e15, 0.1,
	} {
		check(v)
		check(math.Nextafter(v, 0))
	}
}

// TestHoursWithoutSketches requires that hours with missing 5m buckets have no sketch, and that counters and constants
// have none.
func TestHoursWithoutSketches(t *testing.T) {
	var fine, hours Buckets
	s := usualShapes()[1].floats(480, 1)
	AppendStored(&fine, s, "m", fiveMinutes)
	require.Len(t, fine.Sketches, fine.Len())
	fine.Delete(0, func(end int64) bool { return end == fine.End[3] })
	CoarsenStored(&hours, &fine, "m", oneHour)
	require.Nil(t, hours.Sketches[0])
	require.NotNil(t, hours.Sketches[1])

	for metric, i := range map[string]int{"x_total": 0, "constant": 2} {
		var b Buckets
		AppendStored(&b, usualShapes()[i].floats(480, 1), metric, fiveMinutes)
		require.Nil(t, b.Sketches, metric)
	}
	for _, sh := range unusualShapes()[5:7] { // NaN
		var b Buckets
		AppendStored(&b, sh.floats(480, 1), "m", fiveMinutes)
		require.Nil(t, b.Sketches, sh.name)
	}
}

func TestSketchesAreCutAndSplit(t *testing.T) {
	var fine Buckets
	AppendStored(&fine, usualShapes()[7].floats(20*48, 1), "m", fiveMinutes)
	encoded := AppendChunk(nil, &fine, fiveMinutes, 1)
	f := chunk.Fields{Numbers: make([]uint64, FieldNumbers), Texts: make([][]byte, FieldTexts)}
	require.True(t, CutChunk(encoded, &f))
	require.Equal(t, encoded, AppendCut(nil, &f))
	var s Long
	require.NoError(t, s.Parse(AppendLong(nil, []Part{{startMS, 1}, {startMS + 2*oneHour, 2}}, &fine, fiveMinutes)))
	n := 0
	require.NoError(t, s.Split(func(Part) bool { return true }, func(p Part, got []byte) error {
		require.Equal(t, AppendChunk(nil, fine.slice(n, n+24), fiveMinutes, p.Version), got)
		n += 24
		return nil
	}))
}
