package enginetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// writable returns the tables that Write accepts.
func writable() []*engine.Table {
	return slices.DeleteFunc(slices.Clone(engine.Tables), func(t *engine.Table) bool { return t.Conditional })
}

// edgeRows returns n rows of a table in the order of their keys. The fields of the keys have extreme values.
func edgeRows(t *engine.Table, n int) []row {
	rng := rand.New(rand.NewPCG(1, uint64(t.ID)))
	rows := make([]row, n)
	for i := range rows {
		rows[i].key = randomKey(rng, t.Clustering)
	}
	slices.SortFunc(rows, func(a, b row) int { return engine.Compare(a.key, b.key) })
	rows = slices.CompactFunc(rows, func(a, b row) bool { return engine.Compare(a.key, b.key) == 0 })
	for i := range rows {
		rows[i].value = fmt.Sprintf("row %d", i)
	}
	return rows
}

func writeShuffled(t testing.TB, e engine.Engine, table *engine.Table, partition engine.Key, rows []row) {
	t.Helper()
	mutations := make([]engine.Mutation, len(rows))
	for i, r := range rows {
		mutations[i] = put(r.key, r.value)
	}
	rng := rand.New(rand.NewPCG(2, 2))
	rng.Shuffle(len(mutations), func(i, j int) { mutations[i], mutations[j] = mutations[j], mutations[i] })
	for part := range slices.Chunk(mutations, 1+len(mutations)/3) {
		write(t, e, table, partition, part...)
	}
}

func testOrder(t *testing.T, e engine.Engine) {
	for _, table := range writable() {
		partition := plainKey(table.Partition)
		rows := edgeRows(table, 300)
		writeShuffled(t, e, table, partition, rows)
		requireRows(t, rows, scanPartition(t, e, table, partition), "table %s", table)
	}
}

// testPartitionsApart checks that a scan returns only the rows of one partition, even if the keys of other partitions
// are neighbors or prefixes of its key.
func testPartitionsApart(t *testing.T, e engine.Engine) {
	for _, table := range writable() {
		rng := rand.New(rand.NewPCG(3, uint64(table.ID)))
		partitions := map[string]engine.Key{}
		for range 100 {
			p := randomKey(rng, table.Partition)
			if len(p) == 1 && p[0] == engine.Text("") {
				continue // Cassandra has no empty partition keys, and each tenant has a name.
			}
			partitions[formatKey(p)] = p
		}
		key := plainKey(table.Clustering)
		var batches []engine.Batch
		for name, p := range partitions {
			batches = append(batches, engine.Batch{Table: table, Partition: p,
				Mutations: []engine.Mutation{put(key, name)}})
		}
		require.NoError(t, e.Write(context.Background(), batches))
		for name, p := range partitions {
			requireRows(t, []row{{key, name}}, scanPartition(t, e, table, p), "partition %s of %s", name, table)
		}
	}
}

func testTablesApart(t *testing.T, e engine.Engine) {
	for _, table := range writable() {
		write(t, e, table, plainKey(table.Partition), put(plainKey(table.Clustering), table.Name))
	}
	for _, table := range writable() {
		want := []row{{plainKey(table.Clustering), table.Name}}
		requireRows(t, want, scanPartition(t, e, table, plainKey(table.Partition)), "table %s", table)
	}
}

func testBounds(t *testing.T, e engine.Engine) {
	for _, table := range []*engine.Table{engine.Stage, engine.Staged, engine.Raw, engine.Catalog} {
		partition := plainKey(table.Partition)
		rows := edgeRows(table, 60)
		writeShuffled(t, e, table, partition, rows)
		var bounds []engine.Key
		for i := 0; i < len(rows); i += 4 {
			bounds = append(bounds, rows[i].key[:1+i/4%len(table.Clustering)])
		}
		bounds = append(bounds, nil, plainKey(table.Clustering), plainKey(table.Clustering)[:1])
		for _, from := range bounds {
			for _, to := range bounds {
				want := slices.DeleteFunc(slices.Clone(rows), func(r row) bool {
					return engine.Compare(r.key, from) < 0 || engine.Compare(r.key, to) > 0
				})
				got := scan(t, e, engine.Range{Table: table, Partition: partition, From: from, To: to})
				requireRows(t, want, got, "%s from %s to %s", table, formatKey(from), formatKey(to))
			}
		}
	}
}

func testLimitAndKeysOnly(t *testing.T, e engine.Engine) {
	for _, table := range []*engine.Table{engine.Raw, engine.Shards} {
		partition := plainKey(table.Partition)
		rows := edgeRows(table, 20)
		writeShuffled(t, e, table, partition, rows)
		for limit := range len(rows) + 2 {
			want := rows
			if limit > 0 {
				want = rows[:min(limit, len(rows))]
			}
			r := engine.Range{Table: table, Partition: partition, Limit: limit}
			requireRows(t, want, scan(t, e, r), "limit %d", limit)
			r.KeysOnly = true
			got := scan(t, e, r)
			require.Len(t, got, len(want))
			for i := range got {
				require.Equal(t, want[i].key, got[i].key)
			}
		}
	}
}

