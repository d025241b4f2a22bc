package pebble

import (
	"bytes"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// anyField is a table with fields of all kinds in its partition and clustering keys.
var anyField = &engine.Table{ID: 200, Name: "any",
	Partition:  []engine.Field{{Name: "window", Kind: engine.KindInt}, {Name: "tenant", Kind: engine.KindText}},
	Clustering: []engine.Field{{Name: "value", Kind: engine.KindText}, {Name: "series", Kind: engine.KindID}, {Name: "start", Kind: engine.KindInt}}}

// TestKeyGolden fixes the format: a changed encoding would make every existing key unreadable.
func TestKeyGolden(t *testing.T) {
	for _, c := range []struct {
		kind  engine.Kind
		value engine.Value
		want  string
	}{
		{engine.KindInt, engine.Int(0), "80"},
		{engine.KindInt, engine.Int(1), "81"},
		{engine.KindInt, engine.Int(-1), "7f"},
		{engine.KindInt, engine.Int(119), "f7"},
		{engine.KindInt, engine.Int(120), "f878"},
		{engine.KindInt, engine.Int(255), "f8ff"},
		{engine.KindInt, engine.Int(256), "f90100"},
		{engine.KindInt, engine.Int(20_000), "f94e20"},
		{engine.KindInt, engine.Int(1_700_000_000_000), "fd018bcfe56800"},
		{engine.KindInt, engine.Int(math.MaxInt64), "ff7fffffffffffffff"},
		{engine.KindInt, engine.Int(-120), "08"},
		{engine.KindInt, engine.Int(-121), "0787"},
		{engine.KindInt, engine.Int(-256), "0700"},
		{engine.KindInt, engine.Int(-257), "06feff"},
		{engine.KindInt, engine.Int(math.MinInt64), "008000000000000000"},
		{engine.KindText, engine.Text(""), "00"},
		{engine.KindText, engine.Text("up"), "757000"},
		{engine.KindText, engine.Text("\x00"), "010100"},
		{engine.KindText, engine.Text("a\x01b\x02"), "6101026202" + "00"},
		{engine.KindText, engine.Text("\xff"), "ff00"},
		{engine.KindID, engine.Text("0123456789abcdef"), "30313233343536373839616263646566"},
		{engine.KindID, engine.Text(strings.Repeat("\x00", 16)), strings.Repeat("00", 16)},
	} {
		fields := []engine.Field{{Name: "f", Kind: c.kind}}
		got := appendKey(nil, fields, engine.Key{c.value})
		require.Equal(t, c.want, hex.EncodeToString(got), "%+v", c.value)
		var d keyDecoder
		key, err := d.decode(fields, got)
		require.NoError(t, err)
		require.Equal(t, engine.Key{c.value}, key)
	}
	raw := appendPartition(nil, engine.Raw, engine.Key{
		engine.Int(20_000), engine.Int(0), engine.Text("default"), engine.Text("up"), engine.Int(0),
	})
	raw = appendKey(raw, engine.Raw.Clustering, engine.Key{
		engine.Int(1), engine.Int(1_700_000_000_000), engine.Text("0123456789abcdef"), engine.Text("fedcba9876543210"),
	})
	require.Equal(t, "05"+"f94e20"+"80"+"64656661756c7400"+"757000"+"80"+
		"81"+"fd018bcfe56800"+"30313233343536373839616263646566"+"66656463626139383736353433323130",
		hex.EncodeToString(raw))
}

func TestStoredTimestamp(t *testing.T) {
	stamps := []int64{math.MinInt64, -1, 0, 1, 1_700_000_000_000_000, math.MaxInt64}
	var before []byte
	for _, s := range stamps {
		b := make([]byte, timestampLen)
		putTimestamp(b, s)
		require.Negative(t, bytes.Compare(before, b))
		before = b
	}
	one := make([]byte, timestampLen)
	putTimestamp(one, 1)
	require.Equal(t, "8000000000000001", hex.EncodeToString(one))
}

func TestAfterPrefix(t *testing.T) {
	require.Equal(t, []byte{5, 6}, afterPrefix(nil, []byte{5, 5}))
	require.Equal(t, []byte{6}, afterPrefix(nil, []byte{5, 0xff, 0xff}))
}

// TestIntOrder checks the order of integers around every value at which the number of bytes changes.
func TestIntOrder(t *testing.T) {
	values := []int64{math.MinInt64, math.MaxInt64, 0}
	for shift := range 63 {
		for delta := int64(-2); delta <= 2; delta++ {
			values = append(values, 1<<shift+delta, -(1<<shift)+delta)
		}
	}
	for v := int64(-1000); v <= 1000; v++ {
		values = append(values, v)
	}
	slices.Sort(values)
	values = slices.Compact(values)
	var before []byte
	for _, v := range values {
		b := appendInt(nil, v)
		require.Negative(t, bytes.Compare(before, b), "%d", v)
		got, rest, err := cutInt(append(slices.Clone(b), 7))
		require.NoError(t, err)
		require.Equal(t, []byte{7}, rest)
		require.Equal(t, v, got)
		before = b
	}
}

func TestDecodeHostileKeys(t *testing.T) {
	for name, c := range map[string]struct {
		kind engine.Kind
		hex  string
	}{
		"nothing":              {engine.KindInt, ""},
		"short integer":        {engine.KindInt, "f901"},
		"small with bytes":     {engine.KindInt, "f877"},
		"too many bytes":       {engine.KindInt, "f90001"},
		"negative, too many":   {engine.KindInt, "06ff00"},
		"negative, small":      {engine.KindInt, "0788"},
		"positive is negative": {engine.KindInt, "ff8000000000000000"},
		"negative is positive": {engine.KindInt, "007fffffffffffffff"},
		"rest":                 {engine.KindInt, "8080"},
		"text without end":     {engine.KindText, "6161"},
		"escape at the end":    {engine.KindText, "0100"},
		"unknown escape":       {engine.KindText, "010300"},
		"short id":             {engine.KindID, "303132"},
	} {
		b, err := hex.DecodeString(c.hex)
		require.NoError(t, err)
		var d keyDecoder
		_, err = d.decode([]engine.Field{{Name: "f", Kind: c.kind}}, b)
		require.ErrorIs(t, err, errBadKey, name)
	}
}

// FuzzKeyOrder compares two keys of three fields: their encodings have the same order as their fields, and decode to
// the same fields.
func FuzzKeyOrder(f *testing.F) {
	f.Add("", int64(0), []byte{}, "a", int64(-1), []byte{1})
	f.Add("a", int64(math.MinInt64), []byte{0xff}, "a\x00", int64(math.MaxInt64), []byte{0})
	f.Add("a\x00\x01", int64(-121), []byte("0123456789abcdef"), "a\x00\x02", int64(120), []byte("0123456789abcdee"))
	f.Fuzz(func(t *testing.T, text1 string, int1 int64, id1 []byte, text2 string, int2 int64, id2 []byte) {
		if len(text1) > engine.MaxKeyText || len(text2) > engine.MaxKeyText {
			t.Skip()
		}
		fields := anyField.Clustering
		var encoded [2][]byte
		keys := [2]engine.Key{
			{engine.Text(text1), engine.Text(idOf(id1)), engine.Int(int1)},
			{engine.Text(text2), engine.Text(idOf(id2)), engine.Int(int2)},
		}
		for i, key := range keys {
			require.NoError(t, engine.CheckKey(fields, key, false))
			encoded[i] = appendKey(nil, fields, key)
			var d keyDecoder
			got, err := d.decode(fields, encoded[i])
			require.NoError(t, err)
			require.Equal(t, key, got)
			for n := range key {
				prefix := appendKey([]byte{200}, fields, key[:n])
				whole := append([]byte{200}, encoded[i]...)
				require.True(t, bytes.HasPrefix(whole, prefix))
				require.Negative(t, bytes.Compare(whole, afterPrefix(nil, prefix)))
			}
		}
		require.Equal(t, engine.Compare(keys[0], keys[1]), bytes.Compare(encoded[0], encoded[1]))
		for n := 1; n < len(fields); n++ {
			a, b := appendKey(nil, fields, keys[0][:n]), appendKey(nil, fields, keys[1][:n])
			require.Equal(t, engine.Compare(keys[0][:n], keys[1][:n]) == 0, bytes.HasPrefix(encoded[1], a))
			require.Equal(t, engine.Compare(keys[0][:n], keys[1][:n]), bytes.Compare(a, b))
		}
	})
}

func idOf(b []byte) string {
	id := make([]byte, engine.IDLen)
	copy(id, b)
	return string(id)
}

// FuzzKeyDecode decodes arbitrary bytes. If they are a key, the key must encode to the same bytes.
func FuzzKeyDecode(f *testing.F) {
	f.Add([]byte("up\x00"), byte(engine.KindText))
	f.Add([]byte("\x01\x01\x00"), byte(engine.KindText))
	f.Add([]byte("\xf9\x4e\x20\x80"), byte(engine.KindInt))
	f.Add([]byte("\x06\xfe\xff"), byte(engine.KindInt))
	f.Fuzz(func(t *testing.T, b []byte, kind byte) {
		fields := slices.Clone(anyField.Clustering)
		if k := engine.Kind(kind); k >= engine.KindInt && k <= engine.KindID {
			fields = []engine.Field{
				{Name: "first", Kind: k}, {Name: "second", Kind: engine.KindText},
				{Name: "third", Kind: engine.KindInt},
			}
		}
		for n := 1; n <= len(fields); n++ {
			var d keyDecoder
			if key, err := d.decode(fields[:n], b); err == nil {
				require.Equal(t, b, appendKey(nil, fields[:n], key))
			}
		}
	})
}
