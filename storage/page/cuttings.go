package page

import (
	"encoding/binary"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// cutting defines how the values of a kind are cut into fields.
type cutting struct {
	numbers, texts int
	// cut cuts a value into fields, which must be zero before the call. It returns false if the value can't be cut.
	// join appends the value that was cut into these fields; for any other fields it appends arbitrary bytes.
	cut  func(b []byte, f *chunk.Fields) bool
	join func(dst []byte, f *chunk.Fields) []byte
	// sizedBy returns the indices of the numbers head and count from which size computes the usual size of text k in
	// bytes. ok is false if there are no such numbers.
	sizedBy func(k int) (head, count int, ok bool)
	size    func(k int, head, count uint64) int
}

var cuttings = [kindsEnd]cutting{
	Labels: {
		texts: 1 + maxLabels, cut: cutLabels, join: joinLabels,
		sizedBy: func(int) (head, count int, ok bool) { return 0, 0, false },
	},
	Chunks: {
		numbers: chunk.FieldNumbers, texts: chunk.FieldTexts, cut: chunk.CutChunk, join: chunk.AppendCut,
		sizedBy: chunk.TextSizedBy, size: chunk.TextSize,
	},
	Rollups: {
		numbers: rollup.FieldNumbers, texts: rollup.FieldTexts, cut: rollup.CutChunk, join: rollup.AppendCut,
		sizedBy: rollup.TextSizedBy, size: rollup.TextSize,
	},
}

// maxLabels is the max number of labels of an encoded label set that cutLabels splits: into one field with all names,
// each preceded by its length, and one field per label value. The remaining fields are nil.
const maxLabels = 64

func cutLabels(b []byte, f *chunk.Fields) bool {
	if len(b) == 0 || b[0] != format.LabelsVersion {
		return false
	}
	b = b[1:]
	from := len(f.Memory)
	for k := 1; len(b) > 0; k++ {
		_, rest, err := format.CutString(b)
		if err != nil || k > maxLabels {
			return false
		}
		f.Memory = append(f.Memory, b[:len(b)-len(rest)]...)
		if f.Texts[k], b, err = format.CutString(rest); err != nil {
			return false
		}
	}
	f.Texts[0] = f.Memory[from:len(f.Memory):len(f.Memory)]
	return true
}

func joinLabels(dst []byte, f *chunk.Fields) []byte {
	dst = append(dst, format.LabelsVersion)
	names := f.Texts[0]
	for k := 1; len(names) > 0 && k <= maxLabels; k++ {
		_, rest, err := format.CutString(names)
		if err != nil {
			return dst
		}
		dst = append(dst, names[:len(names)-len(rest)]...)
		names = rest
		dst = append(binary.AppendUvarint(dst, uint64(len(f.Texts[k]))), f.Texts[k]...)
	}
	return dst
}
