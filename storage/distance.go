package storage

import "github.com/cassia-db/cassia/storage/query"

// distance is how work is cut for an engine on this machine, or for one that is somewhere else, where it is the way there and back
// that takes time. A shared engine is far away.
type distance struct {
	// rebuildWorkers is how many partitions are read at once while the head is rebuilt. listWorkers is how many lists of
	// staged slots are read at once. rollWorkers is how many series are rolled up at once.
	rebuildWorkers, listWorkers, rollWorkers int
	// passOver is how many rows of others a scan for some series passes over, one after the other, before it begins anew at the
	// next row that may be theirs.
	passOver int
	// seekRows is how many rows an engine passes over in the time that it takes to begin a scan. Cassandra's first page of a scan has
	// hundreds of rows, whether they are wanted or not.
	seekRows int
	// groupRows is about how many chunks of an answer are read together, those of groupSeries series at least: of a metric of which all
	// series are wanted, each group of them lies scattered over the whole, as ids are hashes.
	groupRows int
	piece     sealPiece
}

// sealPiece is how much a pass writes at once: rows of about so many bytes, of so many series, and of their rollups so many bytes.
// Engines on this machine make sorted files of each write, so that larger pieces make larger and fewer of them; others
// send every piece over a network.
type sealPiece struct{ bytes, series, rollups int }

var (
	near = distance{rebuildWorkers: 2, listWorkers: 1, rollWorkers: 1, passOver: 32, seekRows: 20, piece: sealPiece{4 << 20, 1 << 14, 8 << 20}}
	far  = distance{rebuildWorkers: 16, listWorkers: 16, rollWorkers: query.ReadWorkers, passOver: 1000, seekRows: 500, groupRows: 1 << 16, piece: sealPiece{2 << 20, 1 << 12, 2 << 20}}
)

func (s *Store) distance() *distance {
	if s.opts.Shared {
		return &far
	}
	return &near
}
