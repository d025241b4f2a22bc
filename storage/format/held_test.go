package format

import (
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
)

// heldExample returns the value of a held row with one sample, and its fields without Blob.
func heldExample() (value []byte, about HeldValue) {
	var w BlobWriter
	w.Reset(0, 0)
	w.Define("t", labels.FromStrings("__name__", "m", "i", "a"))
	w.Float(1, 1000, 0, 0x3ff0000000000000)
	about = HeldValue{MinT: 1000, MaxT: 1500, Reach: 1400, Samples: 1}
	return AppendHeld(nil, about, w.Finish()), about
}

// FuzzParseHeld parses arbitrary held rows, and the blobs in them. Invalid ones must return errors and not panic.
func FuzzParseHeld(f *testing.F) {
	value, _ := heldExample()
	f.Add(value)
	f.Fuzz(func(t *testing.T, value []byte) {
		v, err := ParseHeld(value)
		if err != nil {
			require.ErrorIs(t, err, ErrMalformedHeld)
			return
		}
		require.LessOrEqual(t, v.MinT, v.MaxT)
		blob, err := v.Unpack()
		if err != nil {
			require.ErrorIs(t, err, ErrMalformedHeld)
			return
		}
		var r BlobReader
		if r.Open(blob) == nil {
			_ = r.Walk(&transcript{}) // It must not panic.
		}
	})
}
