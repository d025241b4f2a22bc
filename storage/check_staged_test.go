package storage

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// TestCheckHeedsUnnamedStageRows lists the waiting work while a commit writes a blob to an old slot. The commit then
// fails, although its blob is stored, and doesn't list the slot. A seal of the listed work also fails. Check must not
// compare the slot's rollups until the stage rows of the slot are sealed.
func TestCheckHeedsUnnamedStageRows(t *testing.T) {
	late := labels.FromStrings(labels.MetricName, "up", "host", "late")
	for _, series := range []labels.Labels{upLabels, late} {
		for _, pages := range []bool{false, true} {
			for _, fails := range [][]*engine.Table{{engine.R5m, engine.R5mPages}, {engine.R1h, engine.R1hPages}} {
				for _, shared := range []bool{false, true} {
					name := fmt.Sprint(series, pages, fails[0], shared)
					t.Run(name, func(t *testing.T) { checkUnnamedStageRows(t, series, pages, shared, fails) })
				}
			}
		}
	}
}

func checkUnnamedStageRows(t *testing.T, series labels.Labels, pages, shared bool, fails []*engine.Table) {
	var failing []*engine.Table
	held, goOn := make(chan struct{}), make(chan struct{})
	losing := false
	ts, _ := openFaultyStore(t, func(op faultengine.Op) faultengine.Action {
		if op.Kind != faultengine.Write {
			return faultengine.Pass()
		}
		if slices.Contains(failing, op.Table) {
			return faultengine.Fail(nil)
		}
		if losing && op.Table == engine.Stage {
			losing = false
			close(held)
			return faultengine.Lose(nil).After(goOn)
		}
		return faultengine.Pass()
	}, func(o *Options) {
		if o.Shared, o.seams.still = shared, true; !pages {
			rowsOnly(o)
		}
	})
	at := ts.now.Add(-73 * time.Hour).UnixMilli()
	slot := ts.period.SlotOf(at)
	ts.write("ann", upLabels, sample{at, 1})
	require.NoError(t, ts.SealAll(t.Context()))

	losing = true
	committed := make(chan error, 1)
	go func() { committed <- ts.tryWrite("ann", series, sample{at + 15_000, 2}) }()
	<-held
	work, err := ts.WaitingWork(t.Context(), 0)
	require.NoError(t, err)
	close(goOn)
	require.Error(t, <-committed)
	failing = fails
	_, err = ts.SealTogether(t.Context(), slotsOnly(work, slot))
	require.Error(t, err)
	failing = nil

	empty, err := ts.isEmptyPartition(t.Context(), engine.Stage, format.StagePartition(slot, 0))
	require.NoError(t, err)
	require.False(t, empty)
	work, err = ts.WaitingWork(t.Context(), 0)
	require.NoError(t, err)
	require.NotEmpty(t, slotsOnly(work, slot), "it is listed, or the engine lists it")
	require.Empty(t, ts.problems())

	ts.write("ann", series, sample{at + 15_000, 2}) // The sender repeats the request.
	require.NoError(t, ts.SealAll(t.Context()))
	empty, err = ts.isEmptyPartition(t.Context(), engine.Stage, format.StagePartition(slot, 0))
	require.NoError(t, err)
	require.True(t, empty)
	require.Empty(t, ts.problems())
}

// slotsOnly returns the work of one slot.
func slotsOnly(all []Work, slot int64) (of []Work) {
	for _, w := range all {
		if w.Slot == slot {
			of = append(of, w)
		}
	}
	return of
}

// TestCheckNamesRollupsThatDiffer changes the 5m rollup of a slot without stage rows, and repairs it. Check must report
// the rollup only while it is wrong.
func TestCheckNamesRollupsThatDiffer(t *testing.T) {
	ts := openTestStore(t, rowsOnly)
	at := ts.now.Add(-73 * time.Hour).UnixMilli()
	ts.write("ann", upLabels, sample{at, 1})
	require.NoError(t, ts.SealAll(t.Context()))
	require.Empty(t, ts.problems())

	fine := ts.destinationsOf(ts.period.SlotOf(at))[rollup.FiveMinutes]
	key := format.RollupKey(format.SeriesIDOf(upLabels).String(), fine.start)
	partition := format.SeriesPartition(fine.window, "ann", "up", 0)
	var value []byte
	for row, err := range ts.eng.Scan(
		t.Context(), engine.Range{Table: engine.R5m, Partition: partition, From: key, To: key},
	) {
		require.NoError(t, err)
		value = slices.Clone(row.Value)
	}
	require.NotNil(t, value)
	put := func(wins uint64, value []byte) {
		require.NoError(t, ts.eng.Write(t.Context(), []engine.Batch{
			{Table: engine.R5m, Partition: partition, Mutations: []engine.Mutation{
				{Clustering: key, Timestamp: rollupTimestamp(fine.end, wins), Value: value},
			}},
		}))
	}
	put(2, rollup.AppendEmpty(nil, 1))
	require.Contains(t, strings.Join(ts.problems(), "\n"), "doesn't match the 1 raw chunks")
	put(3, value)
	require.Empty(t, ts.problems())
}
