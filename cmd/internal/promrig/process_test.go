package promrig

import (
	"net"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAddressesAreOfOneProcess requests more addresses than there are ports in this process' part of the range. All
// addresses must differ, and the first ones must be from the part.
func TestAddressesAreOfOneProcess(t *testing.T) {
	const part = (lastPort - firstPort + 1) / portParts
	begin := firstPort + os.Getpid()%portParts*part
	drawn := map[int]bool{}
	for n := range part + 20 {
		address, err := FreeAddress()
		require.NoError(t, err)
		_, text, err := net.SplitHostPort(address)
		require.NoError(t, err)
		port, err := strconv.Atoi(text)
		require.NoError(t, err)
		require.False(t, drawn[port], "%d is drawn twice", port)
		drawn[port] = true
		require.True(t, firstPort <= port && port <= lastPort, "%d", port)
		if n < part/2 {
			require.True(t, begin <= port && port < begin+part, "%d isn't in %d to %d", port, begin, begin+part-1)
		}
	}
}
