package storage

import (
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
)

const deletionID = "0123456789abcdef"

// FuzzParseDeletion holds that what is read of a delete's row is written as it was.
func FuzzParseDeletion(f *testing.F) {
	d := deletion{id: deletionID, when: 1777636800000, start: -5, end: 1777636799999, matchers: []*labels.Matcher{
		labels.MustNewMatcher(labels.MatchEqual, "__name__", "up"), labels.MustNewMatcher(labels.MatchNotRegexp, "c", "y|z"),
	}}
	f.Add(appendDeletion(nil, &d))
	d.held = []heldCut{{"eu", deletionID, 1}, {"us", deletionID, 300}}
	f.Add(appendDeletion(nil, &d))
	d.announced = true
	f.Add(appendDeletion(nil, &d))
	f.Add(appendClearance(nil, clearance{before: 1777464000001, standing: exempt(deletionID + "fedcba9876543210")}))
	f.Fuzz(func(t *testing.T, value []byte) {
		if d, err := parseDeletion(deletionID, value); err == nil {
			again, err := parseDeletion(deletionID, appendDeletion(nil, d))
			require.NoError(t, err)
			require.Equal(t, d.held, again.held)
			require.Equal(t, d.announced, again.announced)
		}
		if c, err := parseClearance(value); err == nil {
			again, err := parseClearance(appendClearance(nil, c))
			require.NoError(t, err)
			require.Equal(t, c, again)
		}
	})
}
