package cassandra

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/gocql/gocql"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/panics"
)

const (
	// pageBytes is the approximate size of a page when the size of the rows is known. It is large enough to make the
	// cost of a request small, and small enough that a node and this process can hold many pages at once.
	pageBytes = 1 << 20
	// keysPage is the number of rows in the first page if only keys are read.
	keysPage = 2000
	// rowOverhead is the size of a row on the wire in addition to its fields, in bytes.
	rowOverhead = 32
	// cancelEvery is the number of rows after which a scan checks whether its context has ended.
	cancelEvery = 64
)

// Scan implements engine.Engine. Rows are read in pages. The next page is fetched while the rows of the current page
// are yielded. Reading rows of a conditional table first completes compare-and-set operations whose result is unknown.
func (e *Engine) Scan(ctx context.Context, r engine.Range) iter.Seq2[engine.Row, error] {
	return func(yield func(engine.Row, error) bool) {
		if err := e.scan(ctx, &r, yield); err != nil {
			yield(engine.Row{}, err)
		}
	}
}

// scan calls yield for the rows of r, see Scan. It returns nil if yield returned false.
func (e *Engine) scan(ctx context.Context, r *engine.Range, yield func(engine.Row, error) bool) error {
	if err := e.begin(ctx); err != nil {
		return err
	}
	if err := checkRange(r); err != nil {
		return err
	}
	return e.run(ctx, newScanner(e, r), yield)
}

// run yields the rows of all pages.
func (e *Engine) run(ctx context.Context, s *scanner, yield func(engine.Row, error) bool) error {
	r := s.r
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := s.fetchPage(ctx, nil)
	for {
		if p.err != nil {
			return e.translateError(ctx, "scan "+describePartition(r.Table, r.Partition), p.err)
		}
		more, err := s.readPage(ctx, p.rows, yield, len(p.next) > 0)
		if s.coming == nil {
			return err
		}
		if !more || err != nil {
			cancel()
			<-s.coming // The request must not outlive the scan.
			return err
		}
		p, s.coming = <-s.coming, nil
	}
}

func checkRange(r *engine.Range) error {
	if err := engine.CheckRange(r); err != nil {
		return err
	}
	if err := checkPartition(r.Table, r.Partition); err != nil {
		return err
	}
	if err := checkTexts(r.Table.Clustering, r.From); err != nil {
		return err
	}
	return checkTexts(r.Table.Clustering, r.To)
}

// page is a page of a scan's rows.
type page struct {
	rows *gocql.Iter
	next []byte // the state from which the next page is read; empty: there is none
	err  error
}

// scanner is a scan under way.
type scanner struct {
	e         *Engine
	r         *engine.Range
	policy    policy
	statement string
	args      []any
	size      int       // number of rows of the next page
	coming    chan page // the page that is being fetched

	row   engine.Row
	value []byte
	cells []any // the destinations for gocql of a row's columns
	rows  int   // read so far
	bytes int   // of the current page
}

func newScanner(e *Engine, r *engine.Range) *scanner {
	s := &scanner{e: e, r: r, policy: policyOf(r.Table)}
	s.statement = e.statements[r.Table].scans[scanShape{len(r.From), len(r.To), r.KeysOnly, r.Limit > 0}]
	s.args = appendValues(nil, r.Table.Partition, r.Partition)
	s.args = appendValues(s.args, r.Table.Clustering, r.From)
	s.args = appendValues(s.args, r.Table.Clustering, r.To)
	if s.size = s.policy.firstPage; r.KeysOnly {
		s.size = keysPage
	}
	if r.Limit > 0 {
		s.args = append(s.args, int32(min(r.Limit, 1<<31-1)))
		s.size = min(s.size, r.Limit)
	}
	s.row.Clustering = make(engine.Key, len(r.Table.Clustering))
	for i, f := range r.Table.Clustering {
		if f.Kind == engine.KindInt {
			s.cells = append(s.cells, (*intCell)(&s.row.Clustering[i]))
		} else {
			s.cells = append(s.cells, (*textCell)(&s.row.Clustering[i]))
		}
	}
	if !r.KeysOnly {
		s.cells = append(s.cells, (*blobCell)(&s.value))
	}
	return s
}

