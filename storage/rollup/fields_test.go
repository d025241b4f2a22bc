package rollup

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
)

func newFields() *chunk.Fields {
	return &chunk.Fields{Numbers: make([]uint64, FieldNumbers), Texts: make([][]byte, FieldTexts)}
}

// TestCutChunk holds that chunks of buckets of all sorts are cut and put together again.
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

// TestCutDamagedChunks holds that damaged bytes are cut or not, without a panic.
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
