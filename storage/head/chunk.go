package head

import (
	"encoding/binary"
	"errors"
	"iter"
	"math"
	"math/bits"
	"slices"
	"sync"
	"unsafe"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/format"
)

const (
	// freezeAfter is the number of samples after which a head chunk's tail is encoded as a frozen chunk: enough for the
	// block codec to find patterns, and few enough that tails stay small.
	freezeAfter = 120
	// chunkBytes is the size of an empty head chunk in the head's account, including the pointer to it in its
	// generation.
	chunkBytes = 92
	// maxTailSample is the max size of a sample in a tail in bytes, and maxTail the max size of a tail.
	maxTailSample = 2*binary.MaxVarintLen64 + 9
	maxTail       = freezeAfter * maxTailSample
	// tailUnit is the unit of a tail's capacity. The allocator's size classes from 32 bytes to 4 KiB are multiples of
	// it.
	tailUnit = 16
	// frozenBytes is the size of a frozenChunk without its data, and rareBytes the size of a rareSamples.
	frozenBytes = 48
	rareBytes   = 48
)

// Chunk holds the samples of one series in one generation: frozen chunks, and a tail that is cheap to append to.
// Samples may arrive in any order; frozen chunks are sorted, and may overlap.
//
//	series ── head chunk ── frozen ─► …  chunks of 120 samples each, block codec
//	                 ├─ tail         floats, byte-aligned deltas
//	                 └─ rare ─ hist  native histograms, length-prefixed
//	                        └─ exemplars
//
// The lock of the series' partition guards all fields except ref. There is one head chunk per series and slot, so its
// size matters: it fills an allocator size class of 80 bytes. Timestamps are therefore stored in milliseconds since the
// start of the generation, at most format.MaxSlotMS, and the tail isn't a slice.
type Chunk struct {
	gen *Generation
	// ref is the number of the series in the generation's stream; 0 if it isn't defined yet. Only the committer uses
	// it.
	ref uint32
	// The tail: the number of samples, the capacity in tailUnits, and the bytes.
	n    uint8
	room uint8
	size uint16
	data *byte
	// The state of the tail's encoder: the time, interval, start time and value of the previous sample. An empty tail
	// has zeros, so the first interval is counted from the generation's start.
	t, delta int32
	st       int64
	v        uint64
	// The min and max timestamp. minT > maxT if there are no samples.
	minT, maxT int32

	series *Series
	frozen *frozenChunk // the newest, see eachFrozen; nil if there is none
	rare   *rareSamples // nil if there are none
}

// frozenChunk is a frozen chunk of a head chunk. next is the chunk that was frozen after it; the next of the newest
// chunk is the first one.
type frozenChunk struct {
	minT, maxT int64
	data       []byte
	next       *frozenChunk
}

// eachFrozen yields the frozen chunks in the order in which they were frozen, which usually is sorted by time.
func (s *Chunk) eachFrozen() iter.Seq[*frozenChunk] {
	return func(yield func(*frozenChunk) bool) {
		if s.frozen == nil {
			return
		}
		for f := s.frozen.next; yield(f) && f != s.frozen; f = f.next {
		}
	}
}

// rareSamples holds the kinds of samples that most head chunks don't have.
type rareSamples struct {
	nHist     uint32 // number of samples in hist
	hist      []byte
	exemplars *exemplarTail
}

var errBadTail = errors.New("storage: malformed end of a strand")

func newChunk(gen *Generation, series *Series) *Chunk {
	return &Chunk{gen: gen, series: series, minT: math.MaxInt32, maxT: math.MinInt32}
}

// tail returns the tail, which shares the head chunk's memory.
func (s *Chunk) tail() []byte { return unsafe.Slice(s.data, s.tailRoom())[:s.size] }

// setTail makes b the tail. The head chunk may use its whole capacity.
func (s *Chunk) setTail(b []byte) {
	s.data, s.size, s.room = unsafe.SliceData(b), uint16(len(b)), uint8(min(cap(b)/tailUnit, math.MaxUint8))
}

