package storage

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
)

// heldExample is a held value of one sample, from 1000 to 1500, and its blob.
func heldExample() (value []byte, about heldValue) {
	var w blobWriter
	w.Reset(0, 0)
	w.Define("t", labels.FromStrings("__name__", "m", "i", "a"))
	w.Float(1, 1000, 0, 0x3ff0000000000000)
	about = heldValue{minT: 1000, maxT: 1500, reach: 1400, samples: 1}
	return appendHeld(nil, about, w.Finish()), about
}

// FuzzParseHeld parses hostile held rows, and the blobs in them.
func FuzzParseHeld(f *testing.F) {
	value, _ := heldExample()
	f.Add(value)
	f.Fuzz(func(t *testing.T, value []byte) {
		v, err := parseHeld(value)
		if err != nil {
			require.ErrorIs(t, err, errBadHeld)
			return
		}
		require.LessOrEqual(t, v.minT, v.maxT)
		blob, err := v.unpack()
		if err != nil {
			require.ErrorIs(t, err, errBadHeld)
			return
		}
		var r blobReader
		if r.Open(blob) == nil {
			_ = r.Walk(&transcript{}) // It mustn't panic.
		}
	})
}

// TestHeldOfVersion1 reads a row of an older release, which doesn't say how far it reaches.
func TestHeldOfVersion1(t *testing.T) {
	value, about := heldExample()
	now, err := parseHeld(value)
	require.NoError(t, err)
	require.Equal(t, about.reach, now.reach)
	row := []byte{1, 0, 0, 0, 0}
	row = binary.AppendVarint(row, 1000)
	row = binary.AppendUvarint(row, 500)
	row = binary.AppendUvarint(row, 1)
	row = append(row, now.blob...)
	binary.LittleEndian.PutUint32(row[1:], crc32.Checksum(row[heldHeader:], castagnoli))
	v, err := parseHeld(row)
	require.NoError(t, err)
	require.Equal(t, heldValue{minT: 1000, maxT: 1500, reach: 1000, samples: 1, blob: now.blob}, v)
	_, err = v.unpack()
	require.NoError(t, err)
}
