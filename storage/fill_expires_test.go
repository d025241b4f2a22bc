package storage

import (
	"fmt"
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

// TestFineRollupsExpireDuringAnImport imports samples that are only stored as rollups. Their 5m window expires while
// its rows are being written, before the 1h rollups are computed from them. The import must fail, and a repeated import
// must add to the 1h rollups only.
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
	expires, err := m.retention.Expiry(
		t.Context(), "t", retention.DefaultClass, m.period.WindowAt(rollup.FiveMinutes, at.UnixMilli()),
	)
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
	require.NoError(t, m.member.SendHeartbeat(t.Context()))
	_, err = m.Import(t.Context(), "t", []ImportedSeries{{labelsOfMetric(), copyOf(late)}})
	require.NoError(t, err)
	require.Equal(t, 20, m.bucketsBetween(rollup.OneHour, at, at.Add(4*time.Hour)))
}

// TestRawRowsExpireDuringASeal seals a late sample whose raw window expires after its chunk was written and before its
// rollups are. At this moment another process imports an earlier sample into the rollups. The seal must fail before it
// changes the rollups, and a repeated seal must add to them. Both samples must be in the rollups.
func TestRawRowsExpireDuringASeal(t *testing.T) {
	for _, v := range []float64{1, 9} { // With equal versions the larger rollup would win.
		for scans := range 3 { // scans of raw rows after the write, before the rows expire
			t.Run(fmt.Sprint(v, "/", scans), func(t *testing.T) { rawRowsExpireDuringASeal(t, v, scans) })
		}
	}
}

func rawRowsExpireDuringASeal(t *testing.T, v float64, scans int) {
	r := newExpiryRig(t, true)
	// expires and imports are called once: expires when raw rows are written, or at a later scan of them, and imports
	// before 5m rollups are written.
	var expires, imports atomic.Pointer[func()]
	written := false
	inner := r.eng
	r.eng = &expiringClocked{clockedEngine{faultengine.Wrap(inner, func(op faultengine.Op) faultengine.Action {
		before := &expires
		switch {
		case expires.Load() != nil && (op.Table == engine.Raw || op.Table == engine.RawPages):
			if written = written || op.Kind == faultengine.Write; !written {
				return faultengine.Pass()
			}
			if scans--; scans >= 0 {
				return faultengine.Pass()
			}
		case op.Kind == faultengine.Write && (op.Table == engine.R5m || op.Table == engine.R5mPages):
			before = &imports
		default:
			return faultengine.Pass()
		}
		if f := before.Swap(nil); f != nil {
			(*f)()
		}
		return faultengine.Pass()
	}), r.now}}
	seals := r.start(0, keeping(10*day, 40*day, 400*day))
	r.eng = inner
	other := r.start(0, keeping(10*day, 40*day, 400*day))
	at := r.now().Truncate(2 * time.Hour).Add(-12 * time.Hour)
	seals.brings(at.Add(time.Minute), 1, time.Minute)
	require.NoError(t, seals.write(at.Add(3*time.Minute), v))
	ends, err := seals.retention.Expiry(
		t.Context(), "t", retention.DefaultClass, seals.period.WindowAt(rollup.Raw, at.Add(time.Minute).UnixMilli()),
	)
	require.NoError(t, err)
	r.passes(time.Unix(ends, 0).Add(-day-time.Minute).Sub(r.now()), seals, other)

	var stats ImportStats
	bring := func() {
		samples := &chunk.Samples{}
		samples.AppendFloat(at.Add(2*time.Minute).UnixMilli(), 0, 5)
		stats, err = other.Import(t.Context(), "t", []ImportedSeries{{labelsOfMetric(), samples}})
	}
	expire := func() { r.pass(2 * time.Minute); imports.Store(&bring) }
	expires.Store(&expire)
	sealed := seals.SealAll(t.Context())
	require.Nil(t, expires.Load(), "the window expired meanwhile")
	if f := imports.Swap(nil); f != nil {
		(*f)()
	}
	require.NoError(t, err)
	require.Equal(t, 1, stats.RollupsOnly, "%+v", stats)
	require.ErrorIs(t, sealed, engine.ErrUnavailable)
	for _, m := range []*clockMachine{seals, other} {
		require.NoError(t, m.member.SendHeartbeat(t.Context()))
	}
	require.NoError(t, seals.SealAll(t.Context()))
	require.Equal(t, 3, other.bucketsBetween(rollup.FiveMinutes, at, at.Add(2*time.Hour)))
}
