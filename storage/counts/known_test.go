package counts

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/ended"
)

// TestWhatIsKnownIsOfTheStates checks that cached values are valid only for the window's states, except countsLost.
func TestWhatIsKnownIsOfTheStates(t *testing.T) {
	s := New(Env{Memory: &ended.Memory{}})
	u := &ended.OverWindow{Tenant: "a", Window: 7, Version: 3, Before: &ended.EarlierWindow{Window: 6, State: 2}}
	other := &ended.OverWindow{Tenant: "a", Window: 7, Version: 4, Before: u.Before}
	require.Zero(t, s.known(u))
	for _, as := range []uint64{countsThere, countsWait, countsWaitAgain} {
		s.setKnown(u, as)
		require.Equal(t, as, s.known(u))
		require.Zero(t, s.known(other))
		require.Zero(t, s.known(&ended.OverWindow{Tenant: "a", Window: 7, Version: 3}))
	}
	s.setKnown(other, countsLost)
	require.EqualValues(t, countsLost, s.known(u), "whatever the state is")
}
