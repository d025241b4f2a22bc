package bucketfn

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/rollup"
)

// TestLiveBucketsHaveAllColumns checks that liveBuckets copies every column.
func TestLiveBucketsHaveAllColumns(t *testing.T) {
	var b rollup.Buckets
	fields := reflect.ValueOf(&b).Elem()
	isColumn := func(f reflect.StructField) bool { return f.IsExported() && f.Name != "Wholes" }
	for f := range fields.Type().Fields() {
		if isColumn(f) {
			fields.FieldByIndex(f.Index).Set(reflect.MakeSlice(f.Type, 3, 3))
		}
	}
	b.Count[0], b.Count[2] = 1, 1
	var e Evaluator
	live := reflect.ValueOf(e.liveBuckets(&b)).Elem()
	for f := range live.Type().Fields() {
		if isColumn(f) && f.Name != "Sketches" { // No function of this package reads sketches.
			require.Equal(t, 2, live.FieldByIndex(f.Index).Len(), "liveBuckets ignores column %s: add it there", f.Name)
		}
	}
}
