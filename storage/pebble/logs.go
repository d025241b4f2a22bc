package pebble

import (
	"strings"

	pebbledb "github.com/cockroachdb/pebble/v2"
)

// logAhead is the initial number of bytes that a log allocates ahead of its end. Pebble requests the size of a whole
// memtable.
const logAhead = 1 << 20

// cleaner removes obsolete files, including logs. By default Pebble keeps as many logs as there may be memtables, plus
// one, and overwrites them, because a sync is then faster. That takes 64 MiB of unused space for each. A cleaner that
// needs the content of files, as one that archives them, is passed every log instead.
type cleaner struct {
	pebbledb.DeleteCleaner
	getsLogs
}

// getsLogs embeds ArchiveCleaner for its unexported marker method. DeleteCleaner's methods are embedded at a shallower
// depth and therefore used.
type getsLogs struct{ pebbledb.ArchiveCleaner }

var _ pebbledb.Cleaner = cleaner{}

func isLog(name string) bool { return strings.HasSuffix(name, ".log") }

func (f *vitalFile) Preallocate(offset, length int64) error {
	if isLog(f.name) {
		length = min(length, logAhead)
	}
	return f.File.Preallocate(offset, length)
}
