package enginetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

func testWriteNothing(t *testing.T, e engine.Engine) {
	ctx := context.Background()
	require.NoError(t, e.Write(ctx, nil))
	require.NoError(t, e.Write(ctx, []engine.Batch{}))
	require.NoError(t, e.Write(ctx, []engine.Batch{{Table: engine.Stage, Partition: plainKey(engine.Stage.Partition)}}))
}

func testWriteAgain(t *testing.T, e engine.Engine) {
	table, partition := engine.Stage, plainKey(engine.Stage.Partition)
	rows := edgeRows(table, 20)
	for range 3 {
		writeShuffled(t, e, table, partition, rows)
		requireRows(t, rows, scanPartition(t, e, table, partition), "written again")
	}
}

// testWriteManyBatches checks a Write to many partitions of two tables that contains more data than an engine commits
// at once.
func testWriteManyBatches(t *testing.T, e engine.Engine) {
	value := strings.Repeat("v", 200<<10)
	var batches []engine.Batch
	for slot := range int64(60) {
		key := engine.Key{id(1), engine.Int(slot)}
		batches = append(batches,
			engine.Batch{Table: engine.Stage, Partition: engine.Key{engine.Int(slot), engine.Int(0)},
				Mutations: []engine.Mutation{put(key, value)}},
			engine.Batch{Table: engine.Staged, Partition: engine.Key{engine.Int(slot), engine.Int(0)},
				Mutations: []engine.Mutation{put(append(engine.Key{engine.Int(slot)}, key...), "")}})
	}
	require.NoError(t, e.Write(context.Background(), batches))
	for slot := range int64(60) {
		partition := engine.Key{engine.Int(slot), engine.Int(0)}
		key := engine.Key{id(1), engine.Int(slot)}
		requireRows(t, []row{{key, value}}, scanPartition(t, e, engine.Stage, partition), "slot %d", slot)
		requireRows(t, []row{{append(engine.Key{engine.Int(slot)}, key...), ""}},
			scanPartition(t, e, engine.Staged, partition), "slot %d", slot)
	}
}

// testWriteKeepsNothing checks that an engine doesn't retain memory that was passed to Write: it modifies the memory
// after Write has returned, and the stored rows must be unchanged.
func testWriteKeepsNothing(t *testing.T, e engine.Engine) {
	ctx := context.Background()
	tables := writable()
	var want [][]row
	buf := make([]byte, 100)
	for i, table := range tables {
		for j := range buf {
			buf[j] = byte(i)
		}
		partition, key := plainKey(table.Partition), plainKey(table.Clustering)
		want = append(want, []row{{key.Clone(), string(buf)}})
		batches := []engine.Batch{{Table: table, Partition: partition,
			Mutations: []engine.Mutation{{Clustering: key, Timestamp: someTime, Value: buf}}}}
		require.NoError(t, e.Write(ctx, batches))
		clear(partition)
		clear(key)
		clear(batches[0].Mutations)
		clear(batches)
	}
	clear(buf)
	for i, table := range tables {
		requireRows(t, want[i], scanPartition(t, e, table, plainKey(table.Partition)), "table %s", table)
	}
}

func testWriteCancelled(t *testing.T, e engine.Engine) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	table := engine.Stage
	err := e.Write(ctx, []engine.Batch{{Table: table, Partition: plainKey(table.Partition),
		Mutations: []engine.Mutation{put(plainKey(table.Clustering), "x")}}})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, e.Drop(ctx, table, nil), context.Canceled)
	_, _, err = e.CompareAndSet(ctx, engine.Store, plainKey(engine.Store.Partition),
		plainKey(engine.Store.Clustering), nil, []byte("x"))
	require.ErrorIs(t, err, context.Canceled)
	write(t, e, table, plainKey(table.Partition), put(plainKey(table.Clustering), "y"))
}

func testEmptyValue(t *testing.T, e engine.Engine) {
	for _, table := range writable() {
		partition, key := plainKey(table.Partition), plainKey(table.Clustering)
		write(t, e, table, partition, put(key, ""))
		requireRows(t, []row{{key, ""}}, scanPartition(t, e, table, partition), "table %s", table)
	}
}

func testDelete(t *testing.T, e engine.Engine) {
	for _, table := range []*engine.Table{engine.Stage, engine.Staged, engine.Sealed, engine.Raw} {
		partition := plainKey(table.Partition)
		rows := edgeRows(table, 60)
		writeShuffled(t, e, table, partition, rows)
		var left []row
		for i, r := range rows {
			if i%3 == 0 {
				write(t, e, table, partition, remove(r.key))
			} else {
				left = append(left, r)
			}
		}
		write(t, e, table, partition, remove(rows[0].key), remove(plainKey(table.Clustering)))
		requireRows(t, left, scanPartition(t, e, table, partition), "table %s", table)
	}
}

