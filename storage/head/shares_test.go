package head

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSharesOfTheHead checks that the unused part of a tenant's equal share is available to other tenants.
func TestSharesOfTheHead(t *testing.T) {
	h := New(1, nil)
	hold := func(name string, bytes int64) {
		tn := h.Tenant(name)
		h.AddBytes(tn, bytes-tn.Bytes())
	}
	require.EqualValues(t, 1<<20, h.computeFairShare(1<<20), "nobody holds anything")
	hold("burst", 2<<20)
	require.EqualValues(t, 1<<20, h.computeFairShare(1<<20), "one has all")
	hold("b", 600<<10)
	require.EqualValues(t, 512<<10, h.computeFairShare(1<<20), "two have half each")
	hold("b", 24<<10)
	require.EqualValues(t, 1000<<10, h.computeFairShare(1<<20), "the one what the other leaves")
	for i := range 100 {
		hold(fmt.Sprint("tiny", i), 2<<10)
	}
	require.EqualValues(t, 800<<10, h.computeFairShare(1<<20), "many small ones don't make it small")
}
