package rollup

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"

	"github.com/cassia-db/cassia/storage/chunk"
)

// The indices of the numbers of a chunk of buckets. Pages store them, so a change here requires a new version of pages.
const (
	// fieldWidth, fieldBuckets, fieldMissing and fieldVersion are the numbers of the envelope.
	fieldWidth = iota
	fieldBuckets
	fieldMissing
	fieldVersion
	// fieldFirstEnd is the first end plus 2^63.
	fieldFirstEnd
	// fieldFirst is the varint of the column of first values, unmodified.
	fieldFirst
	// fieldColumns is the index of the first number of column 0. Each column has columnNumbers numbers: the numbers of
	// its run, and the byte before the run if the column has one. The head of the run is columnWhole for a column
	// without a run, and 0 for an absent column.
	fieldColumns

	// columnNumbers is the number of numbers per column.
	columnNumbers = chunk.RunNumbers + 1
	// FieldNumbers is the number of numbers per chunk.
	FieldNumbers = fieldColumns + columnsEnd*columnNumbers
	// FieldTexts is the number of texts per chunk. Text k belongs to column k: its bytes after the head of its run or,
	// without a run, all its bytes.
	FieldTexts = columnsEnd
)

// columnWhole is the head of a column that isn't cut. No run has this head.
const columnWhole = 255

// prefixed are the columns that have a byte before their run.
const prefixed = 1<<columnFirstST | 1<<columnLastST | 1<<columnFirst | 1<<columnSum | 1<<columnSumLow |
	1<<columnCorrection | 1<<columnMoment | 1<<columnStartResets | 1<<columnStartCorrection |
	1<<columnComoment | 1<<columnTimes

// predicted are the columns that contain values instead of a run if their first byte is byValues.
const predicted = 1<<columnSum | 1<<columnSumLow | 1<<columnCorrection | 1<<columnStartCorrection

// uncut are the columns without a run.
const uncut = 1<<columnHistograms | 1<<columnCorrections | 1<<columnHistogramSums | 1<<columnSeconds |
	1<<columnSketches | 1<<columnStartCorrections

// TextSizedBy returns the indices of the numbers that TextSize needs for text k.
func TextSizedBy(k int) (head, count int, ok bool) {
	return fieldColumns + k*columnNumbers + chunk.RunHead, fieldBuckets, true
}

// TextSize returns the size of text k in bytes without patches, in a chunk with this number of buckets whose run of
// column k has this head. The result is wrong if some of the buckets have no samples or no floats.
func TextSize(k int, head, buckets uint64) int {
	n := int(min(buckets, MaxBuckets))
	if k == columnFirst {
		n--
	}
	return chunk.RunSize(head, n)
}

// CutChunk cuts a chunk of buckets into the FieldNumbers numbers and FieldTexts texts of f, which must be zero. It
// returns false if b isn't a chunk or has no buckets. It verifies neither the columns nor the checksum, which isn't
// among the fields: the caller must verify that AppendCut returns b.
func CutChunk(b []byte, f *chunk.Fields) bool {
	var e envelope
	if err := e.parse(b); err != nil || e.Count == 0 {
		return false
	}
	x := f.Numbers
	x[fieldWidth], x[fieldBuckets], x[fieldMissing] = uint64(e.Width), uint64(e.Count), uint64(e.span-e.Count)
	x[fieldVersion], x[fieldFirstEnd] = e.Version, uint64(e.MinEnd/e.Width)+1<<63
	for rest := e.there; rest != 0; rest &= rest - 1 {
		id := bits.TrailingZeros32(rest)
		cutColumn(id, e.column(id), f)
	}
	relateNumbers(x, true)
	return true
}

// relateNumbers replaces numbers by their difference to a prediction from other numbers, or restores them if cut is
// false.
//
//   - The first integer of column last time is stored plus the first integer of column first time. The sum is nearly equal
//     for all series with one interval, wherever in the bucket their samples are. This applies if both runs have a first
//     integer.
//   - The first integer and the base of the column of changes are stored minus the first integer and the base of the
//     column of counts, zigzag-encoded. This applies if both runs are of the same kind.
func relateNumbers(x []uint64, cut bool) {
	first, last := numbersOf(columnFirstT, x), numbersOf(columnLastT, x)
	if chunk.RunHasFirst(first[chunk.RunHead]) && chunk.RunHasFirst(last[chunk.RunHead]) {
		if cut {
			last[chunk.RunFirst] += first[chunk.RunFirst]
		} else {
			last[chunk.RunFirst] -= first[chunk.RunFirst]
		}
	}
	count, changes := numbersOf(columnCount, x), numbersOf(columnChanges, x)
	if byte(count[chunk.RunHead]) != byte(changes[chunk.RunHead]) {
		return
	}
	for _, k := range []int{chunk.RunFirst, chunk.RunBase} {
		if cut {
			changes[k] = chunk.Zigzag(int64(changes[k] - count[k]))
		} else {
			changes[k] = count[k] + (changes[k]>>1 ^ -(changes[k] & 1))
		}
	}
}

// numbersOf returns the numbers of a column: the numbers of its run, and the byte before it.
func numbersOf(id int, x []uint64) []uint64 { return x[fieldColumns+id*columnNumbers:][:columnNumbers] }

