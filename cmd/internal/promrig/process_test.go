package promrig

import (
	"net"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAddressesAreOfOneProcess takes more addresses than the part of this process has: all differ, and the first ones
// are from its part.
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
