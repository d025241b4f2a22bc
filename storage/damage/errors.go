// Package damage names stored rows that can't be read. It counts and logs each of them once, and holds those that later queries are warned of.
package damage

import (
	"context"
	"fmt"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
)

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
