package remotewrite

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// On a small machine, the bounds are lowered to their share of the memory. On other machines, the defaults apply.
func TestBodiesWithinAPartOfTheMemory(t *testing.T) {
	for _, part := range []int64{64 << 20, 100<<20 + 12345, 1 << 30} {
		o := DefaultOptions()
		o.LimitInFlight(part)
		require.NoError(t, o.Validate())
		require.LessOrEqual(t, o.MaxInFlight, part)
	}
	o := DefaultOptions()
	o.LimitInFlight(o.MaxInFlight)
	o.Logger = nil
	want := DefaultOptions()
	want.Logger = nil
	o.Now, want.Now = nil, nil
	require.Equal(t, want, o)
}
