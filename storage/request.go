package storage

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/tenant"
)

// readWorkers is how many scans a query has under way at once: enough to hide a network's latency, few
// enough that one query doesn't take the whole engine.
const readWorkers = 16

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
	return fmt.Sprintf("storage: left out the corrupt %s: %v", row, e.Err)
}

func (e *CorruptRowError) Unwrap() error { return e.Err }

// request is what one query carries through the read path.
type request struct {
	s        *Store
	tenant   string
	matchers []*labels.Matcher
	// hidden are the horizons of the tenant's classes, and classes those that were asked for. gaps are ranges of time of which raw
	// rows may have vanished, in a query for buckets: there it goes slot by slot what is made of samples.
	hidden  []Horizons
	gaps    []classGap
	classes uint64
	// minT and maxT are what the query may see of what it asked for, milliseconds; empty if minT > maxT.
	minT, maxT int64
	// deletes are those that touch that range.
	deletes format.Tombstones
	// uncleaned are, in a query for buckets, the deletes that the rollups of a slot don't know of yet, by slot.
	uncleaned map[int64]format.Tombstones

	budget budget
	use    *tenant.Use
	warnMu sync.Mutex
	warn   func(error)
	told   map[string]bool // the gaps that warn was told of
}

func (s *Store) newRequest(ctx context.Context, q Query) (*request, error) {
	hidden, err := s.horizons(ctx, q.Tenant, q.MinT, q.MaxT)
	if err != nil {
		return nil, err
	}
	var gaps []classGap
	if q.Resolution != rollup.Raw || q.overGaps {
		if gaps, err = s.rawGaps(ctx, q.Tenant, hidden); err != nil {
			return nil, err
		}
	}
	if q.LabelsOnly {
		q.Resolution = rollup.OneHour
	}
	_, now := s.clock.Times()
	r := &request{
		s: s, tenant: q.Tenant, matchers: q.Matchers, warn: q.Warn, hidden: hidden, gaps: gaps, classes: q.Classes,
		use:  s.opts.Limiter.Use(ctx, q.Tenant),
		maxT: min(q.MaxT, now.Add(MaxAhead).UnixMilli(), format.MaxTime),
	}
	if r.classes == 0 {
		r.classes = math.MaxUint64
	}
	r.budget = budget{limit: s.opts.QueryBytes, use: r.use}
	r.minT = max(q.MinT, r.earliest(q.Resolution)+1, -format.MaxTime)
	if q.LabelsOnly {
		r.shorten()
	}
	return r, nil
}

// budget bounds the bytes of labels and encoded samples that a query, or a load for the cache, makes the
// store read and hold.
type budget struct {
	used  atomic.Int64
	limit int64
	use   *tenant.Use // of the tenant that asks; nil: a load for several
}

// newBudget is for a load that several queries may wait for.
func (r *request) newBudget() *budget { return &budget{limit: r.s.opts.QueryBytes} }

func (b *budget) charge(n int) error {
	if b.used.Add(int64(n)) > b.limit {
		return fmt.Errorf("%w: its labels and encoded samples are more than %d bytes; ask for a shorter range or for fewer series, or raise the limit",
			ErrQueryTooLarge, b.limit)
	}
	return b.use.Bytes(n)
}

// tell gives the query's caller a warning.
func (r *request) tell(err error) {
	if r.warn == nil {
		return
	}
	r.warnMu.Lock()
	defer r.warnMu.Unlock()
	r.warn(err)
}

// corrupt counts, logs and tells.
func (r *request) corrupt(err *CorruptRowError) {
	r.s.corrupt(err.Table, err)
	r.tell(err)
}

// scan yields the rows of a partition to row, which must keep copies. What can't be read is told of, and left out.
func (r *request) scan(ctx context.Context, rows engine.Range, row func(engine.Row) error) error {
	if rows.Damaged == nil {
		rows.Damaged = func(d engine.Damage) { r.missed(&rows, d) }
	}
	for rw, err := range r.s.eng.Scan(ctx, rows) {
		if err != nil {
			return fmt.Errorf("storage: reading table %s: %w", rows.Table, err)
		}
		if err := row(rw); err != nil {
			return err
		}
	}
	return nil
}
