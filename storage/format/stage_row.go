package format

import (
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
)

// StageRow is the clustering key of a row of the staging log (table stage).
type StageRow struct {
	Writer string
	Seq    int64
}

// StageRowOf returns the key of a row of table stage or defined. It copies the writer.
func StageRowOf(row engine.Row) StageRow {
	return StageRow{Writer: strings.Clone(row.Clustering[0].Text), Seq: row.Clustering[1].Int}
}

// Key returns the clustering key of the row.
func (r StageRow) Key() engine.Key { return engine.Key{engine.Text(r.Writer), engine.Int(r.Seq)} }

// SeqRun is a range of numbers of a stream, both ends included.
type SeqRun struct{ First, Last int64 }

// StageTimestamp is the write timestamp of rows in tables stage and staged. Their keys never have different contents,
// and a delete uses the same timestamp.
const StageTimestamp = 1
