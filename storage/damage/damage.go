// Package damage names stored rows that can't be read. It counts and logs each of them once, and holds those that later queries are warned of.
package damage

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

const (
	// maxGaps bounds the gaps that are remembered one by one; the log has all of it, and Check.
	maxGaps = 1000
	// maxStaged bounds the stage rows that are remembered one by one; the log has all of it. Beyond, one row of each slot and partition
	// stands for all of them, for at most maxStagedSlots.
	maxStaged      = 100
	maxStagedSlots = 10_000
)

// Log remembers rows of a store that can't be read, so that each is counted once, and queries are warned of those that the cache or the head lacks.
type Log struct {
	period *format.Periods
	// counter counts them, by table.
	counter *prometheus.CounterVec
	logger  *slog.Logger

	mu   sync.Mutex
	seen map[string]bool
	kept []*DamagedRowsError
	more bool // the last of kept stands for all that came later
	// staged are the rows that the rebuild of the head could not read.
	staged map[StagedAt]error
}

// StagedAt names a stage row.
type StagedAt struct {
	Slot      int64
	Partition int
	Row       format.StageRow
}

// NewLog returns an empty log of a store with these periods.
func NewLog(period *format.Periods, counter *prometheus.CounterVec, logger *slog.Logger) *Log {
	return &Log{period: period, counter: counter, logger: logger, seen: map[string]bool{}, staged: map[StagedAt]error{}}
}

// Corrupt counts and logs what had to be skipped.
func (l *Log) Corrupt(t *engine.Table, err error) {
	l.counter.WithLabelValues(t.Name).Inc()
	l.logger.Error("skipped a corrupt row; run cassia check", "table", t.Name, "err", err)
}

// GapOf names the rows of a scan that can't be read.
func (l *Log) GapOf(rows *engine.Range, d engine.Damage) *DamagedRowsError {
	e := &DamagedRowsError{Table: rows.Table, Err: d.Err}
	p := rows.Partition
	window := func(w int64) {
		e.From, e.To = time.UnixMilli(l.period.WindowEnd(w-1)), time.UnixMilli(l.period.WindowEnd(w))
	}
	switch rows.Table {
	case engine.Raw, engine.R5m, engine.R1h:
		window(p[0].Int)
		e.Tenant, e.Metric = strings.Clone(p[2].Text), strings.Clone(p[3].Text)
		if e.Kept = holdsLabels(rows, d); rows.Table == engine.Raw && !e.Kept {
			l.narrowToSlots(e, rows, d)
		}
	case engine.Catalog:
		window(p[0].Int)
		e.Tenant, e.Kept = strings.Clone(p[2].Text), true
	case engine.Sealed, engine.Shards, engine.Metadata:
		window(p[0].Int)
		e.Tenant, e.Kept = strings.Clone(p[1].Text), rows.Table == engine.Shards
	case engine.Stage, engine.Defined:
		e.From, e.To = time.UnixMilli(l.period.SlotStart(p[0].Int)), time.UnixMilli(l.period.SlotEnd(p[0].Int))
	case engine.Windows, engine.Deletes:
		e.Tenant = strings.Clone(p[0].Text)
	}
	return e
}

// holdsLabels reports whether the rows may be labels, which come first in a partition.
func holdsLabels(rows *engine.Range, d engine.Damage) bool {
	first := rows.From
	if d.After != nil {
		first = d.After
	}
	return len(first) == 0 || first[0].Int == format.KindLabels
}

// narrowToSlots sets the slots of raw rows that can't be labels.
func (l *Log) narrowToSlots(e *DamagedRowsError, rows *engine.Range, d engine.Damage) {
	first, last := rows.From, rows.To
	if d.After != nil {
		first = d.After
	}
	if d.Before != nil {
		last = d.Before
	}
	if len(first) > 1 {
		e.From = time.UnixMilli(first[1].Int)
	}
	if len(last) > 1 && len(first) > 0 && last[0].Int == first[0].Int {
		e.To = time.UnixMilli(l.period.SlotEnd(l.period.SlotOf(last[1].Int + 1)))
	}
}

// Note names rows that can't be read, and counts them once.
func (l *Log) Note(e *DamagedRowsError) {
	what := e.Error()
	l.mu.Lock()
	isNew := l.isNew(what)
	if e.Kept && isNew {
		l.kept = append(l.kept, e)
	} else if e.Kept && !l.seen[what] && !l.more {
		l.more, l.kept = true, append(l.kept, e.Anything())
	}
	l.mu.Unlock()
	if isNew {
		l.Corrupt(e.Table, e)
	}
}

// NoteRows is Note for rows of a scan, which it returns.
func (l *Log) NoteRows(rows *engine.Range, d engine.Damage) *DamagedRowsError {
	e := l.GapOf(rows, d)
	l.Note(e)
	return e
}

// NoteOnce names a filter, or counts of series, that can't be read, and counts it once. Nothing is left out for that.
func (l *Log) NoteOnce(t *engine.Table, err error) {
	l.mu.Lock()
	isNew := l.isNew(err.Error())
	l.mu.Unlock()
	if isNew {
		l.Corrupt(t, err)
	}
}

