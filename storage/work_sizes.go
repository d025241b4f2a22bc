package storage

import "github.com/cassia-db/cassia/storage/query"

// workSizes holds batch sizes and numbers of workers that depend on whether the engine is local or remote. With a
// remote engine, which includes all shared engines, most of the time is spent on round trips.
type workSizes struct {
	// rebuildWorkers is the number of partitions that are read concurrently while the head is rebuilt. listWorkers is
	// the number of lists of staged slots that are read concurrently. rollWorkers is the number of series that are
	// rolled up concurrently.
	rebuildWorkers, listWorkers, rollWorkers int
	// passOver is the number of unwanted rows that a scan for some series reads before it starts a new scan at the next
	// wanted key.
	passOver int
	// seekRows is the number of rows that an engine reads in the time needed to start a scan. On Cassandra the first
	// page of a scan has hundreds of rows, whether they are needed or not.
	seekRows int
	// groupRows is the approximate number of a query's chunks that are read together. The chunks of query.GroupSeries
	// series are read together in any case. Larger groups are faster when all series of a metric are read: ids are
	// hashes, so the chunks of each group are scattered over all rows.
	groupRows int
	piece     sealPiece
}

// sealPiece bounds one write of a pass: the bytes of rows, the number of series, and the bytes of their rollups. Local
// engines turn each write into sorted files, so larger pieces produce larger and fewer files; remote engines send each
// piece over the network.
type sealPiece struct{ bytes, series, rollups int }

var (
	localSizes = workSizes{
		rebuildWorkers: 2, listWorkers: 1, rollWorkers: 1, passOver: 32, seekRows: 20,
		piece: sealPiece{4 << 20, 1 << 14, 8 << 20},
	}
	remoteSizes = workSizes{
		rebuildWorkers: 16, listWorkers: 16, rollWorkers: query.ReadWorkers, passOver: 1000, seekRows: 500,
		groupRows: 1 << 16, piece: sealPiece{2 << 20, 1 << 12, 2 << 20},
	}
)

func (s *Store) workSizes() *workSizes {
	if s.opts.Shared {
		return &remoteSizes
	}
	return &localSizes
}
