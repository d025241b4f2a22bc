package storage

import (
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
)

// TestBatchesUseSpacesOfAliases checks that the same alias can map to a different series in each space of aliases, and
// that a reused batch starts without a space.
func TestBatchesUseSpacesOfAliases(t *testing.T) {
	s := openTestStore(t, nil)
	define := func(space uint64, alias, name string) *Series {
		b := s.NewBatch("t")
		defer b.Release()
		b.UseAliases(space)
		series, err := b.Define([]byte(alias), labels.FromStrings(labels.MetricName, name))
		require.NoError(t, err)
		return series
	}
	found := func(space uint64, alias string) *Series {
		b := s.NewBatch("t")
		defer b.Release()
		if space != 0 {
			b.UseAliases(space)
		}
		series, _ := b.Lookup([]byte(alias))
		return series
	}
	first, second := define(0, "x", "a"), define(1, "x", "b")
	require.Same(t, first, found(0, "x"))
	require.Same(t, second, found(1, "x"))
	require.Nil(t, found(2, "x"))
	require.Same(t, first, found(0, "x"), "a batch that is used again has no space")
	s.ClearAliases(func(name string) bool { return name == "t" })
	require.Nil(t, found(1, "x"))
}
