package page

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/format"
)

func requireFilter(t testing.TB, b []byte) *Filter {
	t.Helper()
	f, err := ParseFilter(b)
	require.NoError(t, err)
	return &f
}

// equals returns the condition that a label has a value.
func equals(name, value string) LabelCondition {
	return LabelCondition{Name: name, Values: []string{value}, Matches: func(v string) bool { return v == value }}
}

// mayHave reports whether, by a filter, the page may have a series with a label.
func mayHave(f *Filter, name, value string) bool {
	return NewSelector([]LabelCondition{equals(name, value)}).MayMatch(f)
}

// numberedRows returns the labels rows of n series.
func numberedRows(n int) (values [][]byte) {
	for i := range n {
		values = append(values, format.AppendLabels(nil, labels.FromStrings(
			"instance", fmt.Sprintf("10.0.0.%d:9100", i), "job", "node", "mode", []string{"user", "idle"}[i%2],
		)))
	}
	return values
}

// TestFilter checks that a filter has all terms of its page, and few false positives.
func TestFilter(t *testing.T) {
	for _, n := range []int{1, 2, 15, 100, MaxEntries} {
		values := numberedRows(n)
		b := AppendFilter([]byte("before"), values)[len("before"):]
		f := requireFilter(t, b)
		require.Equal(t, n, f.Entries)
		require.NoError(t, f.Check(requirePage(t, values)))
		for i := range n {
			require.True(t, mayHave(f, "instance", fmt.Sprintf("10.0.0.%d:9100", i)))
		}
		require.True(t, mayHave(f, "job", "node"))
		passed := 0
		for i := range 10_000 {
			if mayHave(f, "instance", fmt.Sprintf("10.0.1.%d:9100", i)) {
				passed++
			}
		}
		require.Less(t, passed, 200, "of 10,000 values that no series has")
		require.False(t, mayHave(f, "instance", "node"), "a value of another label")
		require.Less(t, len(b), 16+2*(n+5), "bytes of the filter of %d series", n)
	}
}

func requirePage(t testing.TB, values [][]byte) *Page {
	t.Helper()
	p, err := Parse(Append(nil, Head{Kind: Labels}, values))
	require.NoError(t, err)
	return p
}

// TestFilterOfNames checks conditions whose matching values are unknown. A filter excludes its page only if a condition
// requires a label that no series of the page has.
func TestFilterOfNames(t *testing.T) {
	f := requireFilter(t, AppendFilter(nil, numberedRows(100)))
	has := func(name string) bool {
		return NewSelector([]LabelCondition{{Name: name, Matches: func(v string) bool { return v != "" }}}).MayMatch(f)
	}
	require.True(t, has("job"))
	require.False(t, has("pod"))
	require.True(t, NewSelector([]LabelCondition{
		{Name: "pod", Matches: func(v string) bool { return v == "" }},
	}).MayMatch(f))
	one := LabelCondition{
		Name: "instance", Values: []string{"a", "10.0.0.7:9100"},
		Matches: func(v string) bool { return v == "a" || v == "10.0.0.7:9100" },
	}
	require.True(t, NewSelector([]LabelCondition{one}).MayMatch(f))
	require.False(t, NewSelector([]LabelCondition{one, equals("job", "web")}).MayMatch(f))
}

// TestOpenFilters checks that filters without bits, and filters of unreadable values, have all terms.
func TestOpenFilters(t *testing.T) {
	values := append(numberedRows(20), []byte{format.LabelsVersion, 200})
	for _, b := range [][]byte{
		AppendOpenFilter(nil, 21), AppendFilter(nil, values), AppendFilter(nil, append(numberedRows(20), nil)),
	} {
		f := requireFilter(t, b)
		require.Equal(t, 21, f.Entries)
		require.Len(t, b, filterHead+checksumSize)
		require.True(t, mayHave(f, "pod", "x"))
		require.NoError(t, f.Check(requirePage(t, values)))
	}
}

// TestWrongFilters checks that Check rejects filters of other pages.
func TestWrongFilters(t *testing.T) {
	p := requirePage(t, numberedRows(50))
	require.NoError(t, requireFilter(t, AppendFilter(nil, numberedRows(50))).Check(p))
	require.ErrorIs(t, requireFilter(t, AppendFilter(nil, numberedRows(49))).Check(p), errCorrupt)
	others := numberedRows(60)[10:]
	require.ErrorIs(t, requireFilter(t, AppendFilter(nil, others)).Check(p), errCorrupt)
	require.NoError(t, requireFilter(
		t, AppendFilter(nil, append(numberedRows(49), nil)),
	).Check(requirePage(t, append(numberedRows(48), nil, nil))))
}

// TestEveryFlippedByteOfAFilterIsCorrupt checks that a filter with any changed byte, or a truncated filter, is
// rejected.
func TestEveryFlippedByteOfAFilterIsCorrupt(t *testing.T) {
	b := AppendFilter(nil, numberedRows(30))
	for i := range b {
		for _, flip := range []byte{1, 0x80, 0xff} {
			b[i] ^= flip
			_, err := ParseFilter(b)
			require.ErrorIs(t, err, errCorrupt, "byte %d", i)
			b[i] ^= flip
		}
	}
	for n := range b {
		_, err := ParseFilter(b[:n])
		require.ErrorIs(t, err, errCorrupt, "%d bytes", n)
	}
}

// FuzzParseFilter parses any bytes as a filter, unchanged and with a valid checksum. If a valid filter excludes a page
// with matching series, Check must reject it.
func FuzzParseFilter(f *testing.F) {
	f.Add(AppendFilter(nil, numberedRows(3)))
	f.Add(AppendOpenFilter(nil, 7))
	s := NewSelector([]LabelCondition{equals("job", "node")})
	p := requirePage(f, numberedRows(3))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, resealed(append([]byte(nil), b...))} {
			filter, err := ParseFilter(b)
			if err != nil {
				require.ErrorIs(t, err, errCorrupt)
				continue
			}
			require.True(t, 1 <= filter.Entries && filter.Entries <= MaxEntries)
			if !s.MayMatch(&filter) {
				require.Error(t, filter.Check(p), "series of the page would be missed")
			}
		}
	})
}

var rewriteFilters = flag.Bool(
	"rewrite-filters", false, "write the golden filters anew; only for formats that no release has written",
)

// TestGoldenFilters checks that the filters written by each release can be read, and that the current version still
// encodes to the same bytes.
func TestGoldenFilters(t *testing.T) {
	for name, b := range map[string][]byte{
		"40-series": AppendFilter(nil, numberedRows(40)), "open": AppendOpenFilter(nil, 40),
	} {
		path := filepath.Join("testdata", "filters", fmt.Sprintf("v%d-%s.txt", filterVersion, name))
		if *rewriteFilters {
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, []byte(hex.EncodeToString(b)+"\n"), 0o644))
		}
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, strings.TrimSpace(string(text)), hex.EncodeToString(b),
			"the format has changed: it needs a new version, so that old filters stay readable")
	}
	paths, err := filepath.Glob("testdata/filters/*.txt")
	require.NoError(t, err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		b, err := hex.DecodeString(strings.TrimSpace(string(text)))
		require.NoError(t, err)
		require.NoError(t, requireFilter(t, b).Check(requirePage(t, numberedRows(40))))
	}
}
