package chunk

import (
	"encoding/binary"
	"hash/crc32"
)

// Fields holds a value, such as a chunk, split into numbers and texts, for packages that store many similar values part
// by part. The function that splits the value defines which numbers and texts there are.
type Fields struct {
	Numbers []uint64
	// Texts are parts of the split value or of Memory.
	Texts [][]byte
	// Memory is the buffer for copies of texts that aren't stored contiguously in the value. The functions that split
	// values append to it.
	Memory []byte
}

// The numbers of a run of integers that was split by CutRun:
//
//	head    0: there is no run; or 1 + the byte of the kind, and the first byte of the column · 256
//	factor  0: there is none
//	first, base  the varints as encoded; 0 if the kind has none
//
// The bytes after the first byte of the column are a text.
const (
	RunHead = iota
	runFactor
	RunFirst
	RunBase

	// RunNumbers is how many numbers CutRun splits off a run.
	RunNumbers
)

// CutRun decodes the header of the run of integers at the start of b into numbers, which must have length RunNumbers.
// It returns the bytes of b after the first byte of the run's column. It doesn't decode the column, so the number of
// integers need not be known. ok is false if b doesn't start with a run.
func CutRun(b []byte, numbers []uint64) (rest []byte, ok bool) { return cutRunHead(b, numbers) }

// cutRunHead splits the start of a run, up to and including the first byte of its column, into numbers. It returns the
// rest of b.
func cutRunHead(b []byte, numbers []uint64) (rest []byte, ok bool) {
	if len(b) == 0 {
		return nil, false
	}
	kind, w := b[0], 0
	b = b[1:]
	take := func(into int) bool {
		numbers[into], w = binary.Uvarint(b)
		if w > 0 {
			b = b[w:]
		}
		return w > 0
	}
	plain := kind &^ intsFactor
	switch {
	case plain > intsDod,
		kind&intsFactor != 0 && !take(runFactor),
		plain != intsPlain && !take(RunFirst),
		plain != intsConstant && !take(RunBase):
		return nil, false
	}
	numbers[RunHead] = uint64(kind) + 1
	if plain >= intsPlain {
		if len(b) == 0 || int(b[0]&15) >= len(widthBits) {
			return nil, false
		}
		numbers[RunHead] |= uint64(b[0]) << 8
		b = b[1:]
	}
	return b, true
}

// RunHasFirst reports whether the encoding of a run with this head contains its first integer.
func RunHasFirst(head uint64) bool {
	kind := byte(head-1) &^ intsFactor
	return head != 0 && kind <= intsDod && kind != intsPlain
}

// RunSize returns the size in bytes of the low bits in the column of a run. The run has n integers and this head.
func RunSize(head uint64, n int) int {
	skip := 0 // integers that the column doesn't contain
	switch (head - 1) & 0x7f {
	case intsPlain:
	case intsDelta:
		skip = 1
	case intsDod:
		skip = 2
	default:
		return 0
	}
	if width := head >> 8 & 15; n > skip && width < uint64(len(widthBits)) {
		return ((n-skip)*widthBits[width] + 7) / 8
	}
	return 0
}

// AppendRun is the inverse of CutRun: it appends the run with these numbers and this column. It appends nothing if the
// head is 0.
func AppendRun(dst []byte, numbers []uint64, column []byte) []byte {
	head := numbers[RunHead]
	if head == 0 {
		return dst
	}
	kind := byte(head - 1)
	plain := kind &^ intsFactor
	dst = append(dst, kind)
	if kind&intsFactor != 0 {
		dst = binary.AppendUvarint(dst, numbers[runFactor])
	}
	if plain != intsPlain {
		dst = binary.AppendUvarint(dst, numbers[RunFirst])
	}
	if plain != intsConstant {
		dst = binary.AppendUvarint(dst, numbers[RunBase])
	}
	if plain >= intsPlain {
		dst = append(dst, byte(head>>8))
	}
	return append(dst, column...)
}

// Indexes of the numbers of a chunk. Pages store the numbers in this order, so any change here requires a new version
// of the page format.
const (
	// FieldFloats is the number of samples.
	FieldFloats = iota
	// FieldMinT is the first timestamp plus 2^63.
	FieldMinT
	// FieldRange is the last timestamp minus the first. If the timestamps are regular, the range computed from the run
	// is subtracted, modulo 2^64.
	FieldRange
	// fieldForm is the byte of the values' form.
	fieldForm
	// FieldTimes is the index of the first number for the run of timestamps. The run takes RunNumbers + 1 numbers: the
	// numbers of CutRun, then the number of patches.
	FieldTimes
	// fieldValues is the index of the first number for the run of values, which takes as many numbers as the run of
	// timestamps.
	fieldValues = FieldTimes + RunNumbers + 1

	// FieldNumbers is how many integers in Fields.Numbers of a chunk a chunk has.
	FieldNumbers = fieldValues + RunNumbers + 1
)

// Indexes of the texts of a chunk. Pages store the texts in this order, so any change here requires a new version of
// the page format.
const (
	// textTimes is the index of the first of three texts for the run of timestamps: the low bits of its column, the
	// gaps between patches, and the patches.
	textTimes = iota
	// textValues is the index of the first of the same three texts for the run of values.
	textValues = iota + 2
	// textExceptions are the exceptions among the values: their number, gaps and bits.
	textExceptions = iota + 4
	// textTail is the rest after the run of values.
	textTail

	// FieldTexts is how many texts a chunk has.
	FieldTexts
)

