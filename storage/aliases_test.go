package storage

import (
	"fmt"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
)

// TestAliasSpaces gives one alias to a series of each space, and keeps the number of a series' aliases bounded and the head's
// account right.
func TestAliasSpaces(t *testing.T) {
	s := openTestStore(t, nil)
	batch := func(space uint64) *Batch {
		b := s.NewBatch("t")
		b.UseAliases(space)
		return b
	}
	define := func(space uint64, alias, name string) *Series {
		b := batch(space)
		defer b.Release()
		series, err := b.Define([]byte(alias), labels.FromStrings(labels.MetricName, name))
		require.NoError(t, err)
		return series
	}
	found := func(space uint64, alias string) *Series {
		b := batch(space)
		defer b.Release()
		series, _ := b.Lookup([]byte(alias))
		return series
	}
	a, b := define(0, "x", "a"), define(1, "x", "b")
	require.Same(t, a, found(0, "x"))
	require.Same(t, b, found(1, "x"))
	require.Nil(t, found(2, "x"))
	require.Same(t, a, found(0, "x"), "a batch that is used again has no space")

	weight := s.head.bytes.Load()
	for i := range 3 * crowdedAliases {
		require.Same(t, a, define(3, fmt.Sprint(i), "a"))
		require.LessOrEqual(t, a.aliases, uint8(maxAliases))
		require.LessOrEqual(t, s.head.bytes.Load(), weight+maxAliases*aliasBytes)
	}
	require.Same(t, a, define(3, "newest", "a"))
	s.ForgetAliases(func(string) bool { return false })
	define(1, "x", "b")
	require.NotNil(t, found(1, "x"))
	s.ForgetAliases(func(name string) bool { return name == "t" })
	require.Nil(t, found(1, "x"))
	require.Equal(t, weight-2*aliasBytes, s.head.bytes.Load(), "only the series are left")
	require.Same(t, b, define(1, "x", "b"))
}
