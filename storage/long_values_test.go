package storage

import (
	"strings"
	"testing"
	"unicode/utf8"
	"unsafe"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/tenant"
)

func TestTruncateValue(t *testing.T) {
	const limit = 100
	long := strings.Repeat("a", limit)
	require.Equal(t, long, truncateValue(long, limit))
	require.Equal(t, strings.Repeat("a", limit-23)+"(hash:d89d25f6b6989ae4)", truncateValue(long+"b", limit))
	require.NotEqual(t, truncateValue(long+"b", limit), truncateValue(long+"c", limit), "only their ends differ")
	for n := range 8 { // The limit is in the middle of a rune.
		v := truncateValue(strings.Repeat("x", n)+strings.Repeat("€", limit), limit)
		require.True(t, utf8.ValidString(v), v)
		require.LessOrEqual(t, len(v), limit)
		require.Greater(t, len(v), limit-4)
	}
	require.Equal(t, long+"\xff", truncateValue(long+"\xff", limit), "it isn't UTF-8, and rejected for that")
	require.Equal(t, tenant.MinTruncatedBytes, hashText)
	for _, small := range []int{hashText, hashText + 1, 2*hashText - 1} {
		require.Equal(t, strings.Repeat("a", small-hashText)+"(hash:2816597888e4a0d3)", truncateValue(long, small))
	}
	require.Equal(t, long, truncateValue(long, hashText-1), "there is no room for a hash")
}

func TestTruncateValues(t *testing.T) {
	most := labelBounds{labels: 3, name: 10, value: 50, truncates: true}
	long := strings.Repeat("v", 60)
	var noted []string
	ls := labels.FromStrings(labels.MetricName, long, "a", long, "b", "short", "c", long)
	got := truncateValues(ls, most, func(label string) { noted = append(noted, label) })
	require.Equal(t, []string{"a", "c"}, noted)
	require.Equal(t, long, got.Get(labels.MetricName), "names of metrics stay")
	require.Equal(t, truncateValue(long, 50), got.Get("a"))
	require.Equal(t, "short", got.Get("b"))
	most.truncates = false
	require.Equal(t, ls, truncateValues(ls, most, nil))
}

// TestTruncationsKeepTheirNames checks that the cache of logged labels copies the names instead of referencing a
// request's memory.
func TestTruncationsKeepTheirNames(t *testing.T) {
	var seen truncations
	name := []byte("path")
	require.True(t, seen.isNew("default", unsafe.String(unsafe.SliceData(name), len(name))))
	copy(name, "host")
	require.False(t, seen.isNew("default", "path"))
	require.True(t, seen.isNew("default", "host"))
}
