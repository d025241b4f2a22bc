package downsample

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
)

// TestRoundsAskLittle checks that rounds on a shared engine rarely read the list of staged slots. For each partition, a
// round may read only which units the list has, and the units that contain slots: once to seal the slots and once to
// unlist them. This also applies after a backfill of months. Late samples must be sealed in the next round.
func TestRoundsAskLittle(t *testing.T) {
	r := newRig(t, func(so *storage.Options, o *Options) { so.Shared, o.Shared, so.Retention = true, true, 0 })
	var scans atomic.Int64
	rule := func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Scan && op.Table == engine.Staged {
			scans.Add(1)
		}
		return faultengine.Pass()
	}
	r.rule.Store(&rule)
	hold := func(own bool) { r.loop.held.Store(&[]bool{own, own, own, own}) }
	round := func() int64 {
		scans.Store(0)
		r.loop.Round(t.Context())
		r.advance(time.Minute)
		return scans.Load()
	}
	hold(true)
	require.LessOrEqual(t, round(), int64(4*2))
	for i := range 20 {
		r.write(r.now().Add(-time.Duration(50+100*i)*hour), 1)
	}
	round()
	round()
	require.Equal(t, 20*40, r.check().Samples)
	require.LessOrEqual(t, round(), int64(4*2*3))
	hold(false)
	require.Zero(t, round())
}
