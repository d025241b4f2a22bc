package page

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// FuzzParse parses any bytes as a page, unchanged and with a valid checksum, see requireHarmless.
func FuzzParse(f *testing.F) {
	for _, k := range kinds {
		f.Add(Append(nil, headOf(k), usualValues(k, 5, 1)))
		f.Add(Append(nil, headOf(k), usualValues(k, 40, 2)))
		f.Add(Append(nil, headOf(k), oddValues(f, k, 1)[:8]))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		requireHarmless(t, b)
		requireHarmless(t, resealed(bytes.Clone(b)))
	})
}

// FuzzRoundTrip generates values from the input: the first byte is the kind, and then each uvarint is a length,
// followed by this number of bytes.
func FuzzRoundTrip(f *testing.F) {
	for _, k := range kinds {
		for _, values := range [][][]byte{usualValues(k, 3, 1), usualValues(k, 20, 2), oddValues(f, k, 1)[:6]} {
			b := []byte{byte(k)}
			for _, v := range values {
				b = append(binary.AppendUvarint(b, uint64(len(v))), v...)
			}
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 {
			return
		}
		k := Kind(b[0]) % kindsEnd
		var values [][]byte
		for b = b[1:]; len(b) > 0 && len(values) < MaxEntries; {
			n, w := binary.Uvarint(b)
			if w <= 0 {
				break
			}
			b = b[w:]
			n = min(n, uint64(len(b)))
			values = append(values, b[:n:n])
			b = b[n:]
		}
		if len(values) > 0 {
			requireRoundTrip(t, headOf(k), values)
		}
	})
}
