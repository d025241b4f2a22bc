package kairosdb

import (
	"context"
	"fmt"
	"iter"
)

// pageOfPoints is the number of points per page: about 300 KiB on the wire.
const pageOfPoints = 5000

// Point is a point of a row.
type Point struct {
	// TimeMS is the time in milliseconds.
	TimeMS int64
	// Value is 0 if the type of the row isn't a type of numbers.
	Value float64
	// IsRounded is set if the value is an integer beyond 2^53 that float64 can't represent. Value is then the nearest
	// float64, or the even one of two that are equally near.
	IsRounded bool
}

// Points yields the points of a row in [minMS, maxMS], ordered by time. It holds one or two pages in memory. An
// ErrCorrupt concerns one point, and other points may follow; any other error is the last.
func (k *Keyspace) Points(ctx context.Context, r *Row, minMS, maxMS int64) iter.Seq2[Point, error] {
	return func(yield func(Point, error) bool) {
		first, last, some := k.layout.columns(r.TimeMS, minMS, maxMS)
		if !some {
			return
		}
		var column, value []byte
		statement, cells := "SELECT column1, value", []any{(*blobCell)(&column), (*blobCell)(&value)}
		if !r.IsNumber() {
			statement, cells = "SELECT column1", cells[:1]
		}
		rows := k.session.Query(
			statement+" FROM data_points WHERE key = ? AND column1 >= ? AND column1 <= ?", r.Key, first[:], last[:],
		).
			WithContext(ctx).PageSize(pageOfPoints).Iter()
		for rows.Scan(cells...) {
			p, err := k.layout.point(r, column, value)
			if err != nil {
				err = fmt.Errorf("%w; in row %s", err, r)
			} else if p.TimeMS < minMS || p.TimeMS > maxMS {
				continue // in the last second of the range, but after maxMS
			}
			if !yield(p, err) {
				_ = rows.Close() // the caller wants no more points
				return
			}
		}
		if err := rows.Close(); err != nil {
			yield(Point{}, fmt.Errorf("kairosdb: read row %s: %w", r, err))
		}
	}
}

// point decodes a column of a row.
func (l layout) point(r *Row, column, value []byte) (p Point, err error) {
	if p.TimeMS, err = l.timeOf(r.TimeMS, column); err != nil || !r.IsNumber() {
		return p, err
	}
	v, exact, err := valueOf(r.Type, column, value)
	p.Value, p.IsRounded = v, !exact
	return p, err
}
