package rollup

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"

	"github.com/cassia-db/cassia/storage/chunk"
)

// The numbers of a chunk of buckets. Pages store them by index, so that any change here takes a new version of pages.
const (
	// FieldWidth, FieldBuckets, FieldMissing and FieldVersion are those of the envelope.
	FieldWidth = iota
	FieldBuckets
	FieldMissing
	FieldVersion
	// FieldFirstEnd is the first end plus 2^63.
	FieldFirstEnd
	// FieldFirst is the varint of the column of first values, as it stands there.
	FieldFirst
	// FieldColumns is the first number of column 0; each column has ColumnNumbers: those of its run, of which the head is
	// columnWhole where it has none, 0 where the column isn't there; and the byte before it, if it has one.
	FieldColumns

	// ColumnNumbers is how many numbers a column has.
	ColumnNumbers = chunk.RunNumbers + 1
	// FieldNumbers is how many numbers a chunk has.
	FieldNumbers = FieldColumns + columnsEnd*ColumnNumbers
	// FieldTexts is how many texts a chunk has. The text k is of column k: what follows the first byte of its run's
	// column, or, without a run, all bytes.
	FieldTexts = columnsEnd
)

// columnWhole is the head of a column that isn't cut: no run has it.
const columnWhole = 255

// prefixed are the columns that begin with a byte, before their run.
const prefixed = 1<<columnFirstST | 1<<columnLastST | 1<<columnFirst | 1<<columnSum | 1<<columnSumLow | 1<<columnCorrection | 1<<columnMoment | 1<<columnStartResets | 1<<columnStartCorrection

// predicted are the columns that hold values instead of a run after a byte byValues.
const predicted = 1<<columnSum | 1<<columnSumLow | 1<<columnCorrection | 1<<columnStartCorrection

// uncut are the columns that hold no run.
const uncut = 1<<columnHistograms | 1<<columnCorrections | 1<<columnHistogramSums | 1<<columnSeconds | 1<<columnSketches | 1<<columnStartCorrections

// TextSizedBy returns the numbers that TextSize needs for text k, by index.
func TextSizedBy(k int) (head, count int, ok bool) {
	return FieldColumns + k*ColumnNumbers + chunk.RunHead, FieldBuckets, true
}

// TextSize returns how many bytes the text k has, besides patches, in a chunk of so many buckets whose run of column k has this
// head; another number where some of the buckets have no samples or no floats.
func TextSize(k int, head, buckets uint64) int {
	n := int(min(buckets, MaxBuckets))
	if k == columnFirst {
		n--
	}
	return chunk.RunSize(head, n)
}

// CutChunk cuts a chunk of buckets into FieldNumbers numbers and FieldTexts texts, which f has and which are zero. It
// returns false where b is none, or has no buckets. It checks neither the checksum, which isn't among the fields, nor the
// columns: whoever cuts makes sure that AppendCut gives b.
func CutChunk(b []byte, f *chunk.Fields) bool {
	var e envelope
	if err := e.parse(b); err != nil || e.Count == 0 {
		return false
	}
	x := f.Numbers
	x[FieldWidth], x[FieldBuckets], x[FieldMissing] = uint64(e.Width), uint64(e.Count), uint64(e.span-e.Count)
	x[FieldVersion], x[FieldFirstEnd] = e.Version, uint64(e.MinEnd/e.Width)+1<<63
	for rest := e.there; rest != 0; rest &= rest - 1 {
		id := bits.TrailingZeros32(rest)
		cutColumn(id, e.column(id), f)
	}
	related(x, true)
	return true
}

