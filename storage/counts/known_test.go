package counts

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/ended"
)

// TestWhatIsKnownIsOfTheStates checks that cached values are valid only for the window's states, except
// countsUnreadable.
func TestWhatIsKnownIsOfTheStates(t *testing.T) {
	s := New(Env{Memory: &ended.Memory{}})
	u := &ended.OverWindow{Tenant: "a", Window: 7, Version: 3, Before: &ended.EarlierWindow{Window: 6, State: 2}}
	other := &ended.OverWindow{Tenant: "a", Window: 7, Version: 4, Before: u.Before}
	require.Zero(t, s.cachedState(u))
	for _, as := range []uint64{countsStored, countsMissing, countsOutdated} {
		s.setCachedState(u, as)
		require.Equal(t, as, s.cachedState(u))
		require.Zero(t, s.cachedState(other))
		require.Zero(t, s.cachedState(&ended.OverWindow{Tenant: "a", Window: 7, Version: 3}))
	}
	s.setCachedState(other, countsUnreadable)
	require.EqualValues(t, countsUnreadable, s.cachedState(u), "whatever the state is")
}
