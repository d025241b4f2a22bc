package kairosdb

import (
	"encoding/hex"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// hexKey joins texts and hexadecimal parts, which start with 0x.
func hexKey(t testing.TB, parts ...string) []byte {
	t.Helper()
	var key []byte
	for _, p := range parts {
		if digits, ok := strings.CutPrefix(p, "0x"); ok {
			b, err := hex.DecodeString(digits)
			require.NoError(t, err)
			key = append(key, b...)
			continue
		}
		key = append(key, p...)
	}
	return key
}

// rowTime is 2026-11-12T00:00:00Z, a multiple of three weeks, and rowTimeHex its encoding in keys.
const (
	rowTime    = 1794441600000
	rowTimeHex = "0x000001a1cd0ddc00"
)

func TestKeys(t *testing.T) {
	for name, c := range map[string]struct {
		row Row
		key []byte
	}{
		"long": {
			Row{Metric: "cpu.usage", TimeMS: rowTime, Type: typeLong, Tags: map[string]string{"host": "a", "dc": "x"}},
			hexKey(t, "cpu.usage", "0x00", rowTimeHex, "0x000b", "kairos_long", "dc=x:host=a:"),
		},
		"escapes": {
			Row{Metric: "m", TimeMS: rowTime, Type: typeDouble, Tags: map[string]string{"a:b=c": "d:e=f"}},
			hexKey(t, "m", "0x00", rowTimeHex, "0x000d", "kairos_double", "a::b:=c=d=:e==f:"),
		},
		"legacy": {
			Row{Metric: "m", TimeMS: rowTime, Type: typeLegacy, Tags: map[string]string{"host": "a"}},
			hexKey(t, "m", "0x00", rowTimeHex, "host=a:"),
		},
		"before 1970": {
			Row{Metric: "m", TimeMS: -2, Type: typeLong, Tags: map[string]string{"host": "ü"}},
			hexKey(t, "m", "0x00fffffffffffffffe", "0x000b", "kairos_long", "host=ü:"),
		},
		"a type of a plug-in's": {
			Row{Metric: "m", TimeMS: 0, Type: "x", Tags: map[string]string{"host": ""}},
			hexKey(t, "m", "0x000000000000000000", "0x0001", "x", "host=:"),
		},
		// Java sorts by UTF-16 code units: the surrogates of U+1F600 start at d800, which is less than U+FF5E.
		"order of names": {
			Row{Metric: "m", TimeMS: 0, Type: "x", Tags: map[string]string{"\uff5e": "1", "\U0001f600": "2"}},
			hexKey(t, "m", "0x000000000000000000", "0x0001", "x", "\U0001f600=2:\uff5e=1:"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.key, appendKey(nil, &c.row, false))
			got, err := parseKey(c.key)
			require.NoError(t, err)
			c.row.Key = c.key
			require.Equal(t, c.row, got)
		})
	}
	plain := appendKey(nil, &Row{Metric: "m", Type: "x", Tags: map[string]string{"a": "d:e=f"}}, true)
	require.Equal(t, hexKey(t, "m", "0x000000000000000000", "0x0001", "x", "a=d:e=f:"), plain)
}

func TestCorruptKeys(t *testing.T) {
	for name, key := range map[string][]byte{
		"nothing":             {},
		"no metric":           hexKey(t, "0x00", rowTimeHex, "a=b:"),
		"no time":             hexKey(t, "m", "0x0000000000000000"),
		"no end of metric":    []byte("metric"),
		"type without length": hexKey(t, "m", "0x00", rowTimeHex, "0x00"),
		"type cut off":        hexKey(t, "m", "0x00", rowTimeHex, "0x0005", "abcd"),
		"negative length":     hexKey(t, "m", "0x00", rowTimeHex, "0x0080", strings.Repeat("a", 200)),
		"tag without value":   hexKey(t, "m", "0x00", rowTimeHex, "a"),
		"value without end":   hexKey(t, "m", "0x00", rowTimeHex, "a=b"),
		"escape at the end":   hexKey(t, "m", "0x00", rowTimeHex, "a=b="),
		"no UTF-8":            hexKey(t, "m", "0x00", rowTimeHex, "a=", "0xff", ":"),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseKey(key)
			require.ErrorIs(t, err, ErrCorrupt)
		})
	}
}

// TestPlainKeys checks that keys without escapes, which releases before 1.3 wrote, are read, unless the same key with
// escapes belongs to another series.
func TestPlainKeys(t *testing.T) {
	with := func(value string) Row {
		return Row{Metric: "m", TimeMS: rowTime, Type: typeLong, Tags: map[string]string{"url": value}}
	}
	for value, ok := range map[string]bool{
		"http://x": true,
		"a=b":      true, // as an escaped key it would be parsed as "ab", whose key is different
		"x=:y":     false,
		"x==y":     false,
	} {
		plain, got := withPlainKey(with(value))
		require.Equal(t, ok, got, value)
		other, err := parseKey(plain.Key)
		require.Equal(t, !ok, err == nil && string(appendKey(nil, &other, false)) == string(plain.Key), value)
	}
	require.True(t, hasEscapes(map[string]string{"a": "b", "c:": "d"}))
	require.False(t, hasEscapes(map[string]string{"a": "b"}))
}

func TestTimeOfKey(t *testing.T) {
	at, ok := timeOfKey("m", hexKey(t, "m", "0x00", rowTimeHex, "a=b:"))
	require.True(t, ok)
	require.EqualValues(t, rowTime, at)
	_, ok = timeOfKey("m", hexKey(t, "mm", "0x00", rowTimeHex))
	require.False(t, ok)
	_, ok = timeOfKey("m", []byte("m\x00short"))
	require.False(t, ok)
}

// FuzzKey checks that each valid key, when it is parsed and encoded again, results in the same bytes.
func FuzzKey(f *testing.F) {
	f.Add(hexKey(f, "cpu.usage", "0x00", rowTimeHex, "0x000b", "kairos_long", "dc=x:host=a:"))
	f.Add(hexKey(f, "m", "0x00", rowTimeHex, "0x000d", "kairos_double", "a::b:=c=d=:e==f:"))
	f.Add(hexKey(f, "m", "0x00", rowTimeHex, "host=a:"))
	f.Add(hexKey(f, "m", "0x00fffffffffffffffe", "0x0000", "host=a:"))
	f.Fuzz(func(t *testing.T, key []byte) {
		r, err := parseKey(key)
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			return
		}
		at, ok := timeOfKey(r.Metric, key)
		require.True(t, ok)
		require.Equal(t, r.TimeMS, at)
		for name := range r.Tags {
			if strings.HasPrefix(name, "\x00") {
				return // a type also starts with a 0
			}
		}
		again, err := parseKey(appendKey(nil, &r, false))
		require.NoError(t, err)
		require.Equal(t, r.Metric, again.Metric)
		require.Equal(t, r.TimeMS, again.TimeMS)
		require.Equal(t, r.Type, again.Type)
		require.True(t, maps.Equal(r.Tags, again.Tags))
	})
}
