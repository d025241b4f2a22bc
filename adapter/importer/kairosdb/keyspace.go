package kairosdb

import (
	"context"
	"iter"
)

// Keyspace reads the data of a KairosDB. It must be safe for concurrent use.
type Keyspace interface {
	// Metrics returns the distinct names of all metrics, sorted by bytes.
	Metrics(ctx context.Context) ([]string, error)
	// Rows yields the rows of a metric that may have points in [minMS, maxMS], sorted by time. The caller owns them.
	// After a *DamageError, which concerns one row, more rows may follow; any other error is the last element.
	Rows(ctx context.Context, metric string, minMS, maxMS int64) iter.Seq2[[]Row, error]
	// Points yields the points of a row in [minMS, maxMS], sorted by time. Errors are as for Rows.
	Points(ctx context.Context, r *Row, minMS, maxMS int64) iter.Seq2[Point, error]
}

// Row holds points of one series and one type.
type Row struct {
	Metric string
	// TimeMS is the start of the row in milliseconds.
	TimeMS int64
	// Type is KairosDB's name of the points' type. IsNumber is set if points of this type have values.
	Type     string
	IsNumber bool
	Tags     map[string]string
	// Key identifies the row in the keyspace.
	Key []byte
}

// Point is a point of a row.
type Point struct {
	// TimeMS is the timestamp in milliseconds.
	TimeMS int64
	// Value is 0 if the row's type isn't a number. IsRounded is set if it is an integer that float64 can't represent.
	Value     float64
	IsRounded bool
}

// DamageError means that a part of the keyspace is unreadable.
type DamageError struct{ Err error }

func (e *DamageError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *DamageError) Unwrap() error { return e.Err }