// cutColumn cuts a column that is stored.
func cutColumn(id int, b []byte, f *chunk.Fields) {
	x := numbersOf(id, f.Numbers)
	all := b
	if prefixed&(1<<id) != 0 {
		x[chunk.RunNumbers] = uint64(b[0])
		b = b[1:]
	}
	ok := uncut&(1<<id) == 0 && (predicted&(1<<id) == 0 || all[0] != byValues)
	if id == columnFirst {
		first, w := binary.Uvarint(b)
		if ok = w > 0; ok {
			f.Numbers[fieldFirst], b = first, b[w:]
		}
	}
	if id == columnFirst && ok && len(b) == 0 {
		x[chunk.RunHead] = columnNoRun
		return
	}
	if ok {
		f.Texts[id], ok = chunk.CutRun(b, x)
	}
	if !ok {
		clear(x)
		x[chunk.RunHead], f.Texts[id] = columnWhole, all
	}
}

// columnsOf are the stored columns from which each of Columns is decoded, in the order of its bits. Some values are
// stored as differences to values of other columns (see the columns), and some numbers as differences to numbers of
// other columns (see relateNumbers).
var columnsOf = [...]uint32{
	1 << columnCount,
	1<<columnFirstT | 1<<columnFirst | 1<<columnLast,
	1<<columnFirstT | 1<<columnLastT | 1<<columnFirst | 1<<columnLast,
	extremeColumns,
	extremeColumns,
	sumColumns,
	sumColumns | 1<<columnCorrection | 1<<columnResets,
	1 << columnResets,
	1<<columnCount | 1<<columnChanges,
	sumColumns | 1<<columnCorrection | 1<<columnResets | 1<<columnFirstT | 1<<columnLastT | 1<<columnFirstST |
		1<<columnLastST | 1<<columnStartResets |
		1<<columnStartCorrection,
	extremeColumns | 1<<columnCount | 1<<columnSum | 1<<columnMoment,
	1 << columnSketches,
	extremeColumns | 1<<columnFirstT | 1<<columnLastT | 1<<columnCount | 1<<columnComoment | 1<<columnTimes,
}

const (
	extremeColumns = 1<<columnFirst | 1<<columnLast | 1<<columnMin | 1<<columnMax
	sumColumns     = extremeColumns | 1<<columnCount | 1<<columnSum | 1<<columnSumLow
	// alwaysColumns are the columns of the buckets themselves and of histograms.
	alwaysColumns = 1<<columnEnds | 1<<columnFlags | 1<<columnHistograms | 1<<columnCorrections |
		1<<columnHistogramSums |
		1<<columnSeconds | 1<<columnLayouts | 1<<columnHistogramCounts | 1<<columnStartCorrections
)

// FieldsOf reports which fields AppendCut needs, so that Decode with want reads the same from its result as from the
// original chunk. All other fields may be zero.
func FieldsOf(want Columns) (numbers [FieldNumbers]bool, texts [FieldTexts]bool) {
	columns := uint32(alwaysColumns)
	for i, of := range columnsOf {
		if want&(1<<i) != 0 {
			columns |= of
		}
	}
	for k := range fieldColumns {
		numbers[k] = true
	}
	for id := range columnsEnd {
		if columns&(1<<id) == 0 {
			continue
		}
		texts[id] = true
		for k := range columnNumbers {
			numbers[fieldColumns+id*columnNumbers+k] = true
		}
	}
	return numbers, texts
}

// columnNoRun is the head of a column of first values without a run.
const columnNoRun = 254

// AppendCut appends the chunk that CutChunk has cut, with its checksum. It modifies f.Numbers. For fields that don't
// come from CutChunk, the result may not be a valid chunk.
func AppendCut(dst []byte, f *chunk.Fields) []byte {
	from := len(dst)
	x := f.Numbers
	relateNumbers(x, false)
	dst = append(dst, chunkFormat)
	dst = binary.AppendUvarint(dst, x[fieldWidth])
	dst = binary.AppendUvarint(dst, x[fieldBuckets])
	dst = binary.AppendUvarint(dst, x[fieldMissing])
	dst = binary.AppendVarint(dst, int64(x[fieldFirstEnd]-1<<63))
	dst = binary.AppendUvarint(dst, x[fieldVersion])
	var there uint64
	for id := range columnsEnd {
		if numbersOf(id, x)[chunk.RunHead] != 0 {
			there |= 1 << id
		}
	}
	dst = binary.AppendUvarint(dst, there)
	// The sizes of all columns precede the columns, with one byte each unless a size is 128 or more.
	lengths := len(dst)
	for range bits.OnesCount64(there) {
		dst = append(dst, 0)
	}
	for rest := there; rest != 0; rest &= rest - 1 {
		begin := len(dst)
		dst = appendColumn(dst, bits.TrailingZeros64(rest), f)
		size := uint64(len(dst) - begin)
		if size < 0x80 {
			dst[lengths] = byte(size)
			lengths++
			continue
		}
		var long [binary.MaxVarintLen64]byte
		w := binary.PutUvarint(long[:], size)
		dst = append(dst, long[1:w]...) // room for the longer size
		copy(dst[lengths+w:], dst[lengths+1:len(dst)-w+1])
		copy(dst[lengths:], long[:w])
		lengths += w
	}
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[from:], castagnoli))
}

// appendColumn appends a column that is stored.
func appendColumn(dst []byte, id int, f *chunk.Fields) []byte {
	x := numbersOf(id, f.Numbers)
	if x[chunk.RunHead] == columnWhole {
		return append(dst, f.Texts[id]...)
	}
	if prefixed&(1<<id) != 0 {
		dst = append(dst, byte(x[chunk.RunNumbers]))
	}
	if id == columnFirst {
		dst = binary.AppendUvarint(dst, f.Numbers[fieldFirst])
		if x[chunk.RunHead] == columnNoRun {
			return dst
		}
	}
	return chunk.AppendRun(dst, x, f.Texts[id])
}