func (s *Chunk) tailRoom() int { return int(s.room) * tailUnit }

// isEmpty reports whether there are no samples.
func (s *Chunk) isEmpty() bool { return s.minT > s.maxT }

// bounds returns the min and max timestamp. The head chunk must not be empty.
func (s *Chunk) bounds() (minT, maxT int64) {
	return s.gen.start + int64(s.minT), s.gen.start + int64(s.maxT)
}

// ensureRare returns the rare samples of the head chunk and creates them if necessary. It returns by how many bytes the
// head chunk grew.
func (s *Chunk) ensureRare() (rare *rareSamples, grew int) {
	if s.rare == nil {
		s.rare, grew = &rareSamples{}, rareBytes
	}
	return s.rare, grew
}

// hasSamplesIn reports whether the head chunk may have samples in [minT, maxT].
func (s *Chunk) hasSamplesIn(minT, maxT int64) bool {
	first, last := s.bounds()
	return !s.isEmpty() && last >= minT && first <= maxT
}

// exemplars returns the head chunk's exemplars, or nil.
func (s *Chunk) exemplars() *exemplarTail {
	if s.rare == nil {
		return nil
	}
	return s.rare.exemplars
}

// pieces returns the number of frozen chunks and tails in which the samples are stored.
func (s *Chunk) pieces() (n int) {
	for range s.eachFrozen() {
		n++
	}
	if s.n > 0 || s.rare != nil && s.rare.nHist > 0 {
		n++
	}
	return n
}

// Series returns the series of the samples.
func (s *Chunk) Series() *Series { return s.series }

// SlotPartition returns the slot partition of the samples.
func (s *Chunk) SlotPartition() SlotPartition { return s.gen.SlotPartition() }

// Read appends all samples, unsorted. The generation must be closed, or belong to no slot partition.
func (s *Chunk) Read(into *chunk.Samples) error {
	return s.read(-format.MaxTime, format.MaxTime, into)
}

// Exemplars returns the exemplars. The generation must be closed.
func (s *Chunk) Exemplars() []format.Exemplar {
	if x := s.exemplars(); x != nil {
		return x.list
	}
	return nil
}

// EncodedBytes returns an estimated upper bound of the samples' size in a sealed chunk, in bytes.
func (s *Chunk) EncodedBytes() int64 {
	n := int(s.size)
	if s.rare != nil {
		n += len(s.rare.hist)
	}
	for f := range s.eachFrozen() {
		n += len(f.data)
	}
	return int64(n)
}

// bytes returns the size of the head chunk in the head's account.
func (s *Chunk) bytes() int64 {
	n := chunkBytes + s.tailRoom()
	for f := range s.eachFrozen() {
		n += cap(f.data) + frozenBytes
	}
	if r := s.rare; r != nil {
		n += rareBytes + cap(r.hist)
		if r.exemplars != nil {
			n += r.exemplars.bytes
		}
	}
	return int64(n)
}

// appendFloat adds a sample to the tail, which is a sequence of
//
//	+-----------------------------------------+---------------+---------------------------+
//	| uvarint: zigzag(ΔΔt) << 2 | st << 1 | v | varint: Δst   | lead << 4 | n, n bytes    |
//	|                                         | if st is set  | of v xor before, if v set |
//	+-----------------------------------------+---------------+---------------------------+
//
// where lead is the number of zero bytes before the n significant ones. A sample with the same value and the same
// interval as the previous one takes one byte. The first interval is counted from the generation's start. Timestamps
// are within ±maxTime, so that ΔΔt leaves two bits free. It returns by how many bytes the head chunk grew.
func (s *Chunk) appendFloat(t, st int64, v uint64) int {
	before := s.tailRoom()
	at := s.offsetOf(t)
	delta := int64(at) - int64(s.t)
	head := zigzag(delta-int64(s.delta)) << 2
	if st != s.st {
		head |= 2
	}
	x := v ^ s.v
	if x != 0 {
		head |= 1
	}
	tail := s.tail()
	if before-len(tail) < maxTailSample {
		tail = growTail(tail, head, x)
	}
	tail = binary.AppendUvarint(tail, head)
	if st != s.st {
		tail = binary.AppendVarint(tail, st-s.st)
	}
	if x != 0 {
		tail = appendSignificant(tail, x)
	}
	s.setTail(tail)
	if s.n == 0 {
		delta = 0
	}
	s.t, s.delta, s.st, s.v = at, int32(delta), st, v
	s.n++
	s.extendRange(at)
	grew := s.tailRoom() - before
	if s.n >= freezeAfter {
		grew += s.freezeTail()
	}
	return grew
}

