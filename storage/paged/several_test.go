package paged

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
)

// gathering is an engine that scans several partitions at once, and counts how often.
type gathering struct {
	engine.Engine
	scans, together *int
}

func (e gathering) Scan(ctx context.Context, r engine.Range) iter.Seq2[engine.Row, error] {
	*e.scans++
	return e.Engine.Scan(ctx, r)
}

// ScanSeveral implements engine.SeveralScanner.
func (e gathering) ScanSeveral(ctx context.Context, r engine.Range, partitions []engine.Key) iter.Seq2[engine.RowOf, error] {
	*e.together++
	return faultengine.ScanSeveral(ctx, e.Engine, r, partitions)
}

// TestSeveral reads some series of many metrics, of which some have pages, some rows, some more than are read together
// and some nothing: of each what Chunks reads of it alone.
func TestSeveral(t *testing.T) {
	for _, table := range rowTables {
		t.Run(table.Name, func(t *testing.T) {
			ctx, rng := context.Background(), rand.New(rand.NewPCG(1, 2))
			eng := gathering{memory.New(), new(int), new(int)}
			r := New(eng, Options{Shared: true})
			r.limits.together = 10
			var list []Wanted
			for m := range 40 {
				metric := fmt.Sprint("metric", m)
				series := seriesOf(metric, 1+m%7*m%11)
				b := engine.Batch{Table: table, Partition: partitionOf(metric)}
				for i := range series {
					s := &series[i]
					if m%5 > 0 {
						b.Mutations = append(b.Mutations, s.labelsRow(table))
					}
					for slot := range rng.IntN(3) {
						b.Mutations = append(b.Mutations, s.chunk(table, slot))
					}
				}
				write := r.WriteRows
				if m%3 == 0 {
					write = r.Write // Where there are eight series or more, these are in pages.
				}
				require.NoError(t, write(ctx, []engine.Batch{b}))
				w := Wanted{Table: table, Partition: b.Partition, First: startOf(0), Last: startOf(m % 2), KeysOnly: m%4 == 0, PassOver: 3}
				for i := range series {
					if i == 0 || rng.IntN(2) == 0 {
						w.IDs = append(w.IDs, series[i].id)
					}
				}
				list = append(list, w)
			}
			want := make([][]string, len(list))
			for i, w := range list {
				for row, err := range r.Chunks(ctx, w) {
					require.NoError(t, err)
					want[i] = append(want[i], rowText(row, w.KeysOnly))
				}
			}
			alone := *eng.scans
			*eng.scans = 0
			got := make([][]string, len(list))
			for row, err := range r.Several(ctx, list) {
				require.NoError(t, err)
				got[row.At] = append(got[row.At], rowText(row.Row, list[row.At].KeysOnly))
			}
			require.Equal(t, want, got)
			require.NotZero(t, *eng.together)
			require.Less(t, *eng.scans, alone)
			for range r.Several(ctx, list) {
				break // It ends there.
			}
		})
	}
}

func rowText(row engine.Row, keysOnly bool) string {
	if keysOnly {
		return fmt.Sprint(row.Clustering)
	}
	return fmt.Sprintf("%v %x", row.Clustering, row.Value)
}

// TestSeveralLooksForPagesFirst: rows take the place of entries before the pages of these go, so that who looks for
// pages first, and misses one, finds the rows.
func TestSeveralLooksForPagesFirst(t *testing.T) {
	ctx := context.Background()
	var asked []*engine.Table
	eng := memory.New()
	r := New(eng, Options{Shared: true})
	r.gatherer = gatherFunc(func(rows engine.Range, partitions []engine.Key) iter.Seq2[engine.RowOf, error] {
		asked = append(asked, rows.Table)
		return faultengine.ScanSeveral(ctx, eng, rows, partitions)
	})
	var list []Wanted
	for m := range 3 {
		list = append(list, Wanted{Table: engine.Raw, Partition: partitionOf(fmt.Sprint(m)), IDs: []string{seriesOf("m", 1)[0].id}, First: startOf(0), Last: startOf(1)})
	}
	for _, err := range r.Several(ctx, list) {
		require.NoError(t, err)
	}
	require.Equal(t, []*engine.Table{engine.RawPages, engine.Raw}, asked)
}

type gatherFunc func(engine.Range, []engine.Key) iter.Seq2[engine.RowOf, error]

func (f gatherFunc) ScanSeveral(_ context.Context, r engine.Range, partitions []engine.Key) iter.Seq2[engine.RowOf, error] {
	return f(r, partitions)
}

// TestSeveralFails has each of the reads fail: the error comes once, and nothing after it.
func TestSeveralFails(t *testing.T) {
	ctx, failure := context.Background(), errors.New("a failure")
	for fails := range 3 {
		n := 0
		eng := memory.New()
		r := New(eng, Options{Shared: true})
		r.gatherer = gatherFunc(func(rows engine.Range, partitions []engine.Key) iter.Seq2[engine.RowOf, error] {
			if n++; n == fails+1 {
				return func(yield func(engine.RowOf, error) bool) { yield(engine.RowOf{}, failure) }
			}
			return faultengine.ScanSeveral(ctx, eng, rows, partitions)
		})
		var list []Wanted
		for m := range 2 {
			s := seriesOf(fmt.Sprint(m), 1)[0]
			require.NoError(t, r.WriteRows(ctx, []engine.Batch{{Table: engine.Raw, Partition: partitionOf(s.metric), Mutations: []engine.Mutation{s.rawChunk(0, 0, 0)}}}))
			list = append(list, Wanted{Table: engine.Raw, Partition: partitionOf(s.metric), IDs: []string{s.id}, First: startOf(0), Last: startOf(0)})
		}
		var got []error
		for _, err := range r.Several(ctx, list) {
			got = append(got, err)
		}
		want := []error{failure}
		if fails == 2 { // There are two reads.
			want = []error{nil, nil}
		}
		require.Equal(t, want, got)
	}
}
