package format

import (
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
)

const deleteID = "0123456789abcdef"

// FuzzParseDeletion holds that what is read of a delete's row is written as it was.
func FuzzParseDeletion(f *testing.F) {
	d := Delete{ID: deleteID, When: 1777636800000, Start: -5, End: 1777636799999, Matchers: []*labels.Matcher{
		labels.MustNewMatcher(labels.MatchEqual, "__name__", "up"), labels.MustNewMatcher(labels.MatchNotRegexp, "c", "y|z"),
	}}
	f.Add(AppendDelete(nil, &d))
	d.Held = []HeldCut{{"eu", deleteID, 1}, {"us", deleteID, 300}}
	f.Add(AppendDelete(nil, &d))
	d.Announced = true
	f.Add(AppendDelete(nil, &d))
	f.Add(AppendClearance(nil, Clearance{Before: 1777464000001, Standing: DeleteIDs(deleteID + "fedcba9876543210")}))
	f.Fuzz(func(t *testing.T, value []byte) {
		if d, err := ParseDelete(deleteID, value); err == nil {
			again, err := ParseDelete(deleteID, AppendDelete(nil, d))
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
