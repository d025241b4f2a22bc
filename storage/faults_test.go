package storage

import (
	"fmt"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
)

// TestRestartKeepsTenantsApart restarts with unsealed samples of series that two tenants name alike.
func TestRestartKeepsTenantsApart(t *testing.T) {
	ts := openTestStore(t, func(o *Options) { o.Partitions = 1 })
	at := ts.now.UnixMilli()
	for i := range 3 {
		ls := labels.FromStrings(labels.MetricName, "up", "host", fmt.Sprint(i))
		ts.write("ann", ls, sample{at, 1})
		ts.write("bob", ls, sample{at, 2}, sample{at + 1, 2})
	}
	ann, bob := ts.all("ann"), ts.all("bob")
	ts.reopen()
	require.Equal(t, ann, ts.all("ann"))
	require.Equal(t, bob, ts.all("bob"))
}
