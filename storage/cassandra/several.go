package cassandra

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/gocql/gocql"

	"github.com/cassia-db/cassia/storage/engine"
)

var _ engine.SeveralScanner = (*Engine)(nil)

// maxScanned is the max number of partitions in a request of ScanSeveral. One node reads them sequentially within the
// timeout of a request.
const maxScanned = 16

// ScanSeveral implements engine.SeveralScanner with requests for multiple partitions. If a guardrail of Cassandra
// (partition_keys_in_select_fail_threshold) rejects such requests, the engine scans partitions one by one from then on.
func (e *Engine) ScanSeveral(
	ctx context.Context, r engine.Range, partitions []engine.Key,
) iter.Seq2[engine.RowOf, error] {
	return func(yield func(engine.RowOf, error) bool) {
		field, err := engine.CheckSeveral(&r, partitions)
		if err != nil {
			yield(engine.RowOf{}, err)
			return
		}
		at := 0
		for some := range slices.Chunk(partitions, maxScanned) {
			enough, begun, err := false, false, error(nil)
			one := e.oneByOne.Load()
			if !one {
				enough, begun, err = e.scanSome(ctx, r, some, at, field, yield)
			}
			if refusal := err; one || !begun && isInvalid(err) {
				// If single scans succeed, the error was caused by the number of partitions and not, for example, by a
				// dropped table.
				if enough, err = e.scanEach(ctx, r, some, at, yield); err == nil && !e.oneByOne.Swap(true) {
					e.log.Warn(
						"Cassandra rejects requests for several partitions, so sealing needs more requests; raise "+
							"partition_keys_in_select_fail_threshold in cassandra.yaml", "partitions", len(some),
						"err", refusal,
					)
				}
			}
			if err != nil {
				yield(engine.RowOf{}, err)
			}
			if err != nil || enough {
				return
			}
			at += len(some)
		}
	}
}

// isInvalid reports whether Cassandra rejects a statement as invalid.
func isInvalid(err error) bool {
	var request gocql.RequestError
	return errors.As(err, &request) && request.Code() == gocql.ErrCodeInvalid
}

// scanEach scans partitions one after the other. at is the index of the first of them in the caller's list. enough is
// true if yield returned false.
func (e *Engine) scanEach(
	ctx context.Context, r engine.Range, some []engine.Key, at int, yield func(engine.RowOf, error) bool,
) (enough bool, err error) {
	for i, p := range some {
		r.Partition = p
		for row, err := range e.Scan(ctx, r) {
			if err != nil {
				return false, err
			}
			if !yield(engine.RowOf{Row: row, At: at + i}, nil) {
				return true, nil
			}
		}
	}
	return false, nil
}

// scanSome scans partitions with one request per page. at is the index of the first of them in the caller's list.
// enough is true if yield returned false. begun is true if yield was called.
func (e *Engine) scanSome(
	ctx context.Context, r engine.Range, some []engine.Key, at, field int, yield func(engine.RowOf, error) bool,
) (enough, begun bool, err error) {
	places := make(map[string]int, len(some))
	texts := make([]string, 0, len(some))
	for i, p := range some {
		if err := checkPartition(r.Table, p); err != nil {
			return false, false, err
		}
		texts = append(texts, p[field].Text)
		places[p[field].Text] = at + i
	}
	r.Partition = some[0]
	if err := checkRange(&r); err != nil {
		return false, false, err
	}
	var of engine.Value
	s := newScanner(e, &r)
	s.statement = severalText(e.opts.Keyspace, r.Table, field, scanShape{
		len(r.From), len(r.To), r.KeysOnly, r.Limit > 0,
	})
	s.args[field] = texts
	s.cells = slices.Insert(s.cells, 0, any((*textCell)(&of)))
	if r.Limit > 0 {
		s.size = max(s.size, min(keysPage, r.Limit*len(some)))
		if !r.KeysOnly {
			s.size = min(s.size, s.policy.firstPage)
		}
	}
	err = e.run(ctx, s, func(row engine.Row, err error) bool {
		begun = true
		enough = !yield(engine.RowOf{Row: row, At: places[of.Text]}, err)
		return !enough
	})
	return enough, begun, err
}

// severalText is scanText for partitions that differ in a field, which is bound first.
func severalText(keyspace string, t *engine.Table, field int, shape scanShape) string {
	where := ""
	for i, f := range t.Partition {
		if i > 0 {
			where += " AND "
		}
		where += quoteName(f.Name) + map[bool]string{true: " IN ?", false: " = ?"}[i == field]
	}
	text := fmt.Sprintf("SELECT %s, %s FROM %s.%s WHERE %s",
		quoteName(t.Partition[field].Name),
		selectedColumns(t, shape), quoteName(keyspace), quoteName(t.Name), where) + boundConditions(t, shape)
	if shape.some {
		text += " PER PARTITION LIMIT ?"
	}
	return text
}
