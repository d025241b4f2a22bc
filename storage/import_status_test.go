package storage

import (
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/membership"
)

// TestImportsUnderWayAreListed makes an import wait for a seal, and a second import wait for the first one. The list of
// imports must contain both, with the reason why each waits.
func TestImportsUnderWayAreListed(t *testing.T) {
	ts := openTestStore(t, nil)
	require.Empty(t, ts.member.Imports.List())
	require.Zero(t, ts.member.Imports.Wait())
	for p := range ts.sealMu {
		ts.sealMu[p].Lock()
	}
	var both errgroup.Group
	run := func(tenant string) {
		both.Go(func() error {
			samples := chunk.Samples{}
			samples.AppendFloat(ts.now.AddDate(0, 0, -7).UnixMilli(), 0, 1)
			list := []ImportedSeries{{Labels: labels.FromStrings("__name__", "a"), Samples: &samples}}
			_, err := ts.Import(t.Context(), tenant, list)
			return err
		})
	}
	waiting := func(tenant, what string) func() bool {
		return func() bool {
			all := ts.member.Imports.List()
			last := all[max(0, len(all)-1):]
			return len(last) == 1 && last[0].Tenant == tenant && last[0].WaitsFor == what &&
				!last[0].WaitsSince.IsZero()
		}
	}
	run("first")
	require.Eventually(t, waiting("first", membership.WaitsForSeal), time.Minute, time.Millisecond)
	run("second")
	require.Eventually(t, waiting("second", membership.WaitsForImport), time.Minute, time.Millisecond)
	for p := range ts.sealMu {
		ts.sealMu[p].Unlock()
	}
	require.NoError(t, both.Wait())
	require.Empty(t, ts.member.Imports.List())
}
