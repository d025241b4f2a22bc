package pebble

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// laterScheduler delays every compaction until grant is called.
type laterScheduler struct{ db pebbledb.DBForCompaction }

func (s *laterScheduler) Register(_ int, db pebbledb.DBForCompaction)         { s.db = db }
func (s *laterScheduler) Unregister()                                         {}
func (s *laterScheduler) TrySchedule() (bool, pebbledb.CompactionGrantHandle) { return false, nil }
func (s *laterScheduler) UpdateGetAllowedWithoutPermission()                  {}
func (s *laterScheduler) Started()                                            {}
func (s *laterScheduler) MeasureCPU(pebbledb.CompactionGoroutineKind)         {}
func (s *laterScheduler) CumulativeStats(pebbledb.CompactionGrantHandleStats) {}
func (s *laterScheduler) Done()                                               {}
func (s *laterScheduler) picked() bool {
	yes, _ := s.db.GetWaitingCompaction()
	return yes
}
func (s *laterScheduler) grant() bool { return s.db.Schedule(s) }

// TestStopWhileACompactionWaits stops a reclaimer while its compaction is picked but hasn't started. Pebble v2.1.7
// panics at the start of the compaction if the context of DB.Compact has ended before.
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
	r.recordDeleted([]byte("a"))
	require.Eventually(t, scheduler.picked, waitAtMost, pollEvery)
	r.cancel()
	select {
	case <-r.done: // It didn't wait.
	case <-time.After(50 * time.Millisecond):
	}
	require.Eventually(t, func() bool { scheduler.grant(); return ended(r.done) }, waitAtMost, pollEvery)
	require.NoError(t, db.Close())
}

// TestClearedSpaceComesBack clears a metric of a window and waits until its space is freed. The files of the window's
// other metrics aren't rewritten.
func TestClearedSpaceComesBack(t *testing.T) {
	e := openOn(t, NewCrashableFS(), func(o *Options) { o.DropDelay, o.IngestBytes = 20*time.Millisecond, 1<<40 })
	rng := rand.New(rand.NewPCG(1, 2))
	partition := func(metric string) engine.Key {
		return engine.Key{engine.Int(0), engine.Int(0), engine.Text("tenant"), engine.Text(metric), engine.Int(0)}
	}
	partitions := []engine.Key{partition("a"), partition("b"), partition("c"), partition("d")}
	for _, p := range partitions {
		for i := range int64(20) {
			require.NoError(t, e.Write(ctx, []engine.Batch{{Table: engine.R5m, Partition: p,
				Mutations: []engine.Mutation{{
					Clustering: engine.Key{engine.Int(1), engine.Text(idOf([]byte{byte(i)})), engine.Int(i)},
					Value:      randomBytes(rng, 100_000),
				}}}}))
		}
		require.NoError(t, e.db.Flush())
		require.NoError(t, e.CompactAll(ctx))
	}
	filesOf := func(p engine.Key, levels ...int) (names []pebbledb.TableNum) {
		start := appendPartition(nil, engine.R5m, p)
		end := afterPrefix(nil, start)
		files, err := e.db.SSTables()
		require.NoError(t, err)
		for n, level := range files {
			if len(levels) > 0 && !slices.Contains(levels, n) {
				continue
			}
			for _, file := range level {
				if bytes.Compare(file.Smallest.UserKey, end) < 0 && bytes.Compare(start, file.Largest.UserKey) <= 0 {
					names = append(names, file.FileNum)
				}
			}
		}
		return names
	}
	// Write a row to the top level. Compacting its range would rewrite the whole metric.
	require.NoError(t, e.Write(ctx, []engine.Batch{{Table: engine.R5m, Partition: partitions[3],
		Mutations: []engine.Mutation{{
			Clustering: engine.Key{engine.Int(1), engine.Text(idOf([]byte{10})), engine.Int(0)}, Value: []byte("late"),
		}}}}))
	require.NoError(t, e.db.Flush())
	others := append(filesOf(partitions[0]), filesOf(partitions[3])...)
	for _, name := range filesOf(partitions[1]) {
		require.NotContains(t, others, name, "metrics share a file: this shows nothing")
	}
	require.Greater(t, liveBytes(e), int64(7*mega))
	kind := engine.Key{engine.Int(1)}
	require.NoError(t, e.Write(ctx, []engine.Batch{
		{Table: engine.R5m, Partition: partitions[1], Mutations: []engine.Mutation{
			{Op: engine.Clear, Clustering: kind, To: kind},
			{Clustering: engine.Key{engine.Int(1), engine.Text(idOf(nil)), engine.Int(0)}, Value: []byte("span")}}},
	}))
	require.Eventually(t, func() bool { return liveBytes(e) < 6.5*mega }, waitAtMost, pollEvery)
	require.Eventually(
		t, func() bool { return len(filesOf(partitions[1], 0)) == 0 }, waitAtMost, pollEvery, "compacted",
	)
	require.Equal(t, 1, countRows(t, e, engine.R5m, partitions[1]))
	require.Equal(t, 20, countRows(t, e, engine.R5m, partitions[0]))
	require.Equal(t, others, append(filesOf(partitions[0]), filesOf(partitions[3])...), "the files of other metrics")
	require.NoError(t, e.Close())
}

