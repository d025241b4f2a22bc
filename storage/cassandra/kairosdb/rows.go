package kairosdb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
)

const (
	// dataPoints is the table whose rows the indices list.
	dataPoints = "data_points"
	// pageOfKeys is the number of keys per page.
	pageOfKeys = 1000
	// maxRows is the max number of keys of one metric and row time, which are held in memory together.
	maxRows = 4_000_000
)

// Rows yields the rows of a metric that may have points in [minMS, maxMS], ordered by row time, and within a row time
// by key. All rows of one row time are yielded together. Each row is yielded once, except rows whose tags have a ':' or
// '=': they have two keys, which must both be read, see doc.go. An ErrCorrupt affects one entry of an index, and other
// entries follow; any other error is the last.
func (k *Keyspace) Rows(ctx context.Context, metric string, minMS, maxMS int64) iter.Seq2[[]Row, error] {
	return func(yield func([]Row, error) bool) {
		times, err := k.rowTimes(ctx, metric, minMS, maxMS)
		if err != nil {
			yield(nil, fmt.Errorf("kairosdb: list the rows of metric %q: %w", metric, err))
			return
		}
		for _, at := range times {
			rows, damaged, err := k.rowsAt(ctx, metric, at)
			if err != nil {
				yield(nil, fmt.Errorf("kairosdb: list the rows of metric %q at %d: %w", metric, at, err))
				return
			}
			for _, d := range damaged {
				if !yield(nil, d) {
					return
				}
			}
			if len(rows) > 0 && !yield(rows, nil) {
				return
			}
		}
	}
}

// rowTimes returns the times of a metric's rows that may have points in [minMS, maxMS], sorted.
func (k *Keyspace) rowTimes(ctx context.Context, metric string, minMS, maxMS int64) ([]int64, error) {
	if minMS > math.MinInt64+k.layout.widthMS {
		minMS -= k.layout.widthMS - 1
	} else {
		minMS = math.MinInt64
	}
	var times []int64
	if k.current {
		rows := k.session.Query(
			"SELECT row_time FROM row_key_time_index WHERE metric = ? AND table_name = ? AND row_time >= ? AND "+
				"row_time <= ?",
			metric, dataPoints, minMS, maxMS,
		).WithContext(ctx).PageSize(pageOfKeys).Iter()
		var at int64
		for rows.Scan(&at) {
			times = append(times, at)
		}
		if err := rows.Close(); err != nil {
			return nil, err
		}
	}
	if k.legacy {
		// Keys are sorted as unsigned numbers: times before 1970 are last.
		for _, part := range [][2]int64{{max(minMS, 0), maxMS}, {minMS, min(maxMS, -1)}} {
			more, err := k.legacyTimes(ctx, metric, part[0], part[1])
			if err != nil {
				return nil, err
			}
			times = append(times, more...)
		}
	}
	slices.Sort(times)
	return slices.Compact(times), nil
}

// legacyTimes seeks from one row time to the next. firstMS and lastMS must have the same sign.
func (k *Keyspace) legacyTimes(ctx context.Context, metric string, firstMS, lastMS int64) ([]int64, error) {
	var times []int64
	for firstMS <= lastMS {
		var key []byte
		rows := k.session.Query("SELECT column1 FROM row_key_index WHERE key = ? AND column1 >= ? LIMIT 1",
			[]byte(metric), appendKeyHead(nil, metric, firstMS)).WithContext(ctx).Iter()
		found := rows.Scan((*blobCell)(&key))
		if err := rows.Close(); err != nil || !found {
			return times, err
		}
		at, ok := timeOfKey(metric, key)
		if !ok || at > lastMS || at < firstMS {
			return times, nil
		}
		if times = append(times, at); at == math.MaxInt64 {
			return times, nil
		}
		firstMS = at + 1
	}
	return times, nil
}

