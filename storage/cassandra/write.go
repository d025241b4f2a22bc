package cassandra

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/panics"
)

const (
	// maxStatements is the max number of statements in a batch of the CQL protocol.
	maxStatements = math.MaxUint16
	// maxTTL is Cassandra's max TTL in seconds: 20 years.
	maxTTL = 20 * 365 * 24 * 3600
	// lastExpiry is the last second since 1970 at which a row can expire in Cassandra's older file formats: the max
	// signed 32-bit number, minus one.
	lastExpiry = math.MaxInt32 - 1
)

// Write implements engine.Engine. Each batch is one mutation, or a part of one, in one partition, so it is atomic. All
// mutations are idempotent, because they contain their timestamps, and are retried after errors that may be temporary.
//
// A batch that has expired by the cluster's clock is rejected with engine.ErrExpired before anything is written. A row
// whose expiry exceeds Cassandra's max (2038 in older file formats) is kept forever, because an earlier expiry would
// lose data.
func (e *Engine) Write(ctx context.Context, batches []engine.Batch) error {
	if err := e.begin(ctx); err != nil {
		return err
	}
	if err := checkBatches(batches); err != nil {
		return err
	}
	if err := e.checkExpiry(batches); err != nil {
		return err
	}
	if len(batches) > 1 {
		batches = mergeBatches(batches)
	}
	if len(batches) == 1 {
		return e.writeBatch(ctx, &batches[0])
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var workers sync.WaitGroup
	var next atomic.Int64
	var once sync.Once
	var first error
	for range min(len(batches), e.opts.MaxInFlight) {
		workers.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(batches) {
					return
				}
				if err := panics.Call("writing", func() error { return e.writeBatch(ctx, &batches[i]) }); err != nil {
					once.Do(func() { first = err })
					cancel()
					return
				}
			}
		})
	}
	workers.Wait()
	return first
}

// checkBatches rejects batches that every engine rejects, and batches that Cassandra doesn't support.
func checkBatches(batches []engine.Batch) error {
	if err := engine.CheckBatches(batches); err != nil {
		return err
	}
	for i := range batches {
		b := &batches[i]
		if err := checkPartition(b.Table, b.Partition); err != nil {
			return err
		}
		if len(b.Mutations) > maxStatements {
			return fmt.Errorf("%w: a batch for %s has %d mutations; the maximum is %d",
				engine.ErrTooLarge, b.Table, len(b.Mutations), maxStatements)
		}
		for j := range b.Mutations {
			if err := checkTexts(b.Table.Clustering, b.Mutations[j].Clustering); err != nil {
				return fmt.Errorf("row of %s: %w", b.Table, err)
			}
		}
	}
	return nil
}

// checkExpiry rejects expired batches.
func (e *Engine) checkExpiry(batches []engine.Batch) error {
	for i := range batches {
		if b := &batches[i]; b.Expires != 0 && timeToLive(b.Expires, e.clusterTime().Unix()) < 0 {
			return fmt.Errorf("%w: a batch for %s", engine.ErrExpired, describePartition(b.Table, b.Partition))
		}
	}
	return nil
}

// clusterClock is a reading of the cluster's clock and of this process's clock at the same moment.
type clusterClock struct{ there, here time.Time }

// clusterTime returns the time by the cluster's clock: its last reading plus this process' elapsed time since then.
func (e *Engine) clusterTime() time.Time {
	if e.opts.ClusterTime != nil {
		return e.opts.ClusterTime()
	}
	if c := e.clock.Load(); c != nil {
		return c.there.Add(e.opts.Now().Sub(c.here))
	}
	return e.opts.Now()
}

// writeBatch sends one batch.
func (e *Engine) writeBatch(ctx context.Context, b *engine.Batch) error {
	if len(b.Mutations) == 0 {
		return nil
	}
	var entries []gocql.BatchEntry
	before := 0
	e.metrics.countRequest(opWrite, b.Table)
	err := e.sendRequest(ctx, opWrite, isTransient, func(ctx context.Context) (int, error) {
		// Compute the TTL for each attempt, so that rows that waited expire together with the other rows of their
		// window.
		ttl := 0
		if b.Expires != 0 {
			if ttl = timeToLive(b.Expires, e.clusterTime().Unix()); ttl < 0 {
				return 1, engine.ErrExpired
			}
		}
		if entries == nil || ttl != before {
			entries, before = e.batchEntries(b, ttl), ttl
		}
		if len(entries) == 1 {
			// A single statement is cheaper than a batch with one statement.
			q := e.session.Query(entries[0].Stmt, entries[0].Args...).WithContext(ctx).
				Consistency(e.level.write).Idempotent(true).RetryPolicy(retryOnOtherNode{})
			q.SetSpeculativeExecutionPolicy(e.querySecond(silentWriter))
			err := q.Exec()
			return q.Attempts(), err
		}
		batch := e.session.NewBatch(gocql.UnloggedBatch).WithContext(ctx).RetryPolicy(retryOnOtherNode{})
		batch.SpeculativeExecutionPolicy(e.querySecond(silentWriter))
		batch.Cons = e.level.write
		batch.Entries = entries
		err := e.session.ExecuteBatch(batch)
		return batch.Attempts(), err
	})
	if errors.Is(err, engine.ErrExpired) {
		return fmt.Errorf("%w: a batch for %s", err, describePartition(b.Table, b.Partition))
	}
	if err != nil {
		return e.translateError(ctx, "write to "+describePartition(b.Table, b.Partition), err)
	}
	return nil
}

