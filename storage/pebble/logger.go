package pebble

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"syscall"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cassia-db/cassia/storage/pebble/badblocks"
)

// logger writes Pebble's log to slog.
type logger struct {
	log   *slog.Logger
	fail  func(error)
	lines rareLines
}

var _ pebbledb.Logger = (*logger)(nil)

// Infof logs Pebble's internal events.
func (l *logger) Infof(format string, args ...any) { l.log.Debug(fmt.Sprintf(format, args...)) }

// Errorf logs errors of Pebble, at most one line per reason and lineEvery.
func (l *logger) Errorf(format string, args ...any) {
	l.lines.logRarely(format, func(dropped int) {
		l.log.Error(fmt.Sprintf(format, args...), "repeated", dropped)
	})
}

// lineEvery is the min interval between log lines with the same reason. maxReasons is the max number of reasons that
// are tracked.
const (
	lineEvery  = time.Minute
	maxReasons = 1000
)

// rareLines limits the log lines of repeated events.
type rareLines struct {
	mu      sync.Mutex
	reasons map[string]*rareLine
}

// rareLine is the time of the last line for a reason, and the number of lines dropped since.
type rareLine struct {
	at      time.Time
	dropped int
}

// logRarely calls write unless it has already called it for the same reason within the last lineEvery. dropped is the
// number of lines with this reason that were dropped since the previous one.
func (r *rareLines) logRarely(reason string, write func(dropped int)) {
	if dropped, ok := r.mayLog(reason, time.Now()); ok {
		write(dropped)
	}
}

func (r *rareLines) mayLog(reason string, now time.Time) (dropped int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	line := r.reasons[reason]
	if line != nil && now.Sub(line.at) < lineEvery {
		line.dropped++
		return 0, false
	}
	if line != nil {
		dropped = line.dropped
	}
	if r.reasons == nil || len(r.reasons) >= maxReasons {
		r.reasons = map[string]*rareLine{}
	}
	r.reasons[reason] = &rareLine{at: now}
	return dropped, true
}

// numbers matches the file numbers in an error's text, which differ between errors with the same cause.
var numbers = regexp.MustCompile(`[0-9]+`)

// reasonOf returns a text that errors with the same cause share.
func reasonOf(err error) string {
	var cause syscall.Errno
	if errors.As(err, &cause) {
		return cause.Error()
	}
	return numbers.ReplaceAllString(firstLine{err}.Error(), "0")
}

// fatalError is the reason that Pebble passes to Fatalf: its text, and the error among its arguments.
type fatalError struct {
	text  string
	cause error
}

func (f fatalError) Error() string { return f.text }
func (f fatalError) Unwrap() error { return f.cause }

// Fatalf is called by Pebble when it can't continue. It must not return, because Pebble would then report a failed
// commit as successful. It must not panic, because that would end the process if Pebble calls it on a goroutine of its
// own. So fail releases all waiting callers with the reason, and this goroutine waits until the process exits. File
// errors that would lead here are handled earlier, by waitingFS and vitalFS. What remains are failed checks of Pebble's
// own invariants.
func (l *logger) Fatalf(format string, args ...any) {
	err := fatalError{text: fmt.Sprintf(format, args...)}
	for _, arg := range args {
		if cause, ok := arg.(error); ok {
			err.cause = cause
		}
	}
	l.fail(err)
	select {}
}

// events converts Pebble's events to log lines and counters.
type events struct {
	backgroundErrors prometheus.Counter
	corruptions      prometheus.Counter
	slowDisk         prometheus.Counter
	stalls           prometheus.Counter
	blocks           *badblocks.List
	lines            rareLines
}

func newEvents() *events {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "cassia_pebble_" + name, Help: help})
	}
	return &events{
		blocks: badblocks.New(),
		backgroundErrors: counter(
			"background_errors_total",
			"Failed flushes, compactions and collections of file statistics of Pebble; they are retried.",
		),
		corruptions: counter("corruptions_total", "Damaged blocks of Pebble files that were found by reads."),
		slowDisk:    counter("slow_disk_operations_total", "File operations that took longer than 5 seconds."),
		stalls: counter(
			"write_stalls_total", "Write stalls: times that writes waited for flushes or compactions.",
		),
	}
}

func (e *events) collectors() []prometheus.Collector {
	return []prometheus.Collector{e.backgroundErrors, e.corruptions, e.slowDisk, e.stalls}
}

// diskSlow is called on the goroutine that monitors the disk, which must not block.
func (e *events) diskSlow(vfs.DiskSlowInfo) { e.slowDisk.Inc() }

func (e *events) listener(log *slog.Logger) *pebbledb.EventListener {
	return &pebbledb.EventListener{
		BackgroundError: func(err error) {
			e.backgroundErrors.Inc()
			e.lines.logRarely("background "+reasonOf(err), func(dropped int) {
				log.Error("a flush, a compaction or the collection of file statistics failed and will be retried",
					"err", firstLine{err}, "repeated", dropped)
			})
		},
		// Without a listener, Pebble would end the process at the first damaged block. With it, only the read of the
		// block returns an error.
		DataCorruption: func(info pebbledb.DataCorruptionInfo) {
			e.corruptions.Inc()
			e.blocks.Record(info.Path, info.Details)
			e.lines.logRarely("damage "+info.Path, func(dropped int) {
				log.Error("a block of a Pebble file is damaged",
					"path", info.Path, "err", firstLine{info.Details}, "repeated", dropped)
			})
		},
		WriteStallBegin: func(info pebbledb.WriteStallBeginInfo) {
			e.stalls.Inc()
			e.lines.logRarely("stall "+info.Reason, func(dropped int) {
				log.Warn("writes are stalled by flushes or compactions", "reason", info.Reason, "repeated", dropped)
			})
		},
		WriteStallEnd: func() { e.lines.logRarely("stalls", func(int) { log.Info("writes are no longer stalled") }) },
		LowDiskSpace: func(info pebbledb.LowDiskSpaceInfo) {
			log.Warn("the disk is almost full", "available_bytes", info.AvailBytes, "total_bytes", info.TotalBytes)
		},
	}
}