func testScanNothing(t *testing.T, e engine.Engine) {
	for _, table := range engine.Tables {
		require.Empty(t, scanPartition(t, e, table, plainKey(table.Partition)), "table %s", table)
	}
}

// testScanAgain checks that each iteration over the result of one call of Scan starts at the first row and yields the
// rows that were written before the iteration, even if an earlier iteration hasn't reached the end.
func testScanAgain(t *testing.T, e engine.Engine) {
	partition := plainKey(engine.Raw.Partition)
	rows := edgeRows(engine.Raw, 20)
	writeShuffled(t, e, engine.Raw, partition, rows)
	seq := e.Scan(context.Background(), engine.Range{Table: engine.Raw, Partition: partition})
	for range 3 {
		n := 0
		for r, err := range seq {
			require.NoError(t, err)
			require.Equal(t, rows[n].key, r.Clustering)
			if n++; n == 3 {
				break
			}
		}
		require.Equal(t, 3, n)
	}
	later := row{key: engine.Key{engine.Int(5), engine.Int(5), id(5), id(5)}, value: "later"}
	write(t, e, engine.Raw, partition, put(later.key, later.value))
	n := 0
	for _, err := range seq {
		require.NoError(t, err)
		n++
	}
	require.Equal(t, len(rows)+1, n, "a scan sees what was written before it is iterated, not before it was made")
}

// testScanWhileWriting checks that the loop over a scan may write to the engine and start other scans.
func testScanWhileWriting(t *testing.T, e engine.Engine) {
	table, partition := engine.Stage, plainKey(engine.Stage.Partition)
	for seq := range int64(50) {
		write(t, e, table, partition, put(engine.Key{id(5), engine.Int(2 * seq)}, "before"))
	}
	before := 0
	for r, err := range e.Scan(context.Background(), engine.Range{Table: table, Partition: partition}) {
		require.NoError(t, err)
		if string(r.Value) == "during" {
			continue // A scan may or may not yield rows that are written during it.
		}
		require.Equal(t, engine.Key{id(5), engine.Int(2 * int64(before))}, r.Clustering)
		write(t, e, table, partition, put(engine.Key{id(5), engine.Int(2*int64(before) + 1)}, "during"))
		require.Len(t, scan(t, e, engine.Range{Table: table, Partition: partition, Limit: 2}), 2)
		before++
	}
	require.Equal(t, 50, before)
	require.Len(t, scanPartition(t, e, table, partition), 100)
}

func testScanCancelled(t *testing.T, e engine.Engine) {
	table, partition := engine.Stage, plainKey(engine.Stage.Partition)
	var mutations []engine.Mutation
	for seq := range int64(3000) {
		mutations = append(mutations, put(engine.Key{id(5), engine.Int(seq)}, strings.Repeat("x", 200)))
	}
	write(t, e, table, partition, mutations...)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	rows, failures := 0, 0
	for r, err := range e.Scan(ctx, engine.Range{Table: table, Partition: partition}) {
		if err != nil {
			require.ErrorIs(t, err, context.Canceled)
			require.Zero(t, r)
			failures++
			continue
		}
		require.Zero(t, failures, "a row after the error")
		rows++
		cancel()
	}
	require.Equal(t, 1, failures, "after %d rows", rows)
	require.Less(t, rows, 3000)
}

func testManyRows(t *testing.T, e engine.Engine) {
	table, partition := engine.Raw, plainKey(engine.Raw.Partition)
	want := make([]row, 5000)
	var mutations []engine.Mutation
	for i := range want {
		want[i] = row{key: engine.Key{engine.Int(1), engine.Int(int64(i / 100)), id(byte(i % 100)), id(1)},
			value: strings.Repeat(fmt.Sprint(i), 40)}
		mutations = append(mutations, put(want[i].key, want[i].value))
	}
	for part := range slices.Chunk(mutations, 1000) {
		write(t, e, table, partition, part...)
	}
	requireRows(t, want, scanPartition(t, e, table, partition), "all")
	requireRows(t, want[3000:3100], scan(t, e, engine.Range{
		Table: table, Partition: partition, From: want[3000].key[:2], To: want[3000].key[:2]}), "one slot")
}

func testBadRange(t *testing.T, e engine.Engine) {
	good := engine.Range{Table: engine.Raw, Partition: plainKey(engine.Raw.Partition)}
	for name, change := range map[string]func(*engine.Range){
		"short partition":  func(r *engine.Range) { r.Partition = r.Partition[:2] },
		"long partition":   func(r *engine.Range) { r.Partition = append(slices.Clone(r.Partition), engine.Int(1)) },
		"text for integer": func(r *engine.Range) { r.From = engine.Key{engine.Text("x")} },
		"short id":         func(r *engine.Range) { r.To = engine.Key{engine.Int(1), engine.Text("short")} },
		"long bound":       func(r *engine.Range) { r.To = append(plainKey(r.Table.Clustering), engine.Int(1)) },
	} {
		r := good
		change(&r)
		_, err := tryScan(e, r)
		require.ErrorIs(t, err, engine.ErrBadKey, name)
	}
	require.ErrorIs(t, e.Drop(context.Background(), engine.Raw, engine.Key{engine.Text("x")}), engine.ErrBadKey)
	_, err := tryScan(e, good)
	require.NoError(t, err)
}