// related replaces numbers by what they are other than others lead to expect, or brings them back.
//
//   - The first integer of column last time is stored plus that of first time: nearly the same for all series of an interval,
//     wherever in the bucket their samples lie. So it is where both runs have a first integer.
//   - Of the column of changes the first integer and the base are stored less those of the counts, zigzag. So they are where
//     both runs are of one kind.
func related(x []uint64, cut bool) {
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

// numbersOf returns the numbers of a column: those of its run, and the byte before it.
func numbersOf(id int, x []uint64) []uint64 { return x[FieldColumns+id*ColumnNumbers:][:ColumnNumbers] }

// cutColumn cuts a column that is there.
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
			f.Numbers[FieldFirst], b = first, b[w:]
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

// columnsOf are the columns of a chunk of which each of Columns is made, in the order of its bits. Values are kept as differences from
// others, see the columns; and the numbers of some columns less those of others, see related.
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
	sumColumns | 1<<columnCorrection | 1<<columnResets | 1<<columnFirstT | 1<<columnLastT | 1<<columnFirstST | 1<<columnLastST | 1<<columnStartResets |
		1<<columnStartCorrection,
	extremeColumns | 1<<columnCount | 1<<columnSum | 1<<columnMoment,
	1 << columnSketches,
}

const (
	extremeColumns = 1<<columnFirst | 1<<columnLast | 1<<columnMin | 1<<columnMax
	sumColumns     = extremeColumns | 1<<columnCount | 1<<columnSum | 1<<columnSumLow
	// alwaysColumns are those of which the buckets themselves are made, and those of histograms.
	alwaysColumns = 1<<columnEnds | 1<<columnFlags | 1<<columnHistograms | 1<<columnCorrections | 1<<columnHistogramSums |
		1<<columnSeconds | 1<<columnLayouts | 1<<columnHistogramCounts | 1<<columnStartCorrections
)

// FieldsOf reports which fields AppendCut needs for a chunk that Decode reads with want as it does the whole one, if all others are zero.
func FieldsOf(want Columns) (numbers [FieldNumbers]bool, texts [FieldTexts]bool) {
	columns := uint32(alwaysColumns)
	for i, of := range columnsOf {
		if want&(1<<i) != 0 {
			columns |= of
		}
	}
	for k := range FieldColumns {
		numbers[k] = true
	}
	for id := range columnsEnd {
		if columns&(1<<id) == 0 {
			continue
		}
		texts[id] = true
		for k := range ColumnNumbers {
			numbers[FieldColumns+id*ColumnNumbers+k] = true
		}
	}
	return numbers, texts
}

// columnNoRun is the head of a column of first values that has no run.
const columnNoRun = 254

// AppendCut appends the chunk that CutChunk has cut, with its checksum. Fields that it hasn't made give bytes that may be no
// chunk. It changes the numbers.
func AppendCut(dst []byte, f *chunk.Fields) []byte {
	from := len(dst)
	x := f.Numbers
	related(x, false)
	dst = append(dst, chunkFormat)
	dst = binary.AppendUvarint(dst, x[FieldWidth])
	dst = binary.AppendUvarint(dst, x[FieldBuckets])
	dst = binary.AppendUvarint(dst, x[FieldMissing])
	dst = binary.AppendVarint(dst, int64(x[FieldFirstEnd]-1<<63))
	dst = binary.AppendUvarint(dst, x[FieldVersion])
	var there uint64
	for id := range columnsEnd {
		if numbersOf(id, x)[chunk.RunHead] != 0 {
			there |= 1 << id
		}
	}
	dst = binary.AppendUvarint(dst, there)
	// The lengths of columns, a byte each unless one is long, stand before them.
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
		dst = append(dst, long[1:w]...) // room
		copy(dst[lengths+w:], dst[lengths+1:len(dst)-w+1])
		copy(dst[lengths:], long[:w])
		lengths += w
	}
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[from:], castagnoli))
}

// appendColumn appends a column that is there.
func appendColumn(dst []byte, id int, f *chunk.Fields) []byte {
	x := numbersOf(id, f.Numbers)
	if x[chunk.RunHead] == columnWhole {
		return append(dst, f.Texts[id]...)
	}
	if prefixed&(1<<id) != 0 {
		dst = append(dst, byte(x[chunk.RunNumbers]))
	}
	if id == columnFirst {
		dst = binary.AppendUvarint(dst, f.Numbers[FieldFirst])
		if x[chunk.RunHead] == columnNoRun {
			return dst
		}
	}
	return chunk.AppendRun(dst, x, f.Texts[id])
}
