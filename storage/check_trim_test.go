package storage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
)

// TestCheckBesideATrimCutShort deletes a part of a series that only has rollups. The delete's background work and
// cleaning fail after the 5m chunks are written, before the 1h chunks are. Check must report no problem then, and none
// after cleaning is repeated.
func TestCheckBesideATrimCutShort(t *testing.T) {
	t.Parallel()
	failing := false
	ts, _ := openFaultyStore(t, func(op faultengine.Op) faultengine.Action {
		if failing && op.Kind == faultengine.Write && op.Table == engine.R1h {
			return faultengine.Fail(nil)
		}
		return faultengine.Pass()
	}, func(o *Options) { o.Retention, o.seams.still = 2*day, true })
	at := ts.now.Add(-40 * day).Truncate(day).Add(time.Hour)
	require.Equal(t, 180, ts.importJob("api", every(at, time.Minute, 180)...).RollupsOnly)
	check := func(when string) {
		t.Helper()
		_, err := ts.Check(t.Context(), func(problem string) { t.Errorf("%s: %s", when, problem) })
		require.NoError(t, err)
	}
	check("imported")
	failing = true
	err := ts.Delete(
		t.Context(), "default", at.Add(-time.Hour).UnixMilli(), at.Add(time.Hour).UnixMilli(), equal("job", "api"),
	)
	require.ErrorContains(t, err, "the delete was applied, but")
	check("deleted")
	require.Error(t, ts.CleanTombstones(t.Context(), "default"))
	check("cut short")
	failing = false
	require.NoError(t, ts.CleanTombstones(t.Context(), "default"))
	check("cleaned")
}