// TestReclaimerJoinsClearedRanges checks that cleared ranges are joined if they are close, and not if there are many
// rows between them.
func TestReclaimerJoinsClearedRanges(t *testing.T) {
	e := openOn(t, NewCrashableFS(), func(o *Options) { o.DropDelay = time.Hour })
	rng := rand.New(rand.NewPCG(1, 3))
	at := func(n int64) []byte { return appendPartition(nil, engine.R5m, engine.Key{engine.Int(n)}) }
	for n := range int64(30) {
		value := randomBytes(rng, 1000)
		if n == 15 {
			value = randomBytes(rng, reclaimGap+1)
		}
		require.NoError(t, e.db.Set(at(n), value, pebbledb.NoSync))
	}
	require.NoError(t, e.db.Flush())
	r := &reclaimer{db: e.db, prefixes: map[string]struct{}{}, wake: make(chan struct{}, 1)}
	r.recordCleared([]keyRange{{at(20), at(21)}, {at(3), at(4)}, {at(10), at(12)}, {at(11), at(13)}, {at(24), at(25)}})
	r.recordCleared(
		[]keyRange{{appendPartition(nil, engine.R1h, engine.Key{engine.Int(1)}), []byte{engine.R1h.ID + 1}}},
	)
	require.Equal(t, []keyRange{
		{at(3), at(13)}, {at(20), at(25)},
		{appendPartition(nil, engine.R1h, engine.Key{engine.Int(1)}), []byte{engine.R1h.ID + 1}},
	}, r.takeCleared())
	require.Empty(t, r.takeCleared())
	require.NoError(t, e.Close())
}

// TestReclaimerBoundsClearedRanges clears more ranges than a reclaimer keeps. The ranges that it joins still contain
// all cleared ranges.
func TestReclaimerBoundsClearedRanges(t *testing.T) {
	r := &reclaimer{prefixes: map[string]struct{}{}, wake: make(chan struct{}, 1)}
	tables := []*engine.Table{engine.R5m, engine.R1h}
	var all []keyRange
	for n := range int64(5 * maxReclaims) {
		start := appendPartition(nil, tables[n%2], engine.Key{engine.Int(n)})
		k := keyRange{start, afterPrefix(nil, start)}
		all = append(all, k)
		r.recordCleared([]keyRange{k})
		require.LessOrEqual(t, len(r.ranges), maxReclaims)
	}
	cleared := r.ranges
	for _, k := range all {
		require.True(t, slices.ContainsFunc(cleared, func(c keyRange) bool {
			return c.contains(k.start) && bytes.Compare(k.end, c.end) <= 0
		}), "%x", k.start)
	}
	for _, c := range cleared {
		require.LessOrEqual(t, bytes.Compare(c.end, []byte{c.start[0] + 1}), 0, "of one table")
	}
}

func ended(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
