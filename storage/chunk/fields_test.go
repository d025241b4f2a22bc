package chunk

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func newFields() *Fields {
	return &Fields{Numbers: make([]uint64, FieldNumbers), Texts: make([][]byte, FieldTexts)}
}

// TestCutChunk checks that chunks of up to MaxColumn floats are split and joined without changes, and that other chunks
// aren't split.
func TestCutChunk(t *testing.T) {
	for name, s := range goldenSamples(t) {
		b, f := AppendChunk(nil, s), newFields()
		ok := len(s.H) == 0 && len(s.ST) == 0 && len(s.T) <= MaxColumn
		require.Equal(t, ok, CutChunk(b, f), name)
		if !ok {
			continue
		}
		require.Equal(t, b, AppendCut(nil, f), name)
		for k, text := range f.Texts {
			if head, count, ok := TextSizedBy(k); ok {
				require.LessOrEqual(t, TextSize(k, f.Numbers[head], f.Numbers[count]), len(text),
					"%s: text %d", name, k)
			}
		}
	}
}

// TestScrapeOffsetIsOneNumber checks that the fields of two series that differ only by their scrape offset differ by
// one number.
func TestScrapeOffsetIsOneNumber(t *testing.T) {
	s := shapes()[0].samples(20, 7)
	before, after := newFields(), newFields()
	require.True(t, CutChunk(AppendChunk(nil, s), before))
	for i := range s.T {
		s.T[i] += 1234
	}
	require.True(t, CutChunk(AppendChunk(nil, s), after))
	require.Equal(t, before.Numbers[FieldMinT]+1234, after.Numbers[FieldMinT])
	after.Numbers[FieldMinT] = before.Numbers[FieldMinT]
	require.Equal(t, before, after)
}

// TestCutDamagedChunks checks that damaged bytes don't cause a panic, whether or not they are split.
func TestCutDamagedChunks(t *testing.T) {
	for _, s := range goldenSamples(t) {
		b := AppendChunk(nil, s)
		for i := range min(len(b), 200) {
			was := b[i]
			for _, with := range []byte{0, 1, was ^ 0x80, was + 0x10, 0xff} {
				b[i] = with
				if f := newFields(); CutChunk(b, f) {
					AppendCut(nil, f)
				}
				if f := newFields(); CutChunk(b[:i], f) {
					AppendCut(nil, f)
				}
			}
			b[i] = was
		}
	}
}
