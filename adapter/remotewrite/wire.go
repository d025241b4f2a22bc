package remotewrite

// Protobuf's wire types.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireGroup   = 3
	wireEnd     = 4
	wireFixed32 = 5
)

// malformedPos is the position that the functions below return for invalid protobuf.
const malformedPos = -1

// readUvarint decodes a varint at b[i:]. As in generated decoders, it may have up to ten bytes, and bits above 64 are
// dropped.
func readUvarint(b []byte, i int) (v uint64, next int) {
	if i < len(b) && b[i] < 0x80 {
		return uint64(b[i]), i + 1
	}
	return readLongUvarint(b, i)
}

// readLongUvarint is readUvarint for varints of more than one byte. It isn't inlined, so that readUvarint is small
// enough to be inlined.
//
//go:noinline
func readLongUvarint(b []byte, i int) (v uint64, next int) {
	if i >= 0 && i+1 < len(b) && b[i+1] < 0x80 {
		return uint64(b[i]&0x7f) | uint64(b[i+1])<<7, i + 2
	}
	for shift := uint(0); shift < 64; shift += 7 {
		if i >= len(b) {
			return 0, malformedPos
		}
		c := b[i]
		i++
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v, i
		}
	}
	return 0, malformedPos
}

// readTag decodes a field's number and wire type at b[i:]. Field numbers have 32 bits, as in generated decoders.
func readTag(b []byte, i int) (number int32, wire int, next int) {
	v, i := readUvarint(b, i)
	if i < 0 {
		return 0, 0, malformedPos
	}
	number, wire = int32(v>>3), int(v&7)
	if number <= 0 || wire == wireEnd {
		return 0, 0, malformedPos
	}
	return number, wire, i
}

// readDelimited decodes a length at b[i:] and returns the bytes that follow it.
func readDelimited(b []byte, i int) (body []byte, next int) {
	n, i := readUvarint(b, i)
	if i < 0 || n > uint64(len(b)-i) {
		return nil, malformedPos
	}
	return b[i : i+int(n)], i + int(n)
}

// readFixed64 decodes eight bytes at b[i:].
func readFixed64(b []byte, i int) (v uint64, next int) {
	if len(b)-i < 8 {
		return 0, malformedPos
	}
	_ = b[i+7]
	return uint64(b[i]) | uint64(b[i+1])<<8 | uint64(b[i+2])<<16 | uint64(b[i+3])<<24 |
		uint64(b[i+4])<<32 | uint64(b[i+5])<<40 | uint64(b[i+6])<<48 | uint64(b[i+7])<<56, i + 8
}

// skipField returns the position after the value of a field at b[i:].
func skipField(b []byte, i, wire int) (next int) {
	depth := 0
	for {
		switch wire {
		case wireVarint:
			_, i = readUvarint(b, i)
		case wireFixed64:
			i += 8
		case wireBytes:
			_, i = readDelimited(b, i)
		case wireFixed32:
			i += 4
		case wireGroup:
			depth++
		case wireEnd:
			depth--
		default:
			return malformedPos
		}
		if i < 0 || i > len(b) || depth < 0 {
			return malformedPos
		}
		if depth == 0 {
			return i
		}
		var v uint64
		if v, i = readUvarint(b, i); i < 0 {
			return malformedPos
		}
		wire = int(v & 7)
	}
}

// appendUvarint appends v as a varint.
func appendUvarint(dst []byte, v uint64) []byte {
	for v >= 0x80 {
		dst = append(dst, byte(v)|0x80)
		v >>= 7
	}
	return append(dst, byte(v))
}

// uvarintLen returns the length of v as a varint.
func uvarintLen(v int) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}