// timeOfKey returns the row time in a key of a metric's row.
func timeOfKey(metric string, key []byte) (int64, bool) {
	head, ok := bytes.CutPrefix(key, append([]byte(metric), 0))
	if !ok || len(head) < 8 {
		return 0, false
	}
	var at uint64
	for _, b := range head[:8] {
		at = at<<8 | uint64(b)
	}
	return int64(at), true
}

// rowsAt returns all rows of a metric and a row time, sorted, and an error for each damaged entry of the indices.
func (k *Keyspace) rowsAt(ctx context.Context, metric string, atMS int64) (all []Row, damaged []error, err error) {
	if k.current {
		if all, err = k.currentRows(ctx, metric, atMS); err != nil {
			return nil, nil, err
		}
	}
	if k.legacy {
		if all, damaged, err = k.legacyRows(ctx, metric, atMS, all); err != nil {
			return nil, nil, err
		}
	}
	slices.SortFunc(all, compareRows)
	// A row may be in both indices.
	return slices.CompactFunc(all, func(a, b Row) bool { return bytes.Equal(a.Key, b.Key) }), damaged, nil
}

func (k *Keyspace) currentRows(ctx context.Context, metric string, atMS int64) ([]Row, error) {
	rows := k.session.Query("SELECT data_type, tags FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ?",
		metric, dataPoints, atMS).WithContext(ctx).PageSize(pageOfKeys).Iter()
	var all []Row
	for {
		var typ *string
		var tags map[string]string
		if !rows.Scan(&typ, &tags) {
			break
		}
		if typ == nil {
			continue // all rows were deleted; only the time of the last change remains
		}
		r := Row{Metric: metric, TimeMS: atMS, Type: *typ, Tags: tags}
		r.Key = appendKey(nil, &r, false)
		if all = append(all, r); hasEscapes(tags) {
			if plain, ok := withPlainKey(r); ok {
				all = append(all, plain)
			}
		}
		if len(all) > maxRows {
			return nil, errors.Join(newTooManyError(), rows.Close())
		}
	}
	return all, rows.Close()
}

func newTooManyError() error {
	return fmt.Errorf("the metric has more than %d rows, which are too many to sort", maxRows)
}

func hasEscapes(tags map[string]string) bool {
	for name, value := range tags {
		if strings.ContainsAny(name, ":=") || strings.ContainsAny(value, ":=") {
			return true
		}
	}
	return false
}

// withPlainKey returns the row with the key that a release before 1.3 would have written. It returns false if another
// series has that key in later releases.
func withPlainKey(r Row) (Row, bool) {
	r.Key = appendKey(nil, &r, true)
	other, err := parseKey(r.Key)
	return r, err != nil || !bytes.Equal(appendKey(nil, &other, false), r.Key)
}

// legacyRows appends the rows in row_key_index.
func (k *Keyspace) legacyRows(ctx context.Context, metric string, atMS int64, all []Row) ([]Row, []error, error) {
	statement, args := "SELECT column1 FROM row_key_index WHERE key = ? AND column1 >= ?",
		[]any{[]byte(metric), appendKeyHead(nil, metric, atMS)}
	if atMS != -1 { // the successor of -1 as an unsigned number would be 0
		statement += " AND column1 < ?"
		args = append(args, appendKeyHead(nil, metric, atMS+1))
	}
	rows := k.session.Query(statement, args...).WithContext(ctx).PageSize(pageOfKeys).Iter()
	var damaged []error
	var key []byte
	for rows.Scan((*blobCell)(&key)) {
		r, err := parseKey(bytes.Clone(key))
		if err == nil && (r.Metric != metric || r.TimeMS != atMS) {
			err = fmt.Errorf("%w: key %x: row_key_index lists it under metric %q", ErrCorrupt, key, metric)
		}
		if err != nil {
			damaged = append(damaged, err)
			continue
		}
		if all = append(all, r); len(all)+len(damaged) > maxRows {
			return nil, nil, errors.Join(newTooManyError(), rows.Close())
		}
	}
	return all, damaged, rows.Close()
}
