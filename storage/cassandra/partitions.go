package cassandra

import (
	"context"
	"fmt"
	"iter"

	"github.com/gocql/gocql"

	"github.com/cassia-db/cassia/storage/engine"
)

// partitionsPage is how many keys of partitions a page has: a node reads a row of each.
const partitionsPage = 1000

// Partitions implements engine.Engine. The nodes read all of the table. A partition of which only deletes are left may be yielded.
func (e *Engine) Partitions(ctx context.Context, t *engine.Table, prefix engine.Key, _ func(engine.Damage)) iter.Seq2[engine.Key, error] {
	return func(yield func(engine.Key, error) bool) {
		if err := e.partitions(ctx, t, prefix, yield); err != nil {
			yield(nil, err)
		}
	}
}

// partitions returns nil when yield wanted no more.
func (e *Engine) partitions(ctx context.Context, t *engine.Table, prefix engine.Key, yield func(engine.Key, error) bool) error {
	if err := e.begin(ctx); err != nil {
		return err
	}
	if err := engine.CheckPartitions(t, prefix); err != nil {
		return err
	}
	statement := fmt.Sprintf("SELECT DISTINCT %s FROM %s.%s", names(t.Partition), quoted(e.opts.Keyspace), quoted(t.Name))
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
			return e.translate(ctx, fmt.Sprintf("list the partitions of table %s", t), err)
		}
		from = rows.PageState()
		for range rows.NumRows() {
			if err := e.begin(ctx); err != nil {
				return err
			}
			if !rows.Scan(cells...) {
				return fmt.Errorf("cassandra: list the partitions of table %s: %w: %w", t, engine.ErrCorrupt, rows.Close())
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

// partitionPage asks for a page.
func (e *Engine) partitionPage(ctx context.Context, t *engine.Table, statement string, from []byte) (rows *gocql.Iter, err error) {
	e.metrics.of(opScan, t)
	err = e.request(ctx, opScan, transient, func(ctx context.Context) (int, error) {
		q := e.session.Query(statement).WithContext(ctx).Consistency(e.level.read).PageSize(partitionsPage).PageState(from).Idempotent(true).RetryPolicy(elsewhere{})
		rows = q.Iter()
		if rows.NumRows() == 0 {
			return q.Attempts(), rows.Close() // gocql returns an error only then.
		}
		return q.Attempts(), nil
	})
	return rows, err
}
