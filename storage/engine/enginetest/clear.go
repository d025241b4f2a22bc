package enginetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// testClear checks that Clear removes the rows between two keys or prefixes regardless of their timestamps, and that
// other rows and other partitions are unchanged.
func testClear(t *testing.T, e engine.Engine) {
	if !takesClear(e) {
		return
	}
	for _, table := range []*engine.Table{engine.Stage, engine.Raw, engine.R5m, engine.Catalog,
		engine.Sealed, engine.Shards} {
		bounds := clearBounds(table)
		for i, bound := range bounds {
			partition, other := plainKey(table.Partition), plainKey(table.Partition)
			if table.Partition[0].Kind != engine.KindInt {
				t.Fatalf("%s has no integer to tell partitions apart", table)
			}
			partition[0], other[0] = engine.Int(int64(3*i)), engine.Int(int64(3*i+1))
			rows := edgeRows(table, 60)
			writeShuffled(t, e, table, partition, rows)
			writeShuffled(t, e, table, other, rows)
			write(t, e, table, partition, clearRange(bound[0], bound[1]))
			left := slices.DeleteFunc(slices.Clone(rows), func(r row) bool {
				return engine.Compare(bound[0], r.key) <= 0 && engine.Compare(r.key, bound[1]) <= 0
			})
			require.Less(t, len(left), len(rows), "a range without rows shows nothing")
			requireRows(t, left, scanPartition(t, e, table, partition), "%s from %s to %s", table,
				formatKey(bound[0]), formatKey(bound[1]))
			requireRows(t, rows, scanPartition(t, e, table, other), "another partition of %s", table)
		}
	}
}

// clearBounds returns ranges that contain rows of edgeRows. Their bounds are whole keys, prefixes of each length, and
// pairs of different lengths.
func clearBounds(table *engine.Table) (bounds [][2]engine.Key) {
	rows := edgeRows(table, 60)
	add := func(from, to engine.Key) { bounds = append(bounds, [2]engine.Key{from, to}) }
	for _, i := range []int{0, len(rows) / 3, len(rows) - 1} {
		low, high := rows[i].key, rows[min(i+len(rows)/3, len(rows)-1)].key
		for n := 1; n <= len(table.Clustering); n++ {
			add(low[:n], low[:n])
			add(low[:n], high[:n])
			add(low[:n], high)
			add(low, high[:n])
		}
	}
	return bounds
}

// testClearBeforeOthers checks that rows exist after a batch that puts them and also clears their range, regardless of
// previous rows and of the order of the mutations in the batch.
func testClearBeforeOthers(t *testing.T, e engine.Engine) {
	if !takesClear(e) {
		return
	}
	partition := plainKey(engine.R5m.Partition)
	key := func(series byte, start int64) engine.Key {
		return engine.Key{engine.Int(1), id(series), engine.Int(start)}
	}
	at := func(key engine.Key, value string, timestamp int64) engine.Mutation {
		m := put(key, value)
		m.Timestamp = timestamp
		return m
	}
	for _, size := range []int{1, 100_000} { // An engine may write large values in a different way.
		old := func(name string) string { return fmt.Sprintf("%-*s", size, name) }
		write(t, e, engine.R5m, partition,
			at(key(1, 5), old("z"), 50), at(key(2, 5), old("z"), 50), at(key(2, 6), old("z"), 50),
			at(key(3, 5), old("z"), 50))
		write(t, e, engine.R5m, partition,
			at(key(2, 5), "older", -7), clearRange(key(2, 0)[:2], key(2, 0)[:2]), at(key(2, 9), "new", 50),
			clearRange(key(3, 5), key(3, 5)))
		requireRows(t, []row{{key(1, 5), old("z")}, {key(2, 5), "older"}, {key(2, 9), "new"}},
			scanPartition(t, e, engine.R5m, partition), "cleared and put")
		write(t, e, engine.R5m, partition, at(key(2, 5), "oldest", -9))
		require.Equal(t, "older", scanPartition(t, e, engine.R5m, partition)[1].value, "it converges still")
		write(t, e, engine.R5m, partition, clearRange(engine.Key{engine.Int(1)}, engine.Key{engine.Int(1)}))
		require.Empty(t, scanPartition(t, e, engine.R5m, partition))
	}
	sealed, mark := plainKey(engine.Sealed.Partition), plainKey(engine.Sealed.Clustering)
	write(t, e, engine.Sealed, sealed, put(mark, "v"))
	write(t, e, engine.Sealed, sealed, put(mark, "v"), clearRange(mark[:1], mark[:1]))
	requireRows(t, []row{{mark, "v"}}, scanPartition(t, e, engine.Sealed, sealed), "a row that comes back")
	write(t, e, engine.Sealed, sealed, clearRange(mark[:1], mark[:2]))
	require.Empty(t, scanPartition(t, e, engine.Sealed, sealed))
}

