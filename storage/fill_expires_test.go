package storage

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// TestFineRollupsExpireDuringAnImport imports samples that are only stored as rollups, and whose 5m window expires
// while its rows are written, before the 1h rollups are computed from them. The import fails, and a repeated one adds
// to 1h rollups only.
func TestFineRollupsExpireDuringAnImport(t *testing.T) {
	r := newExpiryRig(t, true)
	var before atomic.Pointer[func()] // called once, before 5m rollups are written
	inner := r.eng
	r.eng = &expiringClocked{clockedEngine{faultengine.Wrap(inner, func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Write && (op.Table == engine.R5m || op.Table == engine.R5mPages) {
			if f := before.Swap(nil); f != nil {
				(*f)()
			}
		}
		return faultengine.Pass()
	}), r.now}}
	m := r.start(0, keeping(10*day, 40*day, 400*day))
	at := r.now().Add(-30 * day).Truncate(2 * time.Hour)
	m.brings(at, 10, time.Minute)
	expires, err := m.retention.Expiry(t.Context(), "t", retention.DefaultClass, m.period.WindowAt(rollup.FiveMinutes, at.UnixMilli()))
	require.NoError(t, err)
	gone := time.Unix(expires, 0).Add(-day)
	r.passes(gone.Add(-time.Minute).Sub(r.now()), m)
	require.Equal(t, 10, m.bucketsBetween(rollup.OneHour, at, at.Add(4*time.Hour)))

	f := func() { r.pass(2 * time.Minute) }
	before.Store(&f)
	late := &chunk.Samples{}
	for i := range 10 {
		late.AppendFloat(at.Add(90*time.Minute+time.Duration(i)*time.Minute).UnixMilli(), 0, float64(i))
	}
	list := []ImportedSeries{{labelsOfMetric(), copyOf(late)}}
	_, err = m.Import(t.Context(), "t", list)
	require.Nil(t, before.Load(), "the window expired meanwhile")
	require.ErrorIs(t, err, engine.ErrUnavailable)
	require.NoError(t, m.member.Beat(t.Context()))
	_, err = m.Import(t.Context(), "t", []ImportedSeries{{labelsOfMetric(), copyOf(late)}})
	require.NoError(t, err)
	require.Equal(t, 20, m.bucketsBetween(rollup.OneHour, at, at.Add(4*time.Hour)))
}
