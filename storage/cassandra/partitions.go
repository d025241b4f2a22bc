package cassandra

import (
	"context"
	"fmt"
	"iter"

	"github.com/gocql/gocql"

	"github.com/cassia-db/cassia/storage/engine"
)

// partitionsPage is the number of partition keys per page. A node reads one row of each partition.
const partitionsPage = 1000

// Partitions implements engine.Engine. The nodes read the whole table. A partition with only tombstones may be yielded.
func (e *Engine) Partitions(
	ctx context.Context, t *engine.Table, prefix engine.Key, _ func(engine.Damage),
) iter.Seq2[engine.Key, error] {
	return func(yield func(engine.Key, error) bool) {
		if err := e.partitions(ctx, t, prefix, yield); err != nil {
			yield(nil, err)
		}
	}
}

// partitions lists the partitions. It returns nil if yield returned false.
func (e *Engine) partitions(
	ctx context.Context, t *engine.Table, prefix engine.Key, yield func(engine.Key, error) bool,
) error {
	if err := e.begin(ctx); err != nil {
		return err
	}
	if err := engine.CheckPartitions(t, prefix); err != nil {
		return err
	}
	statement := fmt.Sprintf("SELECT DISTINCT %s FROM %s.%s",
		joinNames(t.Partition), quoteName(e.opts.Keyspace), quoteName(t.Name))
	key := make(engine.Key, len(t.Partition))
	var cells []any
	for i, f := range t.Partition {
		if f.Kind == engine.KindInt {
			cells = append(cells, (*intCell)(&key[i]))
		} else {
			cells = append(cells, (*textCell)(&key[i]))
		}
	}
	for from := []byte(nil); ; {
		rows, err := e.partitionPage(ctx, t, statement, from)
		if err != nil {
			return e.translateError(ctx, fmt.Sprintf("list the partitions of table %s", t), err)
		}
		from = rows.PageState()
		for range rows.NumRows() {
			if err := e.begin(ctx); err != nil {
				return err
			}
			if !rows.Scan(cells...) {
				return fmt.Errorf("cassandra: list the partitions of table %s: %w: %w",
					t, engine.ErrCorrupt, rows.Close())
			}
			if engine.Compare(key, prefix) == 0 && !yield(key, nil) {
				return nil
			}
		}
		if len(from) == 0 {
			return nil
		}
	}
}

// partitionPage fetches a page.
func (e *Engine) partitionPage(
	ctx context.Context, t *engine.Table, statement string, from []byte,
) (rows *gocql.Iter, err error) {
	e.metrics.countRequest(opScan, t)
	err = e.sendRequest(ctx, opScan, isTransient, func(ctx context.Context) (int, error) {
		q := e.session.Query(statement).WithContext(ctx).Consistency(e.level.read).PageSize(partitionsPage).PageState(
			from,
		).Idempotent(true).RetryPolicy(retryOnOtherNode{})
		rows = q.Iter()
		if rows.NumRows() == 0 {
			return q.Attempts(), rows.Close() // Close returns the request's error, if any; with rows there is none.
		}
		return q.Attempts(), nil
	})
	return rows, err
}