// offsetOf converts a timestamp in the slot to milliseconds since the generation's start.
func (s *Chunk) offsetOf(t int64) int32 {
	assertInSlot(t - s.gen.start)
	return int32(t - s.gen.start)
}

// growTail grows a tail for one more sample, by less than append would: there is a tail for every series, and most
// never exceed some dozens of bytes.
func growTail(tail []byte, head, x uint64) []byte {
	n := (bits.Len64(head|1) + 6) / 7
	if head&2 != 0 {
		n += binary.MaxVarintLen64
	}
	if x != 0 {
		n += 9 - bits.LeadingZeros64(x)/8 - bits.TrailingZeros64(x)/8
	}
	before := cap(tail)
	if len(tail)+n <= before {
		return tail
	}
	room := before + tailUnit
	switch {
	case before >= 128: // it will be frozen soon
		room = min(2*before, maxTail)
	case before >= 64:
		room = before + 2*tailUnit
	}
	room = max(room, len(tail)+n)
	return append(slices.Grow([]byte(nil), (room+tailUnit-1)/tailUnit*tailUnit), tail...)
}

// appendHistogram adds a histogram encoded by chunk.AppendHistogramBytes. It returns by how many bytes the head chunk
// grew.
func (s *Chunk) appendHistogram(t int64, encoded []byte) int {
	r, grew := s.ensureRare()
	before := cap(r.hist)
	r.hist = binary.AppendUvarint(r.hist, uint64(len(encoded)))
	r.hist = append(r.hist, encoded...)
	r.nHist++
	s.extendRange(s.offsetOf(t))
	grew += cap(r.hist) - before
	if r.nHist >= freezeAfter {
		grew += s.freezeHistograms()
	}
	return grew
}

func (s *Chunk) extendRange(t int32) { s.minT, s.maxT = min(s.minT, t), max(s.maxT, t) }

// isRepeat reports whether the sample equals the previous one, as when a sender retries durable samples.
func (s *Chunk) isRepeat(t, st int64, v uint64) bool {
	return s.n > 0 && s.gen.start+int64(s.t) == t && s.v == v && s.st == st
}

// freezeTail encodes the tail as a chunk and empties it. It releases the tail's memory: many head chunks are near the
// end of their slot and get no more samples, so without the release, unused tails would take most of the head's memory.
// It returns by how many bytes the head chunk grew, which may be negative.
func (s *Chunk) freezeTail() int {
	f := freezers.Get().(*freezer)
	defer freezers.Put(f)
	f.samples.Reset()
	if err := s.decodeTail(&f.samples); err != nil {
		panic(err) // invariant: appendFloat wrote the tail
	}
	freed := s.tailRoom()
	s.setTail(nil)
	s.n, s.t, s.delta, s.st, s.v = 0, 0, 0, 0, 0
	return s.freeze(f) - freed
}

func (s *Chunk) freezeHistograms() int {
	f := freezers.Get().(*freezer)
	defer freezers.Put(f)
	f.samples.Reset()
	defer f.samples.Reset() // otherwise it would keep the histograms in memory
	if err := s.decodeHistograms(&f.samples); err != nil {
		panic(err) // invariant: appendHistogram wrote hist
	}
	freed := cap(s.rare.hist)
	s.rare.hist, s.rare.nHist = nil, 0
	return s.freeze(f) - freed
}

// freezer holds reusable buffers for freezing.
type freezer struct {
	samples chunk.Samples
	data    []byte
}

