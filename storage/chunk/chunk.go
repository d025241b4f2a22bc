package chunk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// ErrCorrupt means that bytes aren't a chunk or histogram that this package wrote.
var ErrCorrupt = errors.New("chunk: corrupt")

// MaxSamples is the max number of samples in a chunk. It bounds a reader's allocations. Without it, a chunk of a few
// bytes could have any number of samples, for example equal floats.
const MaxSamples = 1 << 20

// chunkVersion is the first byte of a chunk:
//
//	+---------+----------+---------+------------+---------+----------+- - - -+- - - - - - -+--------+
//	| version | contains | floats  | histograms | min t   | max t −  | float | histogram   | crc32c |
//	| 1 byte  | 1 byte   | uvarint | uvarint    | varint  | min t    | blocks| sub-chunks  | 4, LE  |
//	|         |          |         |            |         | uvarint  |       |             |        |
//	+---------+----------+---------+------------+---------+----------+- - - -+- - - - - - -+--------+
//
// floats and histograms are the numbers of samples of each kind. The checksum (Castagnoli) covers all bytes before it.
const chunkVersion = 1

// Bits of a chunk's second byte, which tells what the chunk contains. A bit never gets another meaning.
const (
	containsFloats          = 1 << 0
	containsIntHistograms   = 1 << 1
	containsFloatHistograms = 1 << 2
	containsStarts          = 1 << 3 // start timestamps of floats

	containsAll = 1<<4 - 1
)

const checksumSize = 4

// Info is the content of a chunk's envelope.
type Info struct {
	// MinT and MaxT are the timestamps of the first and the last sample in milliseconds.
	MinT, MaxT int64
	// Count is the number of samples: Floats and Histograms.
	Count, Floats, Histograms int

	contains byte
}

// AppendChunk appends the chunk of s. s must be normalized and have 1 to MaxSamples samples; its histograms must be
// canonical. It panics if s is empty or too long, which is a bug in the caller. Equal samples always result in equal
// bytes.
func AppendChunk(dst []byte, s *Samples) []byte {
	if s.Len() == 0 || s.Len() > MaxSamples {
		panic(fmt.Sprintf("chunk: a chunk of %d samples", s.Len()))
	}
	start := len(dst)
	minT, maxT := s.timeRange()
	dst = append(dst, chunkVersion, contentFlags(s))
	dst = binary.AppendUvarint(dst, uint64(len(s.T)))
	dst = binary.AppendUvarint(dst, uint64(len(s.H)))
	dst = binary.AppendVarint(dst, minT)
	dst = binary.AppendUvarint(dst, uint64(maxT)-uint64(minT))
	if len(s.T) > 0 {
		dst = appendFloats(dst, s, minT)
	}
	if len(s.H) > 0 {
		dst = appendHistograms(dst, s.H)
	}
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func contentFlags(s *Samples) byte {
	var c byte
	if len(s.T) > 0 {
		c |= containsFloats
	}
	if len(s.ST) > 0 {
		c |= containsStarts
	}
	for _, h := range s.H {
		if h.Int != nil {
			c |= containsIntHistograms
		} else {
			c |= containsFloatHistograms
		}
	}
	return c
}

// Header decodes a chunk's envelope. It doesn't verify the checksum; Decode does.
func Header(b []byte) (Info, error) {
	info, _, err := parseHeader(b)
	return info, err
}

// parseHeader decodes a chunk's envelope. body is the bytes between the envelope's header and the checksum.
func parseHeader(b []byte) (info Info, body []byte, err error) {
	if len(b) < 2+checksumSize {
		return Info{}, nil, fmt.Errorf("%w: %d bytes are not a chunk", ErrCorrupt, len(b))
	}
	if b[0] != chunkVersion {
		return Info{}, nil, fmt.Errorf("%w: unknown version %d", ErrCorrupt, b[0])
	}
	info.contains = b[1]
	if info.contains > containsAll {
		return Info{}, nil, fmt.Errorf("%w: unknown content, %#x", ErrCorrupt, info.contains)
	}
	b = b[2 : len(b)-checksumSize]
	floats, b, err := cutUvarint(b, "number of floats")
	if err != nil {
		return Info{}, nil, err
	}
	histograms, b, err := cutUvarint(b, "number of histograms")
	if err != nil {
		return Info{}, nil, err
	}
	if floats > MaxSamples || histograms > MaxSamples || floats+histograms == 0 || floats+histograms > MaxSamples {
		return Info{}, nil, fmt.Errorf("%w: invalid header: %d floats and %d histograms",
			ErrCorrupt, floats, histograms)
	}
	if info.MinT, b, err = cutVarint(b, "first timestamp"); err != nil {
		return Info{}, nil, err
	}
	span, b, err := cutUvarint(b, "time range")
	if err != nil {
		return Info{}, nil, err
	}
	info.MaxT = int64(uint64(info.MinT) + span)
	if info.MaxT < info.MinT || floats+histograms-1 > span {
		return Info{}, nil, fmt.Errorf("%w: invalid time range: %d ms from %d ms", ErrCorrupt, span, info.MinT)
	}
	info.Floats, info.Histograms = int(floats), int(histograms)
	info.Count = info.Floats + info.Histograms
	return info, b, nil
}

// Decode appends the samples of a chunk to into. If into was empty, it is normalized afterwards. Decode doesn't
// allocate memory for floats if into has the capacity. After an error, into is unchanged.
func Decode(b []byte, into *Samples) error {
	info, body, err := parseHeader(b)
	if err != nil {
		return err
	}
	payload, sum := b[:len(b)-checksumSize], b[len(b)-checksumSize:]
	if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(sum) {
		return fmt.Errorf("%w: checksum doesn't match", ErrCorrupt)
	}
	before := *into
	if err := decodeBody(body, &info, into); err != nil {
		*into = before
		return err
	}
	return nil
}

func decodeBody(body []byte, info *Info, into *Samples) (err error) {
	floats, histograms := len(into.T), len(into.H)
	if info.Floats > 0 {
		if body, err = decodeFloats(body, info.Floats, info, into); err != nil {
			return err
		}
	}
	if info.Histograms > 0 {
		if body, err = decodeHistograms(body, info.Histograms, into); err != nil {
			return err
		}
	}
	if len(body) != 0 {
		return fmt.Errorf("%w: %d extra bytes", ErrCorrupt, len(body))
	}
	decoded := Samples{T: into.T[floats:], H: into.H[histograms:]}
	if minT, maxT := decoded.timeRange(); minT != info.MinT || maxT != info.MaxT {
		return fmt.Errorf("%w: the samples are from %d to %d ms, but the header has %d to %d",
			ErrCorrupt, minT, maxT, info.MinT, info.MaxT)
	}
	return nil
}