func testDeleteRange(t *testing.T, e engine.Engine) {
	table := engine.Stage
	ints := edgeInts()
	partitionNumber := int64(0)
	for from := range ints {
		for _, to := range []int{from, from + 1, from + 3, len(ints) - 1} {
			if to >= len(ints) {
				continue
			}
			partitionNumber++
			partition := engine.Key{engine.Int(-1), engine.Int(partitionNumber)}
			var all, left []row
			for _, writer := range []byte{4, 5, 6} {
				for i, seq := range ints {
					r := row{key: engine.Key{id(writer), engine.Int(seq)}, value: fmt.Sprint(seq)}
					all = append(all, r)
					if writer != 5 || i < from || i > to {
						left = append(left, r)
					}
				}
			}
			writeShuffled(t, e, table, partition, all)
			write(t, e, table, partition, removeRange(engine.Key{id(5), engine.Int(ints[from])},
				engine.Key{id(5), engine.Int(ints[to])}))
			requireRows(t, left, scanPartition(t, e, table, partition), "%d to %d", ints[from], ints[to])
		}
	}
}

// testDeleteMindsTimestamps checks that a delete doesn't remove rows whose timestamps are higher than the timestamp of
// the delete.
func testDeleteMindsTimestamps(t *testing.T, e engine.Engine) {
	table, partition := engine.Stage, plainKey(engine.Stage.Partition)
	rows := []row{{engine.Key{id(5), engine.Int(1)}, "one"}, {engine.Key{id(5), engine.Int(2)}, "two"}}
	writeShuffled(t, e, table, partition, rows)
	early := remove(rows[0].key)
	early.Timestamp--
	write(t, e, table, partition, early)
	earlyRange := removeRange(rows[0].key, rows[1].key)
	earlyRange.Timestamp--
	write(t, e, table, partition, earlyRange)
	requireRows(t, rows, scanPartition(t, e, table, partition), "deletes with an earlier timestamp")

	write(t, e, table, partition, remove(rows[0].key))
	writeShuffled(t, e, table, partition, rows)
	requireRows(t, rows[1:], scanPartition(t, e, table, partition),
		"a write that comes after a delete with its timestamp")
}

// testConverging checks that multiple versions of a row have the same result in each possible order of the writes.
func testConverging(t *testing.T, e engine.Engine) {
	versions := []engine.Mutation{
		{Timestamp: -5, Value: []byte("zzz")},
		{Timestamp: 0, Value: []byte("zz")},
		{Timestamp: 300, Value: []byte("")},
		{Timestamp: 300, Value: []byte("a")},
		{Timestamp: 300, Value: []byte("a\x00")},
	}
	n := int64(0)
	permute(len(versions), func(order []int) {
		n++
		partition, key := engine.Key{engine.Int(n), engine.Text("t")}, engine.Key{engine.Text("mark")}
		best := -1
		for _, i := range order {
			m := versions[i]
			m.Clustering = key
			write(t, e, engine.Shards, partition, m)
			best = max(best, i)
			if n%10 == 0 {
				requireRows(t, []row{{key, string(versions[best].Value)}},
					scanPartition(t, e, engine.Shards, partition), "order %v, at %d", order, i)
			}
		}
		requireRows(t, []row{{key, "a\x00"}}, scanPartition(t, e, engine.Shards, partition), "order %v", order)
	})
}

// permute calls do with each permutation of 0…n-1.
func permute(n int, do func([]int)) {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	var step func(k int)
	step = func(k int) {
		if k == n {
			do(slices.Clone(order))
			return
		}
		for i := k; i < n; i++ {
			order[k], order[i] = order[i], order[k]
			step(k + 1)
			order[k], order[i] = order[i], order[k]
		}
	}
	step(0)
}

func testConvergingInOneBatch(t *testing.T, e engine.Engine) {
	partition, key := engine.Key{engine.Int(1), engine.Text("t")}, engine.Key{engine.Text("mark")}
	newer, older := put(key, "newer"), put(key, "older")
	newer.Timestamp++
	write(t, e, engine.Shards, partition, older, newer, older)
	requireRows(t, []row{{key, "newer"}}, scanPartition(t, e, engine.Shards, partition), "one batch")
}

// testBatchIsAtomic checks that a scan sees all changes of a batch or none: it scans a partition while batches replace
// all rows of the partition.
func testBatchIsAtomic(t *testing.T, e engine.Engine) {
	const rows, rounds = 10, 100
	partition := engine.Key{engine.Int(3), engine.Text("t")}
	batch := func(round int) []engine.Mutation {
		mutations := make([]engine.Mutation, rows)
		for i := range mutations {
			mutations[i] = put(engine.Key{engine.Text(fmt.Sprint(i))}, fmt.Sprint(round))
			mutations[i].Timestamp = int64(round)
		}
		return mutations
	}
	write(t, e, engine.Shards, partition, batch(0)...)
	var writer sync.WaitGroup
	done := make(chan error, 1)
	writer.Go(func() {
		defer close(done)
		for round := 1; round <= rounds; round++ {
			if err := e.Write(context.Background(),
				[]engine.Batch{{Table: engine.Shards, Partition: partition, Mutations: batch(round)}}); err != nil {
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
		got := scanPartition(t, e, engine.Shards, partition)
		require.Len(t, got, rows)
		for _, r := range got {
			require.Equal(t, got[0].value, r.value, "half of a batch: %v", got)
		}
	}
	writer.Wait()
	require.Equal(t, fmt.Sprint(rounds), scanPartition(t, e, engine.Shards, partition)[0].value)
}
