package format

import (
	"encoding/binary"
	"hash/crc32"
)

// castagnoli is the polynomial table of all checksums of the format, which are CRC-32C.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendChecksum appends the CRC-32C of dst[from:], 4 bytes, little-endian.
func appendChecksum(dst []byte, from int) []byte {
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[from:], castagnoli))
}
