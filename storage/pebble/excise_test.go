package pebble

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// exciseSoon makes the engine excise slots of the staging log immediately, and disables other ways of freeing space.
func exciseSoon(o *Options) { o.StageDelay, o.DropDelay = time.Millisecond, time.Hour }

const slotParts, slotRows = 4, 10

func slotPartition(slot, part int64) engine.Key {
	return engine.Key{engine.Int(slot), engine.Int(part)}
}

// fillSlot writes 40 rows of 50 kB to a slot.
func fillSlot(t testing.TB, e *Engine, slot int64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, uint64(slot)))
	for part := range int64(slotParts) {
		for seq := range int64(slotRows) {
			b := stageBatch(seq, string(randomBytes(rng, 50_000)))
			b[0].Partition = slotPartition(slot, part)
			require.NoError(t, e.Write(ctx, b))
		}
	}
}

func sealPart(t testing.TB, e *Engine, slot, part int64) {
	t.Helper()
	b := stageBatch(0, "")
	b[0].Partition = slotPartition(slot, part)
	b[0].Mutations[0].Op = engine.DeleteRange
	b[0].Mutations[0].To = engine.Key{b[0].Mutations[0].Clustering[0], engine.Int(slotRows)}
	require.NoError(t, e.Write(ctx, b))
}

func sealSlot(t testing.TB, e *Engine, slot int64) {
	t.Helper()
	for part := range int64(slotParts) {
		sealPart(t, e, slot, part)
	}
}

func rowsOfSlot(t testing.TB, e *Engine, slot int64) (n int) {
	t.Helper()
	for part := range int64(slotParts) {
		n += countRows(t, e, engine.Stage, slotPartition(slot, part))
	}
	return n
}

// TestSealedSlotsAreExcised checks that the staged rows of sealed slots are removed from the disk, whether they were
// flushed, compacted or neither. Adjacent slots and partly sealed slots are unchanged, even after a power cut.
func TestSealedSlotsAreExcised(t *testing.T) {
	for name, before := range map[string]func(*testing.T, *Engine){
		"in memory": func(*testing.T, *Engine) {},
		"compacted": func(t *testing.T, e *Engine) { require.NoError(t, e.CompactAll(ctx)) },
	} {
		t.Run(name, func(t *testing.T) {
			disk := NewCrashableFS()
			e := openOn(t, disk, exciseSoon)
			for slot := range int64(4) {
				fillSlot(t, e, slot)
			}
			before(t, e)
			sealSlot(t, e, 0)
			sealSlot(t, e, 2)
			sealPart(t, e, 3, 1)
			require.Eventually(
				t, func() bool { return slotBytes(t, e, 0) == 0 && slotBytes(t, e, 2) == 0 }, waitAtMost, pollEvery,
			)
			check := func() {
				require.Equal(t, []int{0, 40, 0, 30}, []int{
					rowsOfSlot(t, e, 0), rowsOfSlot(t, e, 1), rowsOfSlot(t, e, 2), rowsOfSlot(t, e, 3),
				})
			}
			check()
			left := disk.Crash(0, rand.New(rand.NewPCG(1, 1)))
			require.NoError(t, e.Close())
			e = openOn(t, left, exciseSoon)
			check()
			require.NoError(t, e.Close())
		})
	}
}

// slotBytes returns the approximate size of a slot in sorted files.
func slotBytes(t testing.TB, e *Engine, slot int64) uint64 {
	t.Helper()
	n, err := e.Usage(ctx, engine.Stage, engine.Key{engine.Int(slot)})
	require.NoError(t, err)
	return n
}

// TestReadersOutliveExcising checks that during excisions a scan still yields the rows that existed when it started,
// and that a checkpoint is complete.
func TestReadersOutliveExcising(t *testing.T) {
	dir := t.TempDir()
	opts := smallOptions()
	exciseSoon(&opts)
	e, err := Open(filepath.Join(dir, "data"), opts)
	require.NoError(t, err)
	for slot := range int64(3) {
		fillSlot(t, e, slot)
	}
	require.NoError(t, e.CompactAll(ctx))
	seen := 0
	for row, err := range e.Scan(ctx, engine.Range{Table: engine.Stage, Partition: slotPartition(0, 0)}) {
		require.NoError(t, err)
		require.Len(t, row.Value, 50_000)
		if seen++; seen == 1 {
			require.NoError(t, e.Checkpoint(filepath.Join(dir, "before")))
			sealSlot(t, e, 0)
			require.Eventually(t, func() bool { return slotBytes(t, e, 0) == 0 }, waitAtMost, pollEvery)
			require.NoError(t, e.Checkpoint(filepath.Join(dir, "after")))
		}
	}
	require.Equal(t, slotRows, seen)
	require.NoError(t, e.Close())
	for name, want := range map[string]int{"before": 40, "after": 0} {
		e, err := Open(filepath.Join(dir, name), smallOptions())
		require.NoError(t, err)
		require.Equal(t, want, rowsOfSlot(t, e, 0))
		require.Equal(t, 80, rowsOfSlot(t, e, 1)+rowsOfSlot(t, e, 2))
		files, _, err := e.VerifyFiles(ctx, func(problem error) { t.Error(problem) })
		require.NoError(t, err)
		require.NotZero(t, files)
		require.NoError(t, e.Close())
	}
}

