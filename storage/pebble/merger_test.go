package pebble

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMergeIsOfAnyOrder checks that the largest value wins, in any order and grouping.
func TestMergeIsOfAnyOrder(t *testing.T) {
	m := newMerger()
	value := func(timestamp int64, text string) []byte {
		b := make([]byte, timestampLen, timestampLen+len(text))
		putTimestamp(b, timestamp)
		return append(b, text...)
	}
	all := [][]byte{value(-1, "z"), value(2, "b"), value(2, "a"), value(1, "zz")}
	for first := range all {
		v, err := m.Merge(nil, all[first])
		require.NoError(t, err)
		for i := range all {
			if i < first {
				require.NoError(t, v.MergeNewer(all[i]))
			} else {
				require.NoError(t, v.MergeOlder(all[i]))
			}
		}
		got, _, err := v.Finish(true)
		require.NoError(t, err)
		require.Equal(t, all[1], got)
	}
}