// isNew remembers a text. It returns false for one that is known, or that is beyond maxGaps. It needs the lock.
func (l *Log) isNew(what string) bool {
	if l.seen[what] || len(l.seen) >= maxGaps {
		return false
	}
	l.seen[what] = true
	return true
}

// Kept returns the rows that cached results lack. They don't change.
func (l *Log) Kept() []*DamagedRowsError {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept
}

// NoteStaged names a stage row that can't be read, and counts it once.
func (l *Log) NoteStaged(at StagedAt, err error) {
	l.noteStaged(at, fmt.Errorf("storage: skipped the staged row of slot %d, partition %d, writer %x, seq %d: %w", at.Slot, at.Partition, at.Row.Writer, at.Row.Seq, err))
}

// NoteStagedRows is NoteStaged for rows of a scan, from a row on.
func (l *Log) NoteStagedRows(from StagedAt, rows *engine.Range, d engine.Damage) {
	l.noteStaged(from, l.GapOf(rows, d))
}

func (l *Log) noteStaged(at StagedAt, err error) {
	l.mu.Lock()
	_, known := l.staged[at]
	if !known {
		if len(l.staged) >= maxStaged {
			at.Row = format.StageRow{}
		}
		if _, ok := l.staged[at]; !ok && len(l.staged) < maxStagedSlots {
			l.staged[at] = err
		}
	}
	l.mu.Unlock()
	if !known {
		l.Corrupt(engine.Stage, err)
	}
}

// Staged returns the errors of stage rows that may hold samples of a range of time, milliseconds, in the order of the rows. Their series aren't known.
func (l *Log) Staged(minT, maxT int64) (errs []error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []StagedAt
	for at := range l.staged {
		if l.period.SlotStart(at.Slot) < maxT && l.period.SlotEnd(at.Slot) >= minT {
			found = append(found, at)
		}
	}
	slices.SortFunc(found, func(a, b StagedAt) int {
		return cmp.Or(cmp.Compare(a.Slot, b.Slot), cmp.Compare(a.Partition, b.Partition), strings.Compare(a.Row.Writer, b.Row.Writer), cmp.Compare(a.Row.Seq, b.Row.Seq))
	})
	for _, at := range found {
		errs = append(errs, l.staged[at])
	}
	return errs
}

// Count returns how many times rows were met that can't be read, each counted once.
func (l *Log) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.seen) + len(l.staged)
}

// CorruptRowError names a row that can't be read. The query goes on without it.
type CorruptRowError struct {
	Table  *engine.Table
	Window int64
	Tenant string
	Metric string
	// Series is the id of the row's series, "" if it has none; Start the slot's start of a chunk, milliseconds.
	Series string
	Start  int64
	Err    error
}

func (e *CorruptRowError) Error() string {
	row := fmt.Sprintf("%s row of window %d, tenant %q, metric %q", e.Table, e.Window, e.Tenant, e.Metric)
	if e.Series != "" {
		row += fmt.Sprintf(", series %x, start %d", e.Series, e.Start)
	}
	return fmt.Sprintf("storage: skipped the corrupt %s: %v", row, e.Err)
}

func (e *CorruptRowError) Unwrap() error { return e.Err }

// DamagedRowsError means that rows can't be read, because the bytes that hold them are damaged: none, or any number.
// The query goes on without them.
type DamagedRowsError struct {
	Table *engine.Table
	// Tenant and Metric are whose the rows are; "": anybody's, of any metric.
	Tenant, Metric string
	// From and To bound the time of the missing rows; zero: it isn't known.
	From, To time.Time
	Err      error
	// Kept is true if the cache keeps a result without them, so that later queries must be warned, too.
	Kept bool
}

func (e *DamagedRowsError) Error() string {
	return fmt.Sprintf("storage: skipped unreadable data of %s: %v", e.What(), e.Err)
}

// What names the rows.
func (e *DamagedRowsError) What() string {
	what := "table " + e.Table.Name
	if e.Metric != "" {
		what += fmt.Sprintf(", metric %q", e.Metric)
	}
	if e.Tenant != "" {
		what += fmt.Sprintf(", tenant %q", e.Tenant)
	}
	if !e.From.IsZero() {
		what += fmt.Sprintf(", from %s to %s", e.From.UTC().Format(time.RFC3339), e.To.UTC().Format(time.RFC3339))
	}
	return what
}

func (e *DamagedRowsError) Unwrap() error { return e.Err }

// Anything stands for more damage than is named: any rows may be part of it.
func (e *DamagedRowsError) Anything() *DamagedRowsError {
	return &DamagedRowsError{Table: e.Table, Err: fmt.Errorf("and more, not listed individually: %w", e.Err), Kept: e.Kept}
}

type warnKey struct{}

// WithWarnings returns a context whose reads that have no other place for warnings, those of exemplars and of metadata, give
// them to warn, one at a time in each read: rows that can't be read are left out of their answers.
func WithWarnings(ctx context.Context, warn func(error)) context.Context {
	return context.WithValue(ctx, warnKey{}, warn)
}

// Warnings returns the function that gets the warnings of a read; nil: nothing does.
func Warnings(ctx context.Context) func(error) {
	warn, _ := ctx.Value(warnKey{}).(func(error))
	return warn
}
