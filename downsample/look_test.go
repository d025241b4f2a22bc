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

// TestRoundsAskLittle counts what rounds over a shared engine ask for pending rows: all hours at first, and again after a while or when a
// partition comes back; in between few. What comes meanwhile is sealed in the next round.
func TestRoundsAskLittle(t *testing.T) {
	r := newRig(t, func(so *storage.Options, o *Options) { so.Shared, o.Shared = true, true })
	var scans atomic.Int64
	rule := func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Scan && op.Table == engine.Pending {
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
	whole := round()
	require.Greater(t, whole, int64(4*40))
	for i := range 9 {
		if i == 4 {
			r.write(r.now().Add(-50*hour), 1)
		}
		require.Less(t, round(), whole/5)
	}
	require.Equal(t, 40, r.check().Samples)
	require.Equal(t, whole, round(), "after ten minutes")
	require.Less(t, round(), whole/5)
	hold(false)
	require.Zero(t, round())
	hold(true)
	require.Equal(t, whole, round(), "others may have had them meanwhile")
}
