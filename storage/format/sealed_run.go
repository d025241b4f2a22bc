package format

import (
	"encoding/binary"
	"fmt"

	"github.com/cassia-db/cassia/storage/engine"
)

const sealedRunVersion = 1

// SealedRunKey returns the key of a row of the table named defined. The row records that a run of a stream's blobs is
// sealed; first is the number of the first blob. The number in the key is negative; the keys of definitions in the same
// partition have positive numbers.
func SealedRunKey(writer string, first int64) engine.Key {
	return engine.Key{engine.Text(writer), engine.Int(-1 - first)}
}

// isSealedRun reports whether a row of the table named defined has the key of a sealed run.
func isSealedRun(row engine.Row) bool { return row.Clustering[1].Int < 0 }

// AppendSealedRun returns the value of a run's row. The run's first number is in the row's key:
//
//	+---------+---------+
//	| version | last    |
//	| 1 byte:1| uvarint |
//	+---------+---------+
func AppendSealedRun(last int64) []byte {
	return binary.AppendUvarint([]byte{sealedRunVersion}, uint64(last))
}

// ParseSealedRun is the inverse of AppendSealedRun, and of SealedRunKey.
func ParseSealedRun(row engine.Row) (SeqRun, error) {
	run := SeqRun{First: -1 - row.Clustering[1].Int}
	if len(row.Value) < 2 || row.Value[0] != sealedRunVersion {
		return run, fmt.Errorf("%w: %d bytes are too few, or the version is unknown", ErrMalformedBlob, len(row.Value))
	}
	last, n := binary.Uvarint(row.Value[1:])
	if n != len(row.Value)-1 || last > MaxTime || int64(last) < run.First {
		return run, fmt.Errorf("%w: the last number is missing or out of range", ErrMalformedBlob)
	}
	run.Last = int64(last)
	return run, nil
}