// TestRowsComeWhileTheirSlotIsExcised checks that a row written to a slot while the slot is excised isn't lost, even
// after a power cut.
func TestRowsComeWhileTheirSlotIsExcised(t *testing.T) {
	disk := NewCrashableFS()
	// The engine's own exciser is delayed, because the test calls exciseRange itself.
	e := openOn(t, disk, func(o *Options) { o.StageDelay, o.DropDelay = time.Hour, time.Hour })
	fillSlot(t, e, 1)
	prefix := appendPartition(nil, engine.Stage, engine.Key{engine.Int(0)})
	var running sync.WaitGroup
	var stop atomic.Bool
	var excised atomic.Int64
	running.Go(func() {
		for !stop.Load() {
			done, err := e.exciser.exciseRange(ctx, keyRange{prefix, afterPrefix(nil, prefix)})
			if err != nil {
				panic(err)
			}
			if done {
				excised.Add(1)
			}
		}
	})
	for seq, enough := int64(1), false; !enough; seq++ {
		enough = excised.Load() >= 100
		b := stageBatch(seq, "late")
		b[0].Partition = slotPartition(0, 0)
		require.NoError(t, e.Write(ctx, b))
		require.Equal(t, 1, rowsOfSlot(t, e, 0), "row %d", seq)
		if !enough {
			b[0].Mutations[0].Op = engine.Delete
			require.NoError(t, e.Write(ctx, b))
		}
	}
	stop.Store(true)
	running.Wait()
	left := disk.Crash(0, rand.New(rand.NewPCG(1, 1)))
	require.NoError(t, e.Close())
	e = openOn(t, left, exciseSoon)
	require.Equal(t, 1, rowsOfSlot(t, e, 0))
	require.Equal(t, 40, rowsOfSlot(t, e, 1))
	require.NoError(t, e.Close())
}

// TestGate checks that rows can't be written to a slot while it is excised, and that a slot isn't excised while rows
// are written to it.
func TestGate(t *testing.T) {
	e := openOn(t, NewCrashableFS())
	prefix := appendPartition(nil, engine.Stage, engine.Key{engine.Int(1)})
	slot := keyRange{prefix, afterPrefix(nil, prefix)}
	require.True(t, e.gate.close(slot))
	ended, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, e.Write(ended, stageBatch(1, "v")), context.DeadlineExceeded)
	other := stageBatch(1, "v")
	other[0].Partition = slotPartition(2, 2)
	require.NoError(t, e.Write(ctx, other), "of another slot")
	waits := make(chan error)
	go func() { waits <- e.Write(ctx, stageBatch(1, "v")) }()
	e.gate.open()
	require.NoError(t, <-waits)
	require.Equal(t, 1, stageRows(t, e))

	require.NoError(t, e.enterSlots(ctx, []string{string(prefix)}))
	require.False(t, e.gate.close(slot))
	e.gate.leaveGate([]string{string(prefix)})
	require.True(t, e.gate.close(slot))
	e.gate.open()
	require.Empty(t, e.gate.under)
	require.NoError(t, e.Close())
}

// TestExciseInTheLog checks that an excision is replayed from the log, also when an engine is opened for reading only.
// The excised range overlaps memtables, so that the excision is only in the log at first.
func TestExciseInTheLog(t *testing.T) {
	dir := t.TempDir()
	opts := smallOptions()
	opts.StageDelay = time.Hour // The test does the work of the exciser.
	opts.DropDelay = time.Hour
	e, err := Open(filepath.Join(dir, "data"), opts)
	require.NoError(t, err)
	fillSlot(t, e, 0)
	fillSlot(t, e, 1)
	require.NoError(t, e.CompactAll(ctx))
	sealSlot(t, e, 0) // in memory
	prefix := appendPartition(nil, engine.Stage, engine.Key{engine.Int(0)})
	done, err := e.exciser.exciseRange(ctx, keyRange{prefix, afterPrefix(nil, prefix)})
	require.NoError(t, err)
	require.True(t, done)
	b := stageBatch(500, "late")
	b[0].Partition = slotPartition(0, 0)
	require.NoError(t, e.Write(ctx, b))
	require.NoError(t, e.Checkpoint(filepath.Join(dir, "copy")))
	check := func(e *Engine) {
		require.Equal(t, 1, rowsOfSlot(t, e, 0))
		require.Equal(t, 40, rowsOfSlot(t, e, 1))
	}
	check(e)
	require.NoError(t, e.Close())
	for _, readOnly := range []bool{true, false} {
		opts.ReadOnly = readOnly
		e, err := Open(filepath.Join(dir, "copy"), opts)
		require.NoError(t, err)
		check(e)
		require.NoError(t, e.Close())
	}
}

// TestCloseWhileExciseCantFlush checks that Close doesn't wait for a flush that fails on a full disk. The unflushed
// rows are in the log.
func TestCloseWhileExciseCantFlush(t *testing.T) {
	inChild(t, func() { // Close may leave Pebble open.
		var broken atomic.Bool
		mem, osFS := faultyFS(func(op errorfs.Op) error {
			if broken.Load() && op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst") {
				return errorfs.ErrInjected
			}
			return nil
		})
		e := openOn(t, osFS, exciseSoon)
		require.NoError(t, e.Write(ctx, stageBatch(1, "v")))
		require.NoError(t, e.Write(ctx, stageBatch(2, "v")))
		broken.Store(true)
		b := stageBatch(1, "")
		b[0].Mutations[0].Op = engine.Delete
		require.NoError(t, e.Write(ctx, b))
		require.Eventually(
			t, func() bool { return testutil.ToFloat64(e.events.backgroundErrors) > 0 }, waitAtMost, pollEvery,
		)
		if err := e.Close(); err != nil {
			require.ErrorIs(t, err, ErrUnclosed,
				"a flush was tried again, and failed, while the engine was being closed")
		}
		e = openOn(t, mem.CrashClone(vfs.CrashCloneCfg{}), exciseSoon)
		require.Equal(t, 1, stageRows(t, e))
		require.NoError(t, e.Close())
	})
}
