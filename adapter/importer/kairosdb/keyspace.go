package kairosdb

import (
	"context"
	"iter"
)

// Keyspace is what KairosDB keeps. Its methods may be called from several goroutines.
type Keyspace interface {
	// Metrics returns the names of all metrics, sorted by bytes, each once.
	Metrics(ctx context.Context) ([]string, error)
	// Rows yields the rows of a metric that may have points in [minMS, maxMS], all of one row time together, in the
	// order of time. They are the receiver's. A *DamageError concerns one row, and others come after it; any other error
	// is the last.
	Rows(ctx context.Context, metric string, minMS, maxMS int64) iter.Seq2[[]Row, error]
	// Points yields the points of a row in [minMS, maxMS], in the order of time. Errors are as with Rows.
	Points(ctx context.Context, r *Row, minMS, maxMS int64) iter.Seq2[Point, error]
}

// Row holds points of one series and one type.
type Row struct {
	Metric string
	// TimeMS is where the row begins, milliseconds.
	TimeMS int64
	// Type is KairosDB's name of its points' type; IsNumber is whether they have values.
	Type     string
	IsNumber bool
	Tags     map[string]string
	// Key identifies the row in the keyspace.
	Key []byte
}

// Point is a point of a row.
type Point struct {
	// TimeMS is milliseconds.
	TimeMS int64
	// Value is 0 where the row's type is no number's. Rounded: it is an integer that no float64 has.
	Value   float64
	Rounded bool
}

// DamageError means that something in the keyspace can't be read.
type DamageError struct{ Err error }

func (e *DamageError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *DamageError) Unwrap() error { return e.Err }
