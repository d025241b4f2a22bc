package cassandra

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

func catalogRow(label, value string) engine.Batch {
	return engine.Batch{
		Table: engine.Catalog,
		Partition: engine.Key{
			engine.Int(1), engine.Int(0), engine.Text("ann"), engine.Int(2), engine.Text(label), engine.Int(0),
		},
		Mutations: []engine.Mutation{{Clustering: engine.Key{engine.Text(value)}, Timestamp: 1, Value: []byte{1}}},
	}
}

// TestMergeKeepsMutations checks that merging small and large batches of multiple partitions and tables keeps the order
// of the mutations of each partition, and that it results in as few batches as the sizes permit.
func TestMergeKeepsMutations(t *testing.T) {
	var batches []engine.Batch
	for i := range 3000 {
		batches = append(batches, catalogRow(fmt.Sprint("label", i%3), fmt.Sprint(i)))
		if i%1000 == 0 {
			batches = append(batches, stage(7, mutation(int64(i), make([]byte, mergeBytes/2))))
		}
	}
	// Add keys whose texts would be ambiguous if they were only concatenated.
	batches = append(batches,
		engine.Batch{
			Table: engine.Held, Partition: engine.Key{engine.Text("a"), engine.Text("bc"), engine.Int(1)},
			Mutations: []engine.Mutation{{Timestamp: 1}},
		},
		engine.Batch{
			Table: engine.Held, Partition: engine.Key{engine.Text("ab"), engine.Text("c"), engine.Int(1)},
			Mutations: []engine.Mutation{{Timestamp: 2}},
		})
	by := func(list []engine.Batch) map[string][]engine.Mutation {
		found := map[string][]engine.Mutation{}
		for _, b := range list {
			at := fmt.Sprintf("%s %q", b.Table, fmt.Sprint(b.Partition))
			found[at] = append(found[at], b.Mutations...)
		}
		return found
	}
	before := by(batches)
	merged := mergeBatches(batches)
	require.Equal(t, before, by(merged))
	require.Equal(t, before, by(batches), "the caller's batches stay")
	count := map[string]int{}
	for _, b := range merged {
		count[b.Table.Name]++
		require.True(t, len(b.Mutations) == 1 || sizeOf(&b) <= mergeBytes)
	}
	require.Equal(t, map[string]int{"catalog": 3, "stage": 3, "held": 2}, count)
}

// TestRowsOfOnePartitionTakeOneRequest checks that names of one partition that are written as one batch each, as a seal
// does, take one request to write and one to read.
func TestRowsOfOnePartitionTakeOneRequest(t *testing.T) {
	o := testOptions(t)
	t.Parallel()
	e := open(t, o)
	defer func() { require.NoError(t, e.Close()) }()
	label := strings.ReplaceAll(t.Name(), "/", "_")
	var batches []engine.Batch
	for i := range 200 {
		batches = append(batches, catalogRow(label, fmt.Sprintf("%03d", i)))
	}
	write(t, e, batches...)
	require.Equal(t, 1.0, testutil.ToFloat64(e.metrics.tables.WithLabelValues(string(opWrite), "catalog")))
	n := 0
	for row, err := range e.Scan(context.Background(), rangeOf(batches[0])) {
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("%03d", n), row.Clustering[0].Text)
		n++
	}
	require.Equal(t, 200, n)
	require.Equal(t, 1.0, testutil.ToFloat64(e.metrics.tables.WithLabelValues(string(opScan), "catalog")))
}
