package paged

import (
	"context"
	"iter"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
)

// TestBeginLongAwaitsScans lists windows while scans of them and of others are under way.
func TestBeginLongAwaitsScans(t *testing.T) {
	t.Parallel()
	w := newLongWindows()
	require.False(t, w.begin(1))
	require.False(t, w.begin(1))
	require.False(t, w.begin(2))
	require.NoError(t, w.await(t.Context(), 3), "nobody scans it")
	require.True(t, w.begin(3))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := w.await(ctx, 1)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "2 scans of window 1")
	require.True(t, w.has(1), "scans that begin now look for long chunks")
	require.True(t, w.begin(1))

	var waiting sync.WaitGroup
	for range 3 {
		waiting.Go(func() { assert.NoError(t, w.await(t.Context(), 1)) })
	}
	w.end(1)
	require.ErrorIs(t, w.await(ctx, 1), context.Canceled)
	w.end(1)
	waiting.Wait()
	require.NoError(t, w.await(ctx, 1))
	require.ErrorIs(t, w.await(ctx, 2), context.Canceled)
	w.end(2)
	require.NoError(t, w.await(ctx, 2))
	require.Empty(t, w.plain)
}

// TestScansThatEndEarly are no longer awaited: those that are left, that fail, and that are cancelled.
func TestScansThatEndEarly(t *testing.T) {
	t.Parallel()
	x := &besideRig{t: t, table: engine.R5m, eng: &endingEngine{Engine: memory.New()}, series: seriesOf("up", 3)}
	defer func() { require.NoError(t, x.eng.Close()) }()
	x.rows = New(x.eng, Options{Least: 2})
	x.write(0, 10, 1, false)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range x.rows.Scan(t.Context(), engine.Range{Table: engine.R5m, Partition: partitionOf("up")}) {
		cancel()
		require.ErrorIs(t, x.rows.BeginLong(ctx, testWindow), context.Canceled)
		break
	}
	require.NoError(t, x.rows.BeginLong(ctx, testWindow))
}

// TestLongChunksBefore1970 reads some series of times below 0, in each state.
func TestLongChunksBefore1970(t *testing.T) {
	t.Parallel()
	x := &besideRig{t: t, table: engine.R5m, eng: &endingEngine{Engine: memory.New()}, series: seriesOf("up", 6)}
	defer func() { require.NoError(t, x.eng.Close()) }()
	x.rows = New(x.eng, Options{Least: 2})
	require.NoError(t, x.rows.BeginLong(t.Context(), testWindow))
	const before = -int(windowMS/slotMS) - 40
	read := func() (all [][]testRow) {
		for first := before; first < before+20; first += 3 {
			for _, passOver := range []int{0, 2, 20} {
				w := Wanted{Table: x.table, Partition: partitionOf("up"), First: startOf(first), Last: startOf(first + 4), PassOver: passOver, IDs: []string{x.series[0].id, x.series[3].id}}
				got, err := readAll(func(ctx context.Context, _ engine.Range) iter.Seq2[engine.Row, error] { return x.rows.Chunks(ctx, w) }, engine.Range{})
				require.NoError(t, err)
				all = append(all, got)
			}
		}
		return all
	}
	x.write(before, before+20, 1, false)
	want := read()
	require.NotEmpty(t, want[0])
	x.compact()
	got := read()
	for i := range want {
		requireRows(t, want[i], got[i], "compacted, %d", i)
	}
}

// TestCompactBesideWriters compacts while rows of the same series are written, and read: the highest versions are there
// at last.
func TestCompactBesideWriters(t *testing.T) {
	t.Parallel()
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			x := &besideRig{t: t, table: engine.R5m, eng: nil, series: seriesOf("up", 12)}
			eng := open(t)
			defer func() { require.NoError(t, eng.Close()) }()
			x.rows = New(eng, Options{Least: 2})
			x.rows.limits.compactBytes = 200
			require.NoError(t, x.rows.BeginLong(t.Context(), testWindow))
			x.write(0, 20, 1, true)
			var writers, others sync.WaitGroup
			done := make(chan struct{})
			for w := range 3 {
				writers.Go(func() {
					for version := range uint64(6) {
						for slot := w; slot < 20; slot += 3 {
							x.write(slot, slot+1, version+2, version%2 == 0)
						}
					}
				})
			}
			others.Go(func() {
				for {
					x.compact()
					rows := mustRead(t, x.rows.Scan, engine.Range{Table: x.table, Partition: partitionOf("up"), From: engine.Key{engine.Int(1)}, To: engine.Key{engine.Int(1)}, KeysOnly: true})
					assert.Len(t, rows, 12*20)
					select {
					case <-done:
						return
					default:
					}
				}
			})
			writers.Wait()
			close(done)
			others.Wait()
			x.compact()
			requireAllJoined(t, eng, x.table, partitionOf("up"))
			var want []testRow
			for _, s := range x.series {
				for slot := range 20 {
					m := s.rollups(x.table, slot, 7)
					want = append(want, testRow{key: m.Clustering, value: string(m.Value)})
				}
			}
			requireRows(t, want, mustRead(t, x.rows.Scan, engine.Range{Table: x.table, Partition: partitionOf("up"), From: engine.Key{engine.Int(1)}, To: engine.Key{engine.Int(1)}}), "at last")
		})
	}
}
