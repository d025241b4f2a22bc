package page

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/soak"
)

// TestEveryFlippedByteIsCorrupt checks that a page with any changed byte is rejected.
func TestEveryFlippedByteIsCorrupt(t *testing.T) {
	for _, k := range kinds {
		page := Append(nil, headOf(k), append(usualValues(k, 20, 1), oddValues(t, k, 1)[:20]...))
		for i := range page {
			for _, flip := range []byte{1, 0x80, 0xff} {
				page[i] ^= flip
				_, err := Parse(page)
				require.ErrorIs(t, err, errCorrupt, "byte %d", i)
				page[i] ^= flip
			}
		}
		for n := range page {
			_, err := Parse(page[:n])
			require.ErrorIs(t, err, errCorrupt, "%d bytes", n)
		}
	}
}

// resealed returns b with a correct checksum in its last 4 bytes.
func resealed(b []byte) []byte {
	if len(b) < checksumSize {
		return b
	}
	body := b[: len(b)-checksumSize : len(b)-checksumSize]
	return binary.LittleEndian.AppendUint32(body, crc32.Checksum(body, castagnoli))
}

// requireHarmless parses b and reads all values. Each must be returned, or be an errCorrupt.
func requireHarmless(t testing.TB, b []byte) {
	p, err := Parse(b)
	if err != nil {
		require.ErrorIs(t, err, errCorrupt)
		return
	}
	require.LessOrEqual(t, p.Len(), MaxEntries)
	if at := p.Head().At; at != nil {
		require.Len(t, at, p.Len())
	}
	if p.Head().Kind == Labels {
		NewSelector([]LabelCondition{
			equals("job", "node"), {Name: "pod", Matches: func(v string) bool { return v != "x" }},
		}).AppendEntries(nil, p)
	}
	var value []byte
	for i := range p.Len() {
		if value, err = p.AppendValue(value[:0], i); err != nil {
			require.ErrorIs(t, err, errCorrupt)
			require.Empty(t, value)
			continue
		}
		// Packed texts have up to eight bytes per stored byte, and numbers take up to ten bytes each.
		require.LessOrEqual(t, len(value), 8*len(b)+10*300)
	}
}

// TestDamageUnderAChecksum checks that bytes with a correct checksum never make Parse or AppendValue panic, or return
// many more bytes than they have.
func TestDamageUnderAChecksum(t *testing.T) {
	for _, k := range kinds {
		page := Append(nil, headOf(k), append(usualValues(k, 9, 1), oddValues(t, k, 1)[:9]...))
		for at := range soak.Fewer(len(page)) {
			i := at * len(page) / soak.Fewer(len(page))
			was := page[i]
			for _, with := range []byte{0, 1, was + 1, was - 1, was ^ 0x80, 0x41, 0xff} {
				page[i] = with
				requireHarmless(t, resealed(append([]byte(nil), page...)))
			}
			page[i] = was
		}
		for n := range page {
			requireHarmless(t, resealed(append([]byte(nil), page[:n]...)))
		}
	}
}
