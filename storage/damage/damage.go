// Package damage records stored rows that can't be read. It counts and logs each of them once, and keeps the list for
// warnings of later queries. The storage packages call it when a read finds damage; queries read its warnings.
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
	// maxGaps is the max number of gaps that are kept individually. The log and Check report all of them.
	maxGaps = 1000
	// maxStaged is the max number of stage rows that are kept individually; the log has all of them. Further rows are
	// represented by one row per slot and partition, for at most maxStagedSlots slot partitions.
	maxStaged      = 100
	maxStagedSlots = 10_000
)

// Log records the rows of a store that can't be read. Each row is counted once. Later queries are warned about rows
// that are missing in the cache or in the head.
type Log struct {
	period *format.Periods
	// counter counts the rows by table.
	counter *prometheus.CounterVec
	logger  *slog.Logger

	mu   sync.Mutex
	seen map[string]bool
	kept []*DamagedRowsError
	more bool // the last entry of kept represents all later ones
	// staged are the rows that couldn't be read when the head was rebuilt.
	staged map[StagedAt]error
}

// StagedAt is the key of a row of the staging log.
type StagedAt struct {
	Slot      int64
	Partition int
	Row       format.StageRow
}

// NewLog returns an empty log of a store with these periods.
func NewLog(period *format.Periods, counter *prometheus.CounterVec, logger *slog.Logger) *Log {
	return &Log{period: period, counter: counter, logger: logger, seen: map[string]bool{}, staged: map[StagedAt]error{}}
}

// RecordCorruptRow counts and logs a row that was skipped.
func (l *Log) RecordCorruptRow(t *engine.Table, err error) {
	l.counter.WithLabelValues(t.Name).Inc()
	l.logger.Error("skipped a corrupt row; run cassia check", "table", t.Name, "err", err)
}

// GapOf describes the rows of a scan that can't be read.
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

// holdsLabels reports whether the rows may be labels, which are at the start of a partition.
func holdsLabels(rows *engine.Range, d engine.Damage) bool {
	first := rows.From
	if d.After != nil {
		first = d.After
	}
	return len(first) == 0 || first[0].Int == format.KindLabels
}

// narrowToSlots restricts the time range of e, a gap of raw rows without labels, to the slots in which rows may be
// missing.
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

// Record records rows that can't be read, and counts them once.
func (l *Log) Record(e *DamagedRowsError) {
	what := e.Error()
	l.mu.Lock()
	isNew := l.isNew(what)
	if e.Kept && isNew {
		l.kept = append(l.kept, e)
	} else if e.Kept && !l.seen[what] && !l.more {
		l.more, l.kept = true, append(l.kept, e.AnyRows())
	}
	l.mu.Unlock()
	if isNew {
		l.RecordCorruptRow(e.Table, e)
	}
}

// RecordRows is like Record for rows of a scan, and returns the description of the rows.
func (l *Log) RecordRows(rows *engine.Range, d engine.Damage) *DamagedRowsError {
	e := l.GapOf(rows, d)
	l.Record(e)
	return e
}

// RecordOnce records a row that can't be read, and counts it once. It keeps no warning for later queries. They either
// don't depend on the row, for example a row of a filter or of counts of series, or read the row again and report it.
func (l *Log) RecordOnce(t *engine.Table, err error) {
	l.mu.Lock()
	isNew := l.isNew(err.Error())
	l.mu.Unlock()
	if isNew {
		l.RecordCorruptRow(t, err)
	}
}

// isNew adds a text. It returns false if the text is known or maxGaps is reached. The caller must hold the lock.
func (l *Log) isNew(what string) bool {
	if l.seen[what] || len(l.seen) >= maxGaps {
		return false
	}
	l.seen[what] = true
	return true
}

// MissingRows returns the rows that are missing in cached results. They must not be modified.
func (l *Log) MissingRows() []*DamagedRowsError {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept
}

// RecordStaged records a row of the staging log that can't be read, and counts it once.
func (l *Log) RecordStaged(at StagedAt, err error) {
	l.recordStaged(at, fmt.Errorf(
		"storage: skipped the staged row of slot %d, until %s, partition %d, writer %x, seq %d: %w", at.Slot,
		format.FormatTime(l.period.SlotEnd(at.Slot)), at.Partition, at.Row.Writer, at.Row.Seq, err,
	))
}

// RecordStagedRows is like RecordStaged, for a range of unreadable rows d of a scan. from is the first possible key in
// the range.
func (l *Log) RecordStagedRows(from StagedAt, rows *engine.Range, d engine.Damage) {
	l.recordStaged(from, l.GapOf(rows, d))
}

