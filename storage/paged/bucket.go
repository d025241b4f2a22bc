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

// prefix returns the first 16 bits of an id.
func prefix(id string) uint16 { return uint16(id[0])<<8 | uint16(id[1]) }

// firstOf returns the first id of the bucket that contains id. It is the bucket's name.
func firstOf(id string, bits int) string {
	return idFrom(prefix(id) &^ (0xffff >> bits))
}

// lastOf returns the last id of the bucket that contains id.
func lastOf(id string, bits int) string {
	p := prefix(id) | 0xffff>>bits
	return string([]byte{byte(p >> 8), byte(p)}) + lastID[2:]
}

// after returns the first id after a bucket. last is the bucket's last id and must not be lastID.
func after(last string) string { return idFrom(prefix(last) + 1) }

func idFrom(p uint16) string { return string([]byte{byte(p >> 8), byte(p)}) + noID[2:] }

// bitsFor returns the number of bits that the ids of a bucket share, so that a bucket contains about most/2 to most
// series. ids are sorted; the density of other ids is assumed to be the same.
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