// testClearIsAtomic checks that each scan of a partition returns one row, while batches concurrently clear the
// partition and put one row each.
func testClearIsAtomic(t *testing.T, e engine.Engine) {
	if !takesClear(e) {
		return
	}
	const rounds = 100
	partition := plainKey(engine.R1h.Partition)
	all := engine.Key{engine.Int(1)}
	key := func(round int) engine.Key {
		return engine.Key{engine.Int(1), id(byte(round % 3)), engine.Int(int64(round))}
	}
	write(t, e, engine.R1h, partition, put(key(0), "v"))
	var writer sync.WaitGroup
	done := make(chan error, 1)
	writer.Go(func() {
		defer close(done)
		for round := 1; round <= rounds; round++ {
			if err := e.Write(context.Background(), []engine.Batch{{Table: engine.R1h, Partition: partition,
				Mutations: []engine.Mutation{put(key(round), "v"), clearRange(all, all)}}}); err != nil {
				done <- err
				return
			}
		}
	})
	for running := true; running; {
		select {
		case err := <-done:
			require.NoError(t, err)
			running = false
		default:
		}
		require.Len(t, scanPartition(t, e, engine.R1h, partition), 1, "half of a batch")
	}
	writer.Wait()
	requireRows(t, []row{{key(rounds), "v"}}, scanPartition(t, e, engine.R1h, partition), "the last round")
}

// testClearRefused checks that a Write applies nothing if it contains a valid batch and an invalid Clear, or a valid
// batch and a Clear that the engine doesn't support.
func testClearRefused(t *testing.T, e engine.Engine) {
	table := engine.R5m
	key := plainKey(table.Clustering)
	later := plainKey(table.Clustering)
	later[0] = engine.Int(8)
	refused := map[string]struct {
		batch engine.Batch
		err   error
	}{
		"backwards":        {plainBatch(table, clearRange(later, key)), engine.ErrBadWrite},
		"prefix backwards": {plainBatch(table, clearRange(later[:1], key)), engine.ErrBadWrite},
		"no beginning":     {plainBatch(table, clearRange(nil, key)), engine.ErrBadWrite},
		"no end":           {plainBatch(table, clearRange(key, nil)), engine.ErrBadWrite},
		"too long":         {plainBatch(table, clearRange(key, append(key.Clone(), engine.Int(1)))), engine.ErrBadKey},
		"text for integer": {plainBatch(table, clearRange(engine.Key{engine.Text("1")}, key)), engine.ErrBadKey},
		"conditional table": {plainBatch(engine.Store,
			clearRange(engine.Key{engine.Text("1")}, engine.Key{engine.Text("1")})), engine.ErrBadWrite},
	}
	if !takesClear(e) {
		for name, r := range refused {
			r.err = engine.ErrBadWrite
			refused[name] = r
		}
		refused["a good one"] = struct {
			batch engine.Batch
			err   error
		}{plainBatch(table, clearRange(key, later)), engine.ErrBadWrite}
	}
	for name, r := range refused {
		err := e.Write(context.Background(), []engine.Batch{plainBatch(engine.Shards), r.batch,
			plainBatch(engine.Windows)})
		require.ErrorIs(t, err, r.err, name)
		r.batch.Mutations = append([]engine.Mutation{put(plainKey(r.batch.Table.Clustering), "v")},
			r.batch.Mutations...)
		require.ErrorIs(t, e.Write(context.Background(), []engine.Batch{r.batch}), r.err, name)
	}
	for _, table := range engine.Tables {
		require.Empty(t, scanPartition(t, e, table, plainKey(table.Partition)), "table %s", table)
	}
}

// durableClear clears rows of table r5m if the engine supports it, and returns the rows that must remain.
func durableClear(t *testing.T, e engine.Engine) []row {
	partition := plainKey(engine.R5m.Partition)
	rows := edgeRows(engine.R5m, 30)
	writeShuffled(t, e, engine.R5m, partition, rows)
	if !takesClear(e) {
		return rows
	}
	kept := put(rows[4].key, "older")
	kept.Timestamp -= 5
	write(t, e, engine.R5m, partition, kept, clearRange(rows[3].key, rows[20].key))
	return slices.Concat(rows[:3], []row{{rows[4].key, "older"}}, rows[21:])
}