// TextSizedBy returns the indexes of the numbers that TextSize needs for text k. ok is false if the text may have any
// size.
func TextSizedBy(k int) (head, count int, ok bool) {
	run := FieldTimes
	if k >= textValues {
		run = fieldValues
	}
	switch {
	case k >= textExceptions:
		return 0, 0, false
	case k == textTimes || k == textValues:
		return run + RunHead, FieldFloats, true
	default:
		return run + RunHead, run + RunNumbers, true
	}
}

// TextSize returns the size of text k in bytes. If text k has gaps, it returns the min size.
func TextSize(k int, head, count uint64) int {
	n := int(min(count, MaxColumn))
	switch k {
	case textTimes, textValues:
		return RunSize(head, n)
	case textTimes + 2, textValues + 2:
		return n * int(head>>12&15)
	default:
		return n
	}
}

// CutChunk splits a chunk of 1 to MaxColumn floats, without histograms and start timestamps, into FieldNumbers numbers
// and FieldTexts texts. The slices of f must have these lengths and contain only zero values. It returns false if b
// isn't such a chunk. It verifies neither the samples nor the checksum, which isn't among the fields: the caller must
// verify that AppendCut returns b.
func CutChunk(b []byte, f *Fields) bool {
	info, body, err := parseHeader(b)
	if err != nil || info.contains != containsFloats || info.Histograms > 0 || info.Floats > blockSamples {
		return false
	}
	x, n, ok := f.Numbers, info.Floats, false
	x[FieldFloats], x[FieldMinT] = uint64(n), uint64(info.MinT)+1<<63
	times := x[FieldTimes:fieldValues]
	if body, ok = cutPatchedRun(body, n, times, f.Texts[textTimes:]); !ok || len(body) == 0 {
		return false
	}
	x[FieldRange] = uint64(info.MaxT) - uint64(info.MinT) - regularRange(times[RunHead], times[RunBase], n)
	x[fieldForm] = uint64(body[0])
	body = body[1:]
	if x[fieldForm]&formExceptions != 0 {
		exceptions, rest, err := cutExceptions(body, n)
		if err != nil {
			return false
		}
		f.Texts[textExceptions], body = exceptions, rest
	}
	if body, ok = cutPatchedRun(body, n, x[fieldValues:], f.Texts[textValues:]); !ok {
		return false
	}
	f.Texts[textTail] = body
	return true
}

// cutPatchedRun splits the run of n integers at the start of b, including its patches, and returns the rest of b.
func cutPatchedRun(b []byte, n int, numbers []uint64, texts [][]byte) (rest []byte, ok bool) {
	if b, ok = cutRunHead(b, numbers); !ok {
		return nil, false
	}
	size := RunSize(numbers[RunHead], n)
	if size > len(b) {
		return nil, false
	}
	texts[0], b = b[:size], b[size:]
	patchWidth := int(numbers[RunHead] >> 12)
	if patchWidth == 0 {
		return b, true
	}
	k, w := binary.Uvarint(b)
	if w <= 0 || k >= uint64(n) {
		return nil, false
	}
	patches := int(k) + 1
	numbers[RunNumbers], b = uint64(patches), b[w:]
	highs, err := skipGaps(b, patches, n)
	if err != nil || patches*patchWidth > len(highs) {
		return nil, false
	}
	texts[1] = b[:len(b)-len(highs)]
	texts[2] = highs[:patches*patchWidth]
	return highs[patches*patchWidth:], true
}

// appendPatchedRun is the inverse of cutPatchedRun.
func appendPatchedRun(dst []byte, numbers []uint64, texts [][]byte) []byte {
	dst = AppendRun(dst, numbers, texts[0])
	if patches := numbers[RunNumbers]; patches > 0 {
		dst = binary.AppendUvarint(dst, patches-1)
		dst = append(append(dst, texts[1]...), texts[2]...)
	}
	return dst
}

// regularRange returns the last timestamp minus the first of n timestamps if their run is regular, otherwise 0.
func regularRange(head, base uint64, n int) uint64 {
	if head != 1+intsRegular {
		return 0
	}
	return uint64(unzigzag(base)) * uint64(n-1)
}

// CutTimes returns the timestamps of the first and the last sample of a chunk that was split by CutChunk. at(k) returns
// number k of the chunk. The result is undefined if the numbers aren't from CutChunk.
func CutTimes(at func(k int) uint64) (minT, maxT int64) {
	first := at(FieldMinT) - 1<<63
	span := at(FieldRange) + regularRange(at(FieldTimes+RunHead), at(FieldTimes+RunBase), int(at(FieldFloats)))
	return int64(first), int64(first + span)
}

// AppendCut is the inverse of CutChunk: it appends the chunk, including its checksum. If f isn't from CutChunk, the
// appended bytes may not be a chunk.
func AppendCut(dst []byte, f *Fields) []byte {
	from := len(dst)
	x := f.Numbers
	times := x[FieldTimes:fieldValues]
	dst = append(dst, chunkVersion, containsFloats)
	dst = binary.AppendUvarint(dst, x[FieldFloats])
	dst = append(dst, 0) // histograms
	dst = binary.AppendVarint(dst, int64(x[FieldMinT]-1<<63))
	dst = binary.AppendUvarint(dst, x[FieldRange]+regularRange(times[RunHead], times[RunBase], int(x[FieldFloats])))
	dst = appendPatchedRun(dst, times, f.Texts[textTimes:])
	dst = append(dst, byte(x[fieldForm]))
	dst = append(dst, f.Texts[textExceptions]...)
	dst = appendPatchedRun(dst, x[fieldValues:], f.Texts[textValues:])
	dst = append(dst, f.Texts[textTail]...)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[from:], castagnoli))
}