func (l *Log) recordStaged(at StagedAt, err error) {
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
		l.RecordCorruptRow(engine.Stage, err)
	}
}

// StagedErrors returns the errors of stage rows that may contain samples of a time range in milliseconds, in the order
// of the rows. Their series are unknown.
func (l *Log) StagedErrors(minT, maxT int64) (errs []error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []StagedAt
	for at := range l.staged {
		if l.period.SlotStart(at.Slot) < maxT && l.period.SlotEnd(at.Slot) >= minT {
			found = append(found, at)
		}
	}
	slices.SortFunc(found, func(a, b StagedAt) int {
		return cmp.Or(cmp.Compare(a.Slot, b.Slot), cmp.Compare(a.Partition, b.Partition),
			strings.Compare(a.Row.Writer, b.Row.Writer), cmp.Compare(a.Row.Seq, b.Row.Seq))
	})
	for _, at := range found {
		errs = append(errs, l.staged[at])
	}
	return errs
}

// Count returns the number of damaged rows that were found, each counted once.
func (l *Log) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.seen) + len(l.staged)
}

// CorruptRowError describes a row that can't be read. The query continues without the row.
type CorruptRowError struct {
	Table  *engine.Table
	Window int64
	Tenant string
	Metric string
	// Series is the id of the row's series, "" if it has none. Start is the start of a chunk's slot in milliseconds.
	Series string
	Start  int64
	Err    error
}

func (e *CorruptRowError) Error() string {
	row := fmt.Sprintf("%s row of window %d, tenant %q, metric %q", e.Table, e.Window, e.Tenant, e.Metric)
	if e.Series != "" {
		row += fmt.Sprintf(", series %x, start %s", e.Series, format.FormatTime(e.Start))
	}
	return fmt.Sprintf("storage: skipped the corrupt %s: %v", row, e.Err)
}

func (e *CorruptRowError) Unwrap() error { return e.Err }

// DamagedRowsError means that any number of rows, possibly none, can't be read, because the bytes where they are stored
// are damaged. The query continues without the rows.
type DamagedRowsError struct {
	Table *engine.Table
	// Tenant and Metric identify the rows. If one of them is empty, rows of any tenant or metric may be missing.
	Tenant, Metric string
	// From and To limit the time range of the missing rows. A zero time means that the limit is unknown.
	From, To time.Time
	Err      error
	// Kept is true if a result without these rows is cached, so that later queries must be warned as well.
	Kept bool
}

func (e *DamagedRowsError) Error() string {
	return fmt.Sprintf("storage: skipped unreadable data of %s: %v", e.Description(), e.Err)
}

// Description describes the rows.
func (e *DamagedRowsError) Description() string {
	what := "table " + e.Table.Name
	if e.Metric != "" {
		what += fmt.Sprintf(", metric %q", e.Metric)
	}
	if e.Tenant != "" {
		what += fmt.Sprintf(", tenant %q", e.Tenant)
	}
	if e.From.IsZero() {
		return what
	}
	from, to := e.From.UTC().Format(time.RFC3339), e.To.UTC().Format(time.RFC3339)
	switch {
	case isLimit(e.From) && isLimit(e.To):
		return what + ", at any time"
	case isLimit(e.From):
		return what + ", before " + to
	case isLimit(e.To):
		return what + ", after " + from
	default:
		return what + ", from " + from + " to " + to
	}
}

// isLimit reports whether t is a limit of the times that can be stored, and not the time of a row. RFC 3339 can't
// express limits, because it has only the years 0 to 9999.
func isLimit(t time.Time) bool { return t.UTC().Year() < 0 || t.UTC().Year() > 9999 }

func (e *DamagedRowsError) Unwrap() error { return e.Err }

// AnyRows returns an error that represents further damage, which isn't listed: any rows may be missing.
func (e *DamagedRowsError) AnyRows() *DamagedRowsError {
	return &DamagedRowsError{
		Table: e.Table, Err: fmt.Errorf("and more, not listed individually: %w", e.Err), Kept: e.Kept,
	}
}

type warnKey struct{}

// WithWarnings returns a context whose reads of exemplars and metadata call warn for rows that can't be read. These
// rows are missing in the results. Each read makes one call at a time.
func WithWarnings(ctx context.Context, warn func(error)) context.Context {
	return context.WithValue(ctx, warnKey{}, warn)
}

// Warnings returns the function that receives the warnings of a read, or nil.
func Warnings(ctx context.Context) func(error) {
	warn, _ := ctx.Value(warnKey{}).(func(error))
	return warn
}
