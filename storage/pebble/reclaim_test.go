package pebble

import (
	"testing"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
)

// laterScheduler lets every compaction wait until grant.
type laterScheduler struct{ db pebbledb.DBForCompaction }

func (s *laterScheduler) Register(_ int, db pebbledb.DBForCompaction)         { s.db = db }
func (s *laterScheduler) Unregister()                                         {}
func (s *laterScheduler) TrySchedule() (bool, pebbledb.CompactionGrantHandle) { return false, nil }
func (s *laterScheduler) UpdateGetAllowedWithoutPermission()                  {}
func (s *laterScheduler) Started()                                            {}
func (s *laterScheduler) MeasureCPU(pebbledb.CompactionGoroutineKind)         {}
func (s *laterScheduler) CumulativeStats(pebbledb.CompactionGrantHandleStats) {}
func (s *laterScheduler) Done()                                               {}
func (s *laterScheduler) picked() bool                                        { yes, _ := s.db.GetWaitingCompaction(); return yes }
func (s *laterScheduler) grant() bool                                         { return s.db.Schedule(s) }

// TestStopWhileACompactionWaits ends a reclaimer while the compaction that it asked for is picked but hasn't begun. Pebble
// v2.1.7 panics once it does if the context of DB.Compact has ended meanwhile.
func TestStopWhileACompactionWaits(t *testing.T) {
	scheduler := &laterScheduler{}
	opts := DefaultOptions()
	p := opts.pebbleOptions(&pebbledb.EventListener{}, nil)
	p.FS, p.Experimental.CompactionScheduler = vfs.NewMem(), scheduler
	db, err := pebbledb.Open("data", p)
	require.NoError(t, err)
	require.NoError(t, db.Set([]byte("a1"), []byte("v"), pebbledb.Sync))
	require.NoError(t, db.Set([]byte("a2"), []byte("v"), pebbledb.Sync))
	require.NoError(t, db.Flush())

	r := startReclaimer(db, time.Millisecond, func(err error) { t.Error(err) })
	r.deleted([]byte("a"))
	require.Eventually(t, scheduler.picked, waitAtMost, pollEvery)
	r.cancel()
	select {
	case <-r.done: // It didn't wait.
	case <-time.After(50 * time.Millisecond):
	}
	require.Eventually(t, func() bool { scheduler.grant(); return ended(r.done) }, waitAtMost, pollEvery)
	require.NoError(t, db.Close())
}

func ended(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
