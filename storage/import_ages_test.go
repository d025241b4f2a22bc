package storage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
)

// TestImportOfSeveralAges imports a day of samples in three classes. One class stores only 1h rollups, another also 5m
// rollups, and the third also raw samples. The import must count each sample by the finest rows that it is stored in.
func TestImportOfSeveralAges(t *testing.T) {
	eachExpiryRig(t, func(t *testing.T, r *expiryRig, _ bool) {
		m := r.start(0, withTestClasses)
		at := r.now().Add(-40 * day).Truncate(2 * time.Hour)
		var list []ImportedSeries
		for _, job := range []string{"web", "ci", "audit"} {
			samples := &chunk.Samples{}
			for i := range 10 {
				samples.AppendFloat(at.Add(time.Duration(i)*time.Minute).UnixMilli(), 0, 1)
			}
			list = append(list, ImportedSeries{jobLabels(job), samples})
		}
		stats, err := m.Import(t.Context(), "t", list)
		require.NoError(t, err)
		require.Equal(t, 10, stats.HoursOnly)
		require.Equal(t, 20, stats.RollupsOnly)
		require.Equal(t, 10, stats.Samples)
	})
}
