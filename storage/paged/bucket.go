package paged

import (
	"encoding/binary"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
)

// maxBits is the max number of bits that the ids of a bucket share.
const maxBits = 16

var (
	noID   = string(make([]byte, engine.IDLen)) // the smallest id
	lastID = strings.Repeat("\xff", engine.IDLen)
)

// idPrefix returns the first 16 bits of an id.
func idPrefix(id string) uint16 { return uint16(id[0])<<8 | uint16(id[1]) }

// bucketFirst returns the first id of the bucket that contains id. It is the bucket's name.
func bucketFirst(id string, bits int) string {
	return idOfPrefix(idPrefix(id) &^ (0xffff >> bits))
}

// bucketLast returns the last id of the bucket that contains id.
func bucketLast(id string, bits int) string {
	p := idPrefix(id) | 0xffff>>bits
	return string([]byte{byte(p >> 8), byte(p)}) + lastID[2:]
}

// nextBucketFirst returns the first id after a bucket. last is the bucket's last id and must not be lastID.
func nextBucketFirst(last string) string { return idOfPrefix(idPrefix(last) + 1) }

func idOfPrefix(p uint16) string { return string([]byte{byte(p >> 8), byte(p)}) + noID[2:] }

// bitsFor returns the number of bits that the ids of a bucket share, so that a bucket contains about most/2 to most
// series. ids must be sorted. bitsFor assumes that the metric has the same density of series outside the range of ids.
func bitsFor(ids []string, most int) (bits int) {
	if len(ids) < 2 {
		return 0
	}
	at := func(id string) float64 { return float64(binary.BigEndian.Uint64([]byte(id))) }
	span := max(at(ids[len(ids)-1])-at(ids[0]), 1)
	for all := float64(len(ids)-1) / span * (1 << 64); all > float64(most) && bits < maxBits; all /= 2 {
		bits++
	}
	return bits
}
