package pebble

import (
	"strings"

	pebbledb "github.com/cockroachdb/pebble/v2"
)

// logAhead is the number of bytes that a log allocates in advance. Pebble requests the size of a whole memtable.
const logAhead = 1 << 20

// cleaner removes obsolete files, including logs. By default Pebble keeps logs, one more than the max number of
// memtables, and overwrites them, because a sync is then faster. Each of them takes up to 64 MiB. If the cleaner needs
// the content of logs, for example to archive them, Pebble keeps no logs and passes every log to the cleaner.
type cleaner struct {
	pebbledb.DeleteCleaner
	getsLogs
}

// getsLogs embeds ArchiveCleaner for its unexported marker method. The methods of DeleteCleaner take precedence,
// because they are embedded at a shallower depth.
type getsLogs struct{ pebbledb.ArchiveCleaner }

var _ pebbledb.Cleaner = cleaner{}

func isLog(name string) bool { return strings.HasSuffix(name, ".log") }

func (f *vitalFile) Preallocate(offset, length int64) error {
	if isLog(f.name) {
		length = min(length, logAhead)
	}
	return f.File.Preallocate(offset, length)
}
