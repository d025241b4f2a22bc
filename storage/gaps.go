package storage

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// DamagedRowsError means that rows can't be read, because the bytes that hold them are damaged: none, or any number.
// The query goes on without them.
type DamagedRowsError struct {
	Table *engine.Table
	// Tenant and Metric are whose the rows are; "": anybody's, of any metric.
	Tenant, Metric string
	// From and To bound the time of the missing rows; zero: it isn't known.
	From, To time.Time
	Err      error

	// kept is true if the cache keeps a result without them, so that later queries must be warned, too.
	kept bool
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

// gapOf names the rows of a scan that can't be read.
func (s *Store) gapOf(rows *engine.Range, d engine.Damage) *DamagedRowsError {
	e := &DamagedRowsError{Table: rows.Table, Err: d.Err}
	p := rows.Partition
	window := func(w int64) {
		e.From, e.To = time.UnixMilli(s.period.WindowStart(w)), time.UnixMilli(s.period.WindowEnd(w))
	}
	switch rows.Table {
	case engine.Raw, engine.R5m, engine.R1h:
		window(p[0].Int)
		e.Tenant, e.Metric = strings.Clone(p[2].Text), strings.Clone(p[3].Text)
		if rows.Table == engine.Raw {
			s.narrowToSlots(e, rows, d)
		} else {
			e.kept = holdsLabels(rows, d)
		}
	case engine.Catalog:
		window(p[0].Int)
		e.Tenant, e.kept = strings.Clone(p[2].Text), true
	case engine.Sealed, engine.Shards, engine.Metadata:
		window(p[0].Int)
		e.Tenant, e.kept = strings.Clone(p[1].Text), rows.Table == engine.Shards
	case engine.Stage, engine.Defined:
		e.From, e.To = time.UnixMilli(s.period.SlotStart(p[0].Int)), time.UnixMilli(s.period.SlotEnd(p[0].Int))
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

// narrowToSlots sets which slots the raw rows are of, if they can't be labels.
func (s *Store) narrowToSlots(e *DamagedRowsError, rows *engine.Range, d engine.Damage) {
	if e.kept = holdsLabels(rows, d); e.kept {
		return
	}
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
		e.To = time.UnixMilli(s.period.SlotEnd(s.period.SlotOf(last[1].Int + 1)))
	}
}

// gaps remembers rows that couldn't be read, so that each is counted once, and later queries are warned of those that the cache
// lacks.
type gaps struct {
	mu   sync.Mutex
	seen map[string]bool
	kept []*DamagedRowsError
	more bool // the last of kept stands for all that came later
}

// maxGaps bounds the gaps that are remembered one by one; the log has all of it, and Check.
const maxGaps = 1000

// add reports whether it is new.
func (g *gaps) add(e *DamagedRowsError) bool {
	what := e.Error()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.seen[what] {
		return false
	}
	if len(g.seen) >= maxGaps {
		if e.kept && !g.more {
			g.more = true
			g.kept = append(g.kept, e.anything())
		}
		return false
	}
	if g.seen == nil {
		g.seen = map[string]bool{}
	}
	g.seen[what] = true
	if e.kept {
		g.kept = append(g.kept, e)
	}
	return true
}

// noteGap names rows that can't be read, and counts them once.
func (s *Store) noteGap(e *DamagedRowsError) {
	if s.gaps.add(e) {
		s.corrupt(e.Table, e)
	}
}

// noteOnce names a filter, or counts of series, that can't be read, and counts it once. Nothing is left out for that.
func (s *Store) noteOnce(t *engine.Table, err error) {
	s.gaps.mu.Lock()
	isNew := !s.gaps.seen[err.Error()] && len(s.gaps.seen) < maxGaps
	if isNew {
		if s.gaps.seen == nil {
			s.gaps.seen = map[string]bool{}
		}
		s.gaps.seen[err.Error()] = true
	}
	s.gaps.mu.Unlock()
	if isNew {
		s.corrupt(t, err)
	}
}

// Damaged returns how many times rows were met that can't be read, each counted once.
func (s *Store) Damaged() int {
	s.gaps.mu.Lock()
	defer s.gaps.mu.Unlock()
	s.damage.mu.Lock()
	defer s.damage.mu.Unlock()
	return len(s.gaps.seen) + len(s.damage.rows)
}

// anything stands for more gaps than are named: those of any rows may be among them.
func (e *DamagedRowsError) anything() *DamagedRowsError {
	return &DamagedRowsError{Table: e.Table, Err: fmt.Errorf("and more, not listed individually: %w", e.Err), kept: e.kept}
}

// maxTold bounds how many gaps a query is warned of one by one.
const maxTold = 50

// missed counts and logs rows of a scan that can't be read, and warns of them.
func (r *queryReader) missed(rows *engine.Range, d engine.Damage) {
	e := r.s.gapOf(rows, d)
	r.s.noteGap(e)
	r.tellGap(e)
}

// tellGap warns of each gap once.
func (r *queryReader) tellGap(e *DamagedRowsError) {
	what := e.What()
	r.warnMu.Lock()
	if r.told == nil {
		r.told = map[string]bool{}
	}
	told := r.told[what] || len(r.told) > maxTold
	if !told {
		r.told[what] = true
	}
	more := len(r.told) > maxTold
	r.warnMu.Unlock()
	switch {
	case told:
	case more:
		r.tell(e.anything())
	default:
		r.tell(e)
	}
}

// lostShards stands in where a number of shards can't be read: all that there may be are looked into.
const lostShards = format.MaxShards

type warnKey struct{}

// WithWarnings returns a context whose reads that have no other place for warnings, those of exemplars and of metadata, give
// them to warn, one at a time in each read: rows that can't be read are left out of their answers.
func WithWarnings(ctx context.Context, warn func(error)) context.Context {
	return context.WithValue(ctx, warnKey{}, warn)
}

// warningsOf returns what gets the warnings of a read; nil: nothing does.
func warningsOf(ctx context.Context) func(error) {
	warn, _ := ctx.Value(warnKey{}).(func(error))
	return warn
}

// damage remembers the stage rows that can't be read, so that queries over their slots can name the samples that they
// lack, and each is counted once.
type damage struct {
	mu   sync.Mutex
	rows map[damagedRow]error
}

type damagedRow struct {
	slot      int64
	partition int
	row       format.StageRow
}

// maxDamage bounds the damage that is remembered row by row; the log has all of it. Beyond, one row of each slot and partition
// stands for all of them, for at most maxDamagedSlots.
const (
	maxDamage       = 100
	maxDamagedSlots = 10_000
)

// add reports whether the row is new to it.
func (d *damage) add(at damagedRow, err error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.rows[at]; ok {
		return false
	}
	if d.rows == nil {
		d.rows = map[damagedRow]error{}
	}
	if len(d.rows) >= maxDamage {
		at.row = format.StageRow{}
	}
	if _, ok := d.rows[at]; !ok && len(d.rows) < maxDamagedSlots {
		d.rows[at] = err
	}
	return true
}