// fetchPage fetches a page.
func (s *scanner) fetchPage(ctx context.Context, from []byte) (p page) {
	e, level := s.e, s.e.level.read
	if s.r.Table.Conditional {
		level = gocql.Consistency(e.level.serial)
	}
	e.metrics.countRequest(opScan, s.r.Table)
	p.err = e.sendRequest(ctx, opScan, isTransient, func(ctx context.Context) (int, error) {
		q := e.session.Query(s.statement, s.args...).WithContext(ctx).
			Consistency(level).PageSize(s.size).PageState(from).Idempotent(true)
		if q.RetryPolicy(retryOnOtherNode{}); !s.r.Table.Conditional {
			q.SetSpeculativeExecutionPolicy(e.querySecond(slowReader))
		}
		rows := q.Iter()
		p.rows, p.next = rows, rows.PageState()
		if rows.NumRows() == 0 {
			return q.Attempts(), rows.Close() // Close returns the request's error, if any; with rows there is none.
		}
		return q.Attempts(), nil
	})
	return p
}

// readPage yields a page's rows. It returns false if yield returned false.
func (s *scanner) readPage(
	ctx context.Context, rows *gocql.Iter, yield func(engine.Row, error) bool, more bool,
) (bool, error) {
	next, count := rows.PageState(), rows.NumRows()
	s.bytes = 0
	if more && count == 0 {
		s.prefetchPage(ctx, next) // A page with only tombstones.
	}
	for i := range count {
		if s.rows%cancelEvery == 0 {
			if err := s.e.begin(ctx); err != nil {
				return false, err
			}
		}
		if !rows.Scan(s.cells...) {
			return false, fmt.Errorf("cassandra: scan %s: %w: %w", describePartition(s.r.Table, s.r.Partition),
				engine.ErrCorrupt, rows.Close())
		}
		s.rows++
		s.row.Value = s.value
		s.bytes += s.rowBytes()
		if more && i == count/2 {
			s.size = pageSize(s.size, s.policy.maxPage, s.bytes/(i+1))
			s.prefetchPage(ctx, next)
		}
		if !yield(s.row, nil) {
			return false, nil
		}
	}
	return true, nil
}

// prefetchPage fetches the next page while the current one is read.
func (s *scanner) prefetchPage(ctx context.Context, from []byte) {
	coming := make(chan page, 1)
	go func() {
		var p page
		if err := panics.Call("reading", func() error { p = s.fetchPage(ctx, from); return nil }); err != nil {
			p = page{err: err}
		}
		coming <- p
	}()
	s.coming = coming
}

func (s *scanner) rowBytes() int {
	n := rowOverhead + len(s.value)
	for i := range s.row.Clustering {
		n += 8 + len(s.row.Clustering[i].Text)
	}
	return n
}

// pageSize returns the number of rows of the next page. It decreases immediately when rows are large, and increases
// slowly when they are small, because chunks may follow labels.
func pageSize(now, most, rowBytes int) int {
	return max(1, min(pageBytes/max(1, rowBytes), 4*now, most))
}

// The cells refer to columns from gocql without copying: a page's bytes don't change while there are references to
// them.
type (
	intCell  engine.Value
	textCell engine.Value
	blobCell []byte
)

func (c *intCell) UnmarshalCQL(_ gocql.TypeInfo, data []byte) error {
	if len(data) != 8 {
		return fmt.Errorf("an integer has %d bytes instead of 8", len(data))
	}
	c.Int = int64(binary.BigEndian.Uint64(data))
	return nil
}

func (c *textCell) UnmarshalCQL(_ gocql.TypeInfo, data []byte) error {
	c.Text = engine.UnsafeText(data)
	return nil
}

func (c *blobCell) UnmarshalCQL(_ gocql.TypeInfo, data []byte) error {
	*c = data
	return nil
}
