package rollup

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
)

func newFields() *chunk.Fields {
	return &chunk.Fields{Numbers: make([]uint64, FieldNumbers), Texts: make([][]byte, FieldTexts)}
}

// TestCutChunk requires that chunks of all kinds of buckets are unchanged after they are cut and joined again.
func TestCutChunk(t *testing.T) {
	for _, n := range []int{1, 24, 300} {
		for _, of := range series(t, n) {
			var b Buckets
			AppendEvery(&b, of.samples, fiveMinutes)
			if b.Len() > MaxBuckets {
				continue
			}
			encoded, f := AppendChunk(nil, &b, fiveMinutes, 3), newFields()
			require.True(t, CutChunk(encoded, f), of.name)
			require.Equal(t, encoded, AppendCut(nil, f), of.name)
		}
	}
	require.False(t, CutChunk(AppendEmpty(nil, 3), newFields()))
	require.False(t, CutChunk(nil, newFields()))
}

// TestCutDamagedChunks requires that cutting damaged bytes doesn't panic.
func TestCutDamagedChunks(t *testing.T) {
	for _, of := range series(t, 24) {
		var b Buckets
		AppendEvery(&b, of.samples, fiveMinutes)
		encoded := AppendChunk(nil, &b, fiveMinutes, 3)
		for i := range min(len(encoded), 100) {
			was := encoded[i]
			for _, with := range []byte{0, 1, was ^ 0x80, was + 1, 0xff} {
				encoded[i] = with
				if f := newFields(); CutChunk(encoded, f) {
					AppendCut(nil, f)
				}
			}
			encoded[i] = was
		}
	}
}

// TestFieldsOf requires that a chunk of only the needed fields gives the same buckets, for each single column and for
// all except one.
func TestFieldsOf(t *testing.T) {
	wants := []Columns{0, rateColumns, ColumnSum | ColumnCount, ColumnCorrection | ColumnChanges, AllColumns}
	for c := Columns(1); c <= AllColumns; c <<= 1 {
		wants = append(wants, c, AllColumns&^c)
	}
	fewer := 0
	eachChunk(t, 30, func(name string, b *Buckets, _ int64, encoded []byte) {
		if b.Len() == 0 {
			return
		}
		for _, want := range wants {
			f := newFields()
			require.True(t, CutChunk(encoded, f), name)
			numbers, texts := FieldsOf(want)
			for k := range numbers {
				if !numbers[k] {
					f.Numbers[k] = 0
				}
			}
			for k := range texts {
				if !texts[k] {
					f.Texts[k] = nil
				}
			}
			part := AppendCut(nil, f)
			if len(part) < len(encoded) {
				fewer++
			}
			var expected, got Buckets
			require.NoError(t, Decode(encoded, want, &expected), name)
			require.NoError(t, Decode(part, want, &got), "%s %b", name, want)
			require.Equal(t, VersionOf(encoded), VersionOf(part))
			require.Equal(t, expected.End, got.End)
			for i := range b.End {
				require.Equal(t, bucketText(&expected, i), bucketText(&got, i), "%s %b", name, want)
			}
		}
	})
	require.Positive(t, fewer)
}
