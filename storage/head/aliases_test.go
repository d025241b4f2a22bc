package head

import (
	"fmt"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
)

// TestAliasSpaces checks that one alias can belong to a different series in each space, that the number of a series'
// aliases is bounded, and that the head's account is correct.
func TestAliasSpaces(t *testing.T) {
	h := New(1, nil)
	define := func(space uint64, alias, name string) *Series {
		series, err := h.Define(h.Tenant("t"), labels.FromStrings(labels.MetricName, name), nil)
		require.NoError(t, err)
		h.AddAlias([]byte(alias), space, series)
		return series
	}
	found := func(space uint64, alias string) *Series {
		return h.Tenant("t").Lookup(h.HashAlias([]byte(alias), space), nil)
	}
	a, b := define(0, "x", "a"), define(1, "x", "b")
	require.Same(t, a, found(0, "x"))
	require.Same(t, b, found(1, "x"))
	require.Nil(t, found(2, "x"))

	weight := h.Bytes()
	for i := range 3 * crowdedAliases {
		require.Same(t, a, define(3, fmt.Sprint(i), "a"))
		require.LessOrEqual(t, a.aliases, uint8(maxAliases))
		require.LessOrEqual(t, h.Bytes(), weight+maxAliases*aliasBytes)
	}
	require.Same(t, a, define(3, "newest", "a"))
	h.ClearAliases(func(string) bool { return false })
	define(1, "x", "b")
	require.NotNil(t, found(1, "x"))
	h.ClearAliases(func(name string) bool { return name == "t" })
	require.Nil(t, found(1, "x"))
	require.Equal(t, weight-2*aliasBytes, h.Bytes(), "only the series are left")
	require.Same(t, b, define(1, "x", "b"))
}
