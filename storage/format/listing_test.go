package format

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestListingRows(t *testing.T) {
	for _, l := range []Listing{{Unlisted, 2}, {Closing, 300}, {Listed, 1 << 40}} {
		require.Equal(t, l, ParseListing(AppendListing(l)))
	}
	for _, damaged := range [][]byte{nil, {}, {9}, {3}, {3, 0x80}, {3, 0}, {3, 2, 0}, {77, 2}} {
		require.True(t, ParseListing(damaged).MayHaveRows(), "%v", damaged)
	}
	require.Less(t, string(AppendListing(Listing{Unlisted, 7})), string(AppendListing(Listing{Closing, 7})))
	require.Less(t, string(AppendListing(Listing{Closing, 7})), string(AppendListing(Listing{Listed, 7})))
}
