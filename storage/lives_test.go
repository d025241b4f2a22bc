package storage

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/head"
	"github.com/cassia-db/cassia/storage/rollup"
)

// livesEngine compares the time to live of the rows of windows with the retention they should have.
type livesEngine struct {
	engine.Engine
	t              testing.TB
	of             *testStore
	series, shared int
}

// Write implements engine.Engine.
func (e *livesEngine) Write(ctx context.Context, batches []engine.Batch) error {
	for _, b := range batches {
		for _, m := range b.Mutations {
			e.row(b.Table, b.Partition, m)
		}
	}
	return e.Engine.Write(ctx, batches)
}

func (e *livesEngine) row(t *engine.Table, partition engine.Key, m engine.Mutation) {
	var want Keep
	switch t {
	case engine.Raw, engine.R5m, engine.R1h:
		e.series++
		want = [...]Keep{keepLong, keepShort, keepLonger}[partition[1].Int]
		if partition[1].Int == classDefault && partition[2].Text == "brief" {
			want = e.of.opts.TenantRetention["brief"]
		}
	case engine.Sealed, engine.Catalog, engine.Shards:
		e.shared++
		want = keepLonger
	default:
		return
	}
	window := partition[0].Int
	kept := want.Of(format.ResolutionOf(window))
	if kept == 0 {
		require.Equal(e.t, rollup.OneHour, format.ResolutionOf(window))
		require.Zero(e.t, m.Expires)
		return
	}
	require.Equal(e.t, (e.of.period.WindowEnd(window)+(kept+expireGrace).Milliseconds())/1000, m.Expires, "%s %v", t, partition)
}

// TestLabelsLiveAsLongAsChunksWhoeverIsHeard has a process that keeps rows longer be heard of between labels and a chunk of one seal: both
// live equally long.
func TestLabelsLiveAsLongAsChunksWhoeverIsHeard(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) { o.Retention = 2 * day })
	ts.expiring = true
	slot := ts.period.SlotOf(ts.now.UnixMilli())
	series := head.MetricOf("default", jobLabels("web").Get("__name__")).Series(format.SeriesID{}, jobLabels("web"))
	for _, others := range [][]statedKeep{{{All: statedOf(Keep{Raw: 30 * day})}}, {}} { // It comes, and goes.
		x, at := newRowWriter(t.Context(), ts.Store, Work{Slot: slot}), ts.destinationsOf(slot)[rollup.Raw]
		c := &collected{series: series}
		x.label(c, rollup.Raw, at.window)
		ts.classes.others.Store(&others)
		x.put(c, rollup.Raw, at.window, 1, format.ChunkKey(series.ID().String(), 0, series.ID().String()), []byte{1})
		x.names(series, at.window)
		rows := x.puts
		require.Len(t, rows, 2)
		require.Equal(t, rows[0].Expires, rows[1].Expires)
		for _, b := range x.catalog {
			require.Equal(t, rows[0].Expires, b.Mutations[0].Expires)
		}
	}
}