// batchEntries converts a batch to statements. ttl is the TTL of its rows in seconds; 0 means that the rows don't
// expire.
func (e *Engine) batchEntries(b *engine.Batch, ttl int) []gocql.BatchEntry {
	entries := make([]gocql.BatchEntry, 0, len(b.Mutations))
	s, fields := e.statements[b.Table], len(b.Table.Partition)+len(b.Table.Clustering)
	for i := range b.Mutations {
		m := &b.Mutations[i]
		entry := gocql.BatchEntry{Args: make([]any, 0, fields+3), Idempotent: true}
		if m.Op != engine.Put {
			entry.Args = appendValues(append(entry.Args, m.Timestamp), b.Table.Partition, b.Partition)
			entry.Args = appendValues(entry.Args, b.Table.Clustering, m.Clustering)
			if entry.Stmt = s.remove; m.Op == engine.DeleteRange {
				entry.Stmt = s.removeRange
				entry.Args = append(entry.Args, m.To[len(m.To)-1].Int)
			}
			entries = append(entries, entry)
			continue
		}
		entry.Args = appendValues(entry.Args, b.Table.Partition, b.Partition)
		entry.Args = appendValues(entry.Args, b.Table.Clustering, m.Clustering)
		entry.Args = append(entry.Args, bindValue(m.Value), m.Timestamp)
		entry.Stmt = s.put
		if ttl > 0 {
			entry.Stmt = s.putTTL
			entry.Args = append(entry.Args, ttl)
		}
		entries = append(entries, entry)
	}
	return entries
}

// timeToLive returns the TTL in seconds of rows with an expiry. It returns 0 for rows that are kept forever, and -1 if
// the expiry has passed.
func timeToLive(expires, now int64) int {
	switch {
	case expires <= now:
		return -1
	case expires > lastExpiry || expires-now > maxTTL:
		return 0
	default:
		return int(expires - now)
	}
}

// stripe returns the lock of a partition, which is shared with few other partitions.
func (e *Engine) stripe(t *engine.Table, partition engine.Key) chan struct{} {
	var h maphash.Hash
	h.SetSeed(e.seed)
	_ = h.WriteByte(t.ID)
	for i, v := range partition {
		if t.Partition[i].Kind == engine.KindInt {
			maphash.WriteComparable(&h, v.Int)
		} else {
			_, _ = h.WriteString(v.Text)
		}
	}
	return e.setting[h.Sum64()%setStripes]
}

// CompareAndSet implements engine.Engine with a lightweight transaction. After engine.ErrUnavailable the result is
// unknown, so the request is sent again only if it certainly had no effect. Within the process, operations on one
// partition are serialized, because Cassandra handles contention badly.
func (e *Engine) CompareAndSet(
	ctx context.Context, t *engine.Table, partition, clustering engine.Key, old, value []byte,
) (bool, []byte, error) {
	if err := e.begin(ctx); err != nil {
		return false, nil, err
	}
	if err := checkCompareAndSet(t, partition, clustering, value); err != nil {
		return false, nil, err
	}
	stripe := e.stripe(t, partition)
	select {
	case stripe <- struct{}{}:
		defer func() { <-stripe }()
	case <-ctx.Done():
		return false, nil, ctx.Err()
	case <-e.ctx.Done():
		return false, nil, engine.ErrClosed
	}
	s, statement := e.statements[t], ""
	var args []any
	if old == nil {
		statement = s.create
		args = append(
			appendValues(appendValues(args, t.Partition, partition), t.Clustering, clustering), bindValue(value),
		)
	} else {
		statement = s.replace
		args = append(args, bindValue(value))
		args = append(appendValues(appendValues(args, t.Partition, partition), t.Clustering, clustering), old)
	}
	var applied bool
	var row map[string]any
	e.metrics.countRequest(opSet, t)
	err := e.sendRequest(ctx, opSet, isUntouched, func(ctx context.Context) (int, error) {
		row = map[string]any{}
		q := e.session.Query(statement, args...).WithContext(ctx).
			Consistency(e.level.write).SerialConsistency(e.level.serial)
		var err error
		applied, err = q.MapScanCAS(row)
		return q.Attempts(), err
	})
	if err != nil {
		return false, nil, e.translateError(ctx, "compare and set in "+describePartition(t, partition), err)
	}
	if applied {
		return true, nil, nil
	}
	if found, ok := row[valueColumn].([]byte); ok {
		return false, append([]byte{}, found...), nil
	}
	return false, nil, nil
}

func checkCompareAndSet(t *engine.Table, partition, clustering engine.Key, value []byte) error {
	if err := engine.CheckCompareAndSet(t, partition, clustering, value); err != nil {
		return err
	}
	if err := checkPartition(t, partition); err != nil {
		return err
	}
	return checkTexts(t.Clustering, clustering)
}
