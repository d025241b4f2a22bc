package storage

import (
	"context"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
)

// Query asks for the samples of series.
type Query struct {
	Tenant string
	// MinT and MaxT bound the samples' timestamps, both included, milliseconds.
	MinT, MaxT int64
	Matchers   []*labels.Matcher
	// Sorted asks for series in the order of their labels.
	Sorted bool
	// Limit is the greatest number of series wanted; 0: all.
	Limit int
	// Warn is told what had to be skipped because it is corrupt; nil: only logs and counters are.
	Warn func(error)
}

// SelectedSeries is one series of a Query's answer. Its methods may be called from any goroutine, and
// after the query's context has ended they may fail with its error.
type SelectedSeries struct {
	Labels labels.Labels
}

// Samples appends the series' samples within the query's range, in order, at most one a timestamp.
func (s *SelectedSeries) Samples(into *chunk.Samples) error { panic("not built yet") }

// Select finds the series that match and have, or may have, samples in the range.
func (s *Store) Select(ctx context.Context, q Query) ([]*SelectedSeries, error) {
	panic("not built yet")
}

// LabelNames lists the names of labels of the series that match (no matchers: of all) in the range, sorted.
func (s *Store) LabelNames(ctx context.Context, q Query) ([]string, error) { panic("not built yet") }

// LabelValues lists the values of a label, sorted, likewise.
func (s *Store) LabelValues(ctx context.Context, name string, q Query) ([]string, error) {
	panic("not built yet")
}
