package format

import (
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
)

const tombstoneID = "0123456789abcdef"

// FuzzParseTombstone parses any bytes. A delete that can be parsed must be encoded to the same bytes.
func FuzzParseTombstone(f *testing.F) {
	d := Tombstone{ID: tombstoneID, When: 1777636800000, Start: -5, End: 1777636799999, Matchers: []*labels.Matcher{
		labels.MustNewMatcher(labels.MatchEqual, "__name__", "up"),
		labels.MustNewMatcher(labels.MatchNotRegexp, "c", "y|z"),
	}}
	f.Add(AppendTombstone(nil, &d))
	d.Held = []HeldCut{{"eu", tombstoneID, 1}, {"us", tombstoneID, 300}}
	f.Add(AppendTombstone(nil, &d))
	d.Announced = true
	f.Add(AppendTombstone(nil, &d))
	f.Add(AppendClearance(nil, Clearance{
		Before: 1777464000001, Standing: TombstoneIDs(tombstoneID + "fedcba9876543210"),
	}))
	f.Fuzz(func(t *testing.T, value []byte) {
		if d, err := ParseTombstone(tombstoneID, value); err == nil {
			again, err := ParseTombstone(tombstoneID, AppendTombstone(nil, d))
			require.NoError(t, err)
			require.Equal(t, d.Held, again.Held)
			require.Equal(t, d.Announced, again.Announced)
		}
		if c, err := ParseClearance(value); err == nil {
			again, err := ParseClearance(AppendClearance(nil, c))
			require.NoError(t, err)
			require.Equal(t, c, again)
		}
	})
}
