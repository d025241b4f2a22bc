package pebble

import (
	"strings"

	pebbledb "github.com/cockroachdb/pebble/v2"
)

// logAhead is how much space a log allocates ahead of its end at first, bytes. Pebble asks for a whole memtable's at once.
const logAhead = 1 << 20

// cleaner removes files that are no longer needed, logs included. Pebble would keep as many as there may be memtables, and one more, to
// write new ones over them, for a sync of those is faster: 64 MiB each, of unused space. A cleaner that wants to see what is
// in a file, as that which moves it to an archive, gets each of them.
type cleaner struct {
	pebbledb.DeleteCleaner
	getsLogs
}

// getsLogs lends ArchiveCleaner's mark, which isn't exported; what it does is DeleteCleaner's, which is less deep.
type getsLogs struct{ pebbledb.ArchiveCleaner }

var _ pebbledb.Cleaner = cleaner{}

func isLog(name string) bool { return strings.HasSuffix(name, ".log") }

// Preallocate implements vfs.File.
func (f *vitalFile) Preallocate(offset, length int64) error {
	if isLog(f.name) {
		length = min(length, logAhead)
	}
	return f.File.Preallocate(offset, length)
}
