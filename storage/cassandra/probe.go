package cassandra

import (
	"context"
	"fmt"
	"slices"

	"github.com/cassia-db/cassia/storage/engine"
)

var _ engine.Prober = (*Engine)(nil)

// maxProbed is the approximate number of partitions per request. One node reads all of them concurrently.
const maxProbed = 64

func (e *Engine) Occupied(ctx context.Context, t *engine.Table, partitions []engine.Key) ([]bool, error) {
	if err := e.begin(ctx); err != nil {
		return nil, err
	}
	field, err := engine.CheckProbe(t, partitions)
	if err != nil {
		return nil, err
	}
	statement := e.probeText(t, field)
	found := map[int64]bool{}
	for some := range slices.Chunk(partitions, maxProbed) {
		args := appendValues(nil, t.Partition, some[0])
		list := make([]int64, len(some))
		for i, p := range some {
			list[i] = p[field].Int
		}
		args[field] = list
		if err := e.probePartitions(ctx, t, statement, args, found); err != nil {
			return nil, err
		}
	}
	occupied := make([]bool, len(partitions))
	for i, p := range partitions {
		occupied[i] = found[p[field].Int]
	}
	return occupied, nil
}

func (e *Engine) probeText(t *engine.Table, field int) string {
	where := ""
	for i, f := range t.Partition {
		if i > 0 {
			where += " AND "
		}
		where += quoteName(f.Name) + map[bool]string{true: " IN ?", false: " = ?"}[i == field]
	}
	return fmt.Sprintf("SELECT %s FROM %s.%s WHERE %s PER PARTITION LIMIT 1",
		quoteName(t.Partition[field].Name), quoteName(e.opts.Keyspace), quoteName(t.Name), where)
}

// probePartitions adds to found the partitions in args that have rows.
func (e *Engine) probePartitions(
	ctx context.Context, t *engine.Table, statement string, args []any, found map[int64]bool,
) error {
	e.metrics.countRequest(opScan, t)
	err := e.sendRequest(ctx, opScan, isTransient, func(ctx context.Context) (int, error) {
		q := e.session.Query(
			statement, args...,
		).WithContext(ctx).Consistency(e.level.read).PageSize(2 * maxProbed).Idempotent(true)
		q.RetryPolicy(retryOnOtherNode{})
		q.SetSpeculativeExecutionPolicy(e.querySecond(slowReader))
		rows := q.Iter()
		for of := int64(0); rows.Scan(&of); {
			found[of] = true
		}
		return q.Attempts(), rows.Close()
	})
	if err != nil {
		return e.translateError(ctx, fmt.Sprintf("check which partitions of table %s have rows", t), err)
	}
	return nil
}
