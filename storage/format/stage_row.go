package format

import (
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
)

// StageRow names a row of the stage within its slot partition.
type StageRow struct {
	Writer string
	Seq    int64
}

// StageRowOf returns the name of a row of table stage or defined, of which it keeps a copy.
func StageRowOf(row engine.Row) StageRow {
	return StageRow{Writer: strings.Clone(row.Clustering[0].Text), Seq: row.Clustering[1].Int}
}

// Key is the clustering key of the row.
func (r StageRow) Key() engine.Key { return engine.Key{engine.Text(r.Writer), engine.Int(r.Seq)} }

// SeqRun is a run of numbers of a stream, both ends included.
type SeqRun struct{ First, Last int64 }

// StageTimestamp is the write timestamp of stage and staged rows: their keys name one content, and
// are deleted with the timestamp they were written with.
const StageTimestamp = 1
