package enginetest

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

func testLargestAllowed(t *testing.T, e engine.Engine) {
	table, partition := engine.Stage, plainKey(engine.Stage.Partition)
	value := strings.Repeat("v", engine.MaxValue)
	rows := []row{{engine.Key{id(1), engine.Int(1)}, value}}
	// The keys count towards the size of a batch: 16 bytes for the partition key and 24 for each row's key.
	rows = append(rows, row{engine.Key{id(1), engine.Int(2)}, value[:engine.MaxBatch-engine.MaxValue-16-2*24]})
	write(t, e, table, partition, put(rows[0].key, rows[0].value), put(rows[1].key, rows[1].value))
	requireRows(t, rows, scanPartition(t, e, table, partition), "a full batch")

	long := engine.Key{engine.Text(strings.Repeat("\x00", engine.MaxKeyText))}
	write(t, e, engine.Catalog, plainKey(engine.Catalog.Partition), put(long, ""))
	requireRows(t, []row{{long, ""}}, scanPartition(t, e, engine.Catalog, plainKey(engine.Catalog.Partition)),
		"a long text")
}

// refusedBatches returns batches that every engine must reject, by name, each with its error.
func refusedBatches() map[string]struct {
	batch engine.Batch
	err   error
} {
	type refusal = struct {
		batch engine.Batch
		err   error
	}
	stage := func(mutations ...engine.Mutation) engine.Batch {
		return engine.Batch{Table: engine.Stage, Partition: plainKey(engine.Stage.Partition), Mutations: mutations}
	}
	row := func(writer engine.Value, seq engine.Value) engine.Key { return engine.Key{writer, seq} }
	large := strings.Repeat("v", engine.MaxValue+1)
	return map[string]refusal{
		"value too large": {stage(put(row(id(1), engine.Int(1)), large)), engine.ErrTooLarge},
		"batch too large": {stage(put(row(id(1), engine.Int(1)), large[1:]), put(row(id(1), engine.Int(2)), large[1:])),
			engine.ErrTooLarge},
		"short partition": {engine.Batch{Table: engine.Stage, Partition: engine.Key{engine.Int(1)},
			Mutations: []engine.Mutation{put(plainKey(engine.Stage.Clustering), "")}}, engine.ErrBadKey},
		"short row":        {stage(put(engine.Key{id(1)}, "")), engine.ErrBadKey},
		"long row":         {stage(put(engine.Key{id(1), engine.Int(1), engine.Int(1)}, "")), engine.ErrBadKey},
		"text for integer": {stage(put(row(id(1), engine.Text("1")), "")), engine.ErrBadKey},
		"id too short":     {stage(put(row(engine.Text("short"), engine.Int(1)), "")), engine.ErrBadKey},
		"id too long": {stage(put(row(engine.Text(strings.Repeat("x", engine.IDLen+1)), engine.Int(1)), "")),
			engine.ErrBadKey},
		"unknown operation": {stage(engine.Mutation{Op: 99, Clustering: row(id(1), engine.Int(1))}),
			engine.ErrBadWrite},
		"text too long": {engine.Batch{Table: engine.Catalog, Partition: plainKey(engine.Catalog.Partition),
			Mutations: []engine.Mutation{put(engine.Key{engine.Text(strings.Repeat("x", engine.MaxKeyText+1))}, "")}},
			engine.ErrBadKey},
		"range backwards": {stage(removeRange(row(id(1), engine.Int(2)), row(id(1), engine.Int(1)))),
			engine.ErrBadWrite},
		"range over writers": {stage(removeRange(row(id(1), engine.Int(1)), row(id(2), engine.Int(1)))),
			engine.ErrBadWrite},
		"range with no end": {stage(engine.Mutation{Op: engine.DeleteRange, Clustering: row(id(1), engine.Int(1))}),
			engine.ErrBadKey},
		"no table":          {engine.Batch{}, engine.ErrBadWrite},
		"conditional table": {plainBatch(engine.Store), engine.ErrBadWrite},
		"delete converging": {plainBatch(engine.Shards, remove(plainKey(engine.Shards.Clustering))),
			engine.ErrBadWrite},
		"delete range of ids": {plainBatch(engine.Raw,
			removeRange(plainKey(engine.Raw.Clustering), plainKey(engine.Raw.Clustering))), engine.ErrBadWrite},
	}
}

// plainBatch returns a valid batch with the given mutations, or with one Put if there are none.
func plainBatch(table *engine.Table, mutations ...engine.Mutation) engine.Batch {
	if len(mutations) == 0 {
		mutations = []engine.Mutation{put(plainKey(table.Clustering), "v")}
	}
	return engine.Batch{Table: table, Partition: plainKey(table.Partition), Mutations: mutations}
}

func testRefused(t *testing.T, e engine.Engine) {
	for name, r := range refusedBatches() {
		require.ErrorIs(t, e.Write(context.Background(), []engine.Batch{r.batch}), r.err, name)
	}
}

// testRefusedLeavesNothing checks that a Write with valid batches before and after an invalid batch applies none of the
// batches.
func testRefusedLeavesNothing(t *testing.T, e engine.Engine) {
	for name, r := range refusedBatches() {
		err := e.Write(context.Background(), []engine.Batch{plainBatch(engine.Shards), r.batch,
			plainBatch(engine.Windows)})
		require.ErrorIs(t, err, r.err, name)
	}
	for _, table := range engine.Tables {
		require.Empty(t, scanPartition(t, e, table, plainKey(table.Partition)), "table %s", table)
	}
}
