package pebble

import (
	"fmt"
	"log/slog"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
)

// logger hands Pebble's log to slog.
type logger struct {
	log  *slog.Logger
	fail func(error)
}

var _ pebbledb.Logger = (*logger)(nil)

// Infof logs Pebble's internal events.
func (l *logger) Infof(format string, args ...any) { l.log.Debug(fmt.Sprintf(format, args...)) }

// Errorf logs errors.
func (l *logger) Errorf(format string, args ...any) { l.log.Error(fmt.Sprintf(format, args...)) }

// fatalError is what Fatalf panics with: Pebble's words, and the error among them.
type fatalError struct {
	text  string
	cause error
}

func (f fatalError) Error() string { return f.text }
func (f fatalError) Unwrap() error { return f.cause }

// Fatalf is where Pebble ends up when it can't go on. It must not return: Pebble would then report a failed
// commit as done. So it panics. Where a Write waits for the commit, that is caught and becomes the Write's
// error; in Pebble's own goroutines it ends the process, after fail has logged the reason in one line. Errors of the
// files that lead here are caught before, by vitalFS: the others are Pebble's checks of its own invariants.
func (l *logger) Fatalf(format string, args ...any) {
	err := fatalError{text: fmt.Sprintf(format, args...)}
	for _, arg := range args {
		if cause, ok := arg.(error); ok {
			err.cause = cause
		}
	}
	l.fail(err)
	panic(err)
}

// events turns Pebble's events into log lines and counters.
type events struct {
	backgroundErrors prometheus.Counter
	corruptions      prometheus.Counter
	slowDisk         prometheus.Counter
	stalls           prometheus.Counter
	blocks           badBlocks
}

func newEvents() *events {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "cassia_pebble_" + name, Help: help})
	}
	return &events{
		backgroundErrors: counter("background_errors_total", "Flushes and compactions that failed; they are tried again."),
		corruptions:      counter("corruptions_total", "Damaged blocks that were read."),
		slowDisk:         counter("slow_disk_operations_total", "Operations on files that took seconds."),
		stalls:           counter("write_stalls_total", "Times that writes had to wait for flushes or compactions."),
	}
}

func (e *events) collectors() []prometheus.Collector {
	return []prometheus.Collector{e.backgroundErrors, e.corruptions, e.slowDisk, e.stalls}
}

// diskSlow is called on the goroutine that watches the disk, which must not wait for anything.
func (e *events) diskSlow(vfs.DiskSlowInfo) { e.slowDisk.Inc() }

func (e *events) listener(log *slog.Logger) *pebbledb.EventListener {
	return &pebbledb.EventListener{
		BackgroundError: func(err error) {
			e.backgroundErrors.Inc()
			log.Error("pebble's background work went wrong and will be tried again", "err", firstLine{err})
		},
		// Without a listener of its own Pebble ends the process at the first damaged block. Here the read
		// that met it gets an error, and everything else goes on.
		DataCorruption: func(info pebbledb.DataCorruptionInfo) {
			e.corruptions.Inc()
			e.blocks.note(info.Path, info.Details)
			log.Error("a block of pebble's files is damaged", "path", info.Path, "err", firstLine{info.Details})
		},
		WriteStallBegin: func(info pebbledb.WriteStallBeginInfo) {
			e.stalls.Inc()
			log.Warn("writes wait for pebble's flushes or compactions", "reason", info.Reason)
		},
		WriteStallEnd: func() { log.Info("writes go on") },
		LowDiskSpace: func(info pebbledb.LowDiskSpaceInfo) {
			log.Warn("the disk is getting full", "available_bytes", info.AvailBytes, "total_bytes", info.TotalBytes)
		},
	}
}
