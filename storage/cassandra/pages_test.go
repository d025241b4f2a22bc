package cassandra

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// TestNoPages checks the error of reading a table that exists only in embedded engines, as `cassia check --table` may.
func TestNoPages(t *testing.T) {
	e := open(t, testOptions(t))
	defer func() { require.NoError(t, e.Close()) }()
	partition := engine.Key{engine.Int(1), engine.Int(0), engine.Text("default"), engine.Text("up"), engine.Int(0)}
	for row, err := range e.Scan(t.Context(), engine.Range{Table: engine.RawPages, Partition: partition}) {
		require.ErrorContains(t, err, "there is no table raw_pages in Cassandra")
		require.Zero(t, row)
	}
}