var freezers = sync.Pool{New: func() any { return &freezer{} }}

func (s *Chunk) freeze(f *freezer) int {
	f.samples.Normalize()
	minT, maxT := format.TimeBounds(&f.samples)
	f.data = chunk.AppendChunk(f.data[:0], &f.samples)
	data := slices.Clone(f.data) // the copy has no spare capacity
	assertFrozen(data, &f.samples)
	newest := &frozenChunk{minT: minT, maxT: maxT, data: data}
	if newest.next = newest; s.frozen != nil {
		newest.next, s.frozen.next = s.frozen.next, newest
	}
	s.frozen = newest
	return cap(data) + frozenBytes
}

// read appends the head chunk's samples that may be within [minT, maxT], unsorted.
func (s *Chunk) read(minT, maxT int64, into *chunk.Samples) error {
	if !s.hasSamplesIn(minT, maxT) {
		return nil
	}
	for f := range s.eachFrozen() {
		if f.maxT < minT || f.minT > maxT {
			continue
		}
		if err := chunk.Decode(f.data, into); err != nil {
			return err
		}
	}
	if err := s.decodeTail(into); err != nil {
		return err
	}
	return s.decodeHistograms(into)
}

func (s *Chunk) decodeTail(into *chunk.Samples) error {
	t, delta, st, v := s.gen.start, int64(0), int64(0), uint64(0)
	for b, first := s.tail(), true; len(b) > 0; first = false {
		head, n := uint64(b[0]), 1
		if head >= 0x80 {
			if head, n = binary.Uvarint(b); n <= 0 {
				return errBadTail
			}
		}
		b = b[n:]
		delta += unzigzag(head >> 2)
		t += delta
		if head&2 != 0 {
			d, n := binary.Varint(b)
			if n <= 0 {
				return errBadTail
			}
			st, b = st+d, b[n:]
		}
		if head&1 != 0 {
			x, n := decodeSignificant(b)
			if n <= 0 {
				return errBadTail
			}
			v, b = v^x, b[n:]
		}
		into.AppendFloat(t, st, math.Float64frombits(v))
		if first {
			delta = 0
		}
	}
	return nil
}

func (s *Chunk) decodeHistograms(into *chunk.Samples) error {
	if s.rare == nil {
		return nil
	}
	for b := s.rare.hist; len(b) > 0; {
		raw, rest, err := format.CutString(b)
		if err != nil {
			return errBadTail
		}
		h, err := chunk.ParseHistogram(raw)
		if err != nil {
			return err
		}
		into.AppendHistogram(h)
		b = rest
	}
	return nil
}

func zigzag(v int64) uint64   { return uint64(v)<<1 ^ uint64(v>>63) }
func unzigzag(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) }

// appendSignificant appends x, which must not be 0: one byte with the numbers of leading zero bytes and of significant
// bytes, then the significant bytes in big-endian order. Trailing zero bytes are omitted.
func appendSignificant(dst []byte, x uint64) []byte {
	lead := bits.LeadingZeros64(x) / 8
	n := 8 - lead - bits.TrailingZeros64(x)/8
	dst = append(dst, byte(lead<<4|n))
	var buf [8]byte
	binary.BigEndian.PutUint64(buf[:], x<<(8*lead))
	return append(dst, buf[:n]...)
}

// decodeSignificant is the inverse of appendSignificant. n is 0 if b is invalid.
func decodeSignificant(b []byte) (x uint64, n int) {
	if len(b) == 0 {
		return 0, 0
	}
	lead, width := int(b[0]>>4), int(b[0]&15)
	if width == 0 || lead+width > 8 || len(b) < 1+width {
		return 0, 0
	}
	if len(b) >= 9 {
		x = binary.BigEndian.Uint64(b[1:]) >> (64 - 8*width)
	} else {
		for _, c := range b[1 : 1+width] {
			x = x<<8 | uint64(c)
		}
	}
	return x << (8 * (8 - lead - width)), 1 + width
}
