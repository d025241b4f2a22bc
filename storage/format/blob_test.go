package format

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
)

// transcript is the content of a blob, one line per record.
type transcript []string

func (x *transcript) Define(ref uint32, tenant string, ls labels.Labels) error {
	*x = append(*x, fmt.Sprintf("define %d %s %s", ref, tenant, ls))
	return nil
}

func (x *transcript) Float(ref uint32, t, st int64, v uint64) error {
	*x = append(*x, fmt.Sprintf("float %d %d %d %x", ref, t, st, v))
	return nil
}

func (x *transcript) Histogram(ref uint32, t int64, encoded []byte) error {
	*x = append(*x, fmt.Sprintf("histogram %d %d %x", ref, t, encoded))
	return nil
}

func (x *transcript) Exemplar(ref uint32, t int64, encoded []byte) error {
	*x = append(*x, fmt.Sprintf("exemplar %d %d %x", ref, t, encoded))
	return nil
}

func TestBlobRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var w BlobWriter
	for range 100 {
		before := uint32(rng.IntN(3))
		epoch := 1 + rng.Int64N(1000)
		w.Reset(epoch, before)
		var want transcript
		next := before
		for range rng.IntN(200) {
			at := rng.Int64N(2*MaxTime) - MaxTime
			switch {
			case next == 0 || rng.IntN(5) == 0:
				next++
				ls := labels.FromStrings(labels.MetricName, "m", "i", fmt.Sprint(next))
				tenant := fmt.Sprintf("t%d", rng.IntN(2))
				w.Define(tenant, ls)
				_ = want.Define(next, tenant, ls)
			case rng.IntN(10) == 0:
				encoded := make([]byte, rng.IntN(50))
				ref := 1 + uint32(rng.IntN(int(next)))
				w.Histogram(ref, at, encoded)
				_ = want.Histogram(ref, at, encoded)
			case rng.IntN(10) == 0:
				encoded := make([]byte, rng.IntN(50))
				ref := 1 + uint32(rng.IntN(int(next)))
				w.Exemplar(ref, at, encoded)
				_ = want.Exemplar(ref, at, encoded)
			default:
				ref, st, v := 1+uint32(rng.IntN(int(next))), rng.Int64N(3)*at, rng.Uint64()<<(8*rng.IntN(9))
				w.Float(ref, at, st, v)
				_ = want.Float(ref, at, st, v)
			}
		}
		var got transcript
		var r BlobReader
		require.NoError(t, r.Open(w.Finish()))
		require.Equal(t, epoch, r.Epoch)
		require.NoError(t, r.Walk(&got))
		require.Equal(t, want, got)
	}
}

func TestCorruptBlobIsNamed(t *testing.T) {
	var w BlobWriter
	w.Reset(1, 0)
	w.Define("default", labels.FromStrings(labels.MetricName, "up"))
	w.Float(1, 15_000, 0, math.Float64bits(1))
	good := w.Finish()
	for i := range good {
		bad := append([]byte(nil), good...)
		bad[i] ^= 0x40
		var r BlobReader
		require.ErrorIs(t, r.Open(bad), ErrMalformedBlob, "byte %d", i)
	}
	for n := range good {
		var r BlobReader
		require.ErrorIs(t, r.Open(good[:n]), ErrMalformedBlob, "the first %d bytes", n)
	}
}
