package remotewrite

import (
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter"
)

// A series has the same alias whichever protocol it arrives by.
func TestAliasIsThatOfOtherWays(t *testing.T) {
	for _, length := range []int{1, 100, 130, 20_000} {
		ls := labels.FromStrings("__name__", "m", "host", strings.Repeat("h", length), "zone", "é")
		var want []byte
		ls.Range(func(l labels.Label) { want = appendLabel(want, l.Name, l.Value) })
		require.Equal(t, want, adapter.AppendAlias(nil, ls))
	}
	require.Equal(t, appendLabel(nil, "a", "1"), adapter.AppendAlias(nil, labels.FromStrings("a", "1", "b", "")),
		"empty labels are none")
}
