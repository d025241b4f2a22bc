package chunk

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzDecode decodes the input, and the input with a correct checksum. The result must be an ErrCorrupt or match the
// chunk's header, and its memory must be bounded by the size of the input.
func FuzzDecode(f *testing.F) {
	for _, s := range goldenSamples(f) {
		if s.Len() < 100 {
			f.Add(AppendChunk(nil, s))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, resealed(b)} {
			var s Samples
			err := Decode(b, &s)
			buckets := 0
			for _, h := range s.H {
				if h.Int != nil {
					buckets += len(h.Int.PositiveBuckets) + len(h.Int.NegativeBuckets)
				} else {
					buckets += len(h.Float.PositiveBuckets) + len(h.Float.NegativeBuckets)
				}
			}
			require.LessOrEqual(t, buckets, 8*len(b))
			if err != nil {
				require.ErrorIs(t, err, ErrCorrupt)
				require.Zero(t, s.Len())
				continue
			}
			info, err := Header(b)
			require.NoError(t, err)
			require.Equal(t, info.Count, s.Len())
			requireRoundTripOfCanonical(t, &s)
		}
	})
}

// requireRoundTripOfCanonical requires that samples are unchanged after encoding and decoding, except those that
// CanonicalHistogram rejects, because chunks never contain them.
func requireRoundTripOfCanonical(t *testing.T, s *Samples) {
	valid := s.H[:0]
	for _, h := range s.H {
		if c, err := CanonicalHistogram(h); err == nil {
			valid = append(valid, c)
		}
	}
	s.H = valid
	s.Normalize()
	if s.Len() > 0 {
		requireRoundTrip(t, s)
	}
}

// FuzzRoundTrip generates floats from the input: 16 bytes per float, or fewer if the float follows a pattern.
func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14\x15"))
	f.Add([]byte{1, 1, 1, 1, 2, 200, 1, 1, 3, 9, 9, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		s := fuzzSamples(b)
		if s.Len() == 0 {
			return
		}
		s.Normalize()
		first := requireRoundTrip(t, s)
		s.Normalize()
		require.Equal(t, first, AppendChunk(nil, s))
	})
}

func fuzzSamples(b []byte) *Samples {
	s := &Samples{}
	p := point{t: startMS, v: 1}
	step := int64(intervalMS)
	for len(b) > 0 {
		op, arg := b[0]%10, int64(0)
		b = b[1:]
		if op >= 2 && len(b) > 0 {
			arg, b = int64(int8(b[0])), b[1:]
		}
		switch op {
		case 2:
			p.v += float64(arg)
		case 3:
			p.v = float64(arg) / 100
		case 4:
			p.v = staleNaN
		case 5:
			step = arg * 1000
		case 6:
			p.t += arg
		case 7:
			p.st = p.t - arg
		case 8, 9:
			if len(b) < 8 {
				return s
			}
			x := binary.LittleEndian.Uint64(b)
			b = b[8:]
			if op == 8 {
				p.v = math.Float64frombits(x)
			} else {
				p.t = int64(x)
			}
		}
		for range 1 + 3*int(op&1) {
			p.t += step
			s.AppendFloat(p.t, p.st, p.v)
			p.v++
		}
	}
	return s
}

// FuzzParseHistogram checks that parsed histograms are rejected by CanonicalHistogram, or can be stored in their
// canonical form.
func FuzzParseHistogram(f *testing.F) {
	for _, float := range []bool{false, true} {
		for _, h := range histogramSeries(f, 5, 1, float, true).H {
			f.Add(AppendHistogramBytes(nil, h))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHistogram(b)
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			return
		}
		c, err := CanonicalHistogram(h)
		require.NoError(t, err)
		encoded := AppendHistogramBytes(nil, c)
		parsed, err := ParseHistogram(encoded)
		require.NoError(t, err)
		require.Equal(t, encoded, AppendHistogramBytes(nil, parsed))
		requireRoundTrip(t, &Samples{H: []Histogram{c}})
	})
}
