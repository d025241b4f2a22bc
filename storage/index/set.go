package index

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/prometheus/model/labels"
)

const (
	// smallSet is the max number of series for which testing each one is faster than filling columns.
	smallSet = 32
	// fewSeries is the max number of candidates for which a list is faster than a bitmap.
	fewSeries = 64
	// maxAbsent is the max number of cached label names that no series has. The bound prevents queries for many
	// invented names from filling the memory.
	maxAbsent = 64
	// headerBytes is the size of a labels.Labels value in memory, without the labels' bytes.
	headerBytes = 16
)

// Set is an immutable set of the series of one metric, which all have the same __name__. The position of a series is
// its index in the slice that was passed to New. All methods are safe for concurrent use.
type Set struct {
	series []labels.Labels

	labelBytes  int64
	columnBytes atomic.Int64

	mu      sync.RWMutex
	columns map[string]*column
	absent  int
	recent  atomic.Pointer[column] // the filled column that was used last

	namesOnce sync.Once
	names     []string
}

// New returns a set of series with the labels ls, which it retains. All series must have the same __name__, and each
// label at most once.
func New(ls []labels.Labels) *Set {
	s := &Set{series: ls, columns: map[string]*column{}}
	for _, l := range ls {
		s.labelBytes += int64(l.ByteSize()) + headerBytes
	}
	return s
}

// Len returns the number of series.
func (s *Set) Len() int { return len(s.series) }

// Labels returns the labels of the series at a position.
func (s *Set) Labels(position uint32) labels.Labels { return s.series[position] }

// Bytes returns the approximate memory of the set. It grows the first time a matcher uses a label, because the column of
// the label is built then.
func (s *Set) Bytes() int64 { return s.labelBytes + s.columnBytes.Load() }

// LabelNames returns the sorted names of the labels of the series at positions.
func (s *Set) LabelNames(positions []uint32) []string {
	if len(positions) == len(s.series) {
		s.namesOnce.Do(func() {
			s.names = namesOf(s.series, positions)
			for _, name := range s.names {
				s.columnBytes.Add(int64(len(name)) + headerBytes)
			}
		})
		return slices.Clone(s.names)
	}
	return namesOf(s.series, positions)
}

func namesOf(series []labels.Labels, positions []uint32) []string {
	seen := map[string]struct{}{}
	for _, p := range positions {
		series[p].Range(func(l labels.Label) {
			if _, ok := seen[l.Name]; !ok {
				seen[l.Name] = struct{}{}
			}
		})
	}
	return sortedKeys(seen)
}

// LabelValues returns the sorted values of a label of the series at positions. It ignores series without the label. The
// list is empty if the context has ended.
func (s *Set) LabelValues(ctx context.Context, name string, positions []uint32) []string {
	if name == labels.MetricName && len(positions) > 0 { // All series have the same name.
		if v := s.series[positions[0]].Get(name); v != "" {
			return []string{v}
		}
		return nil
	}
	if len(positions) == len(s.series) && len(positions) > smallSet {
		if c := s.column(ctx, name); c != nil {
			return slices.Clone(c.values)
		}
		return nil
	}
	seen := map[string]struct{}{}
	last := ""
	for _, p := range positions {
		if v := s.series[p].Get(name); v != last && v != "" {
			seen[v] = struct{}{}
			last = v
		}
	}
	return sortedKeys(seen)
}

func sortedKeys(m map[string]struct{}) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
