package index

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/prometheus/model/labels"
)

const (
	// smallSet is the number of series up to which testing each one beats making columns.
	smallSet = 32
	// fewSeries is the number of candidates up to which a list beats a bitmap.
	fewSeries = 64
	// maxAbsent bounds how many names that no series has are remembered as absent, so that queries for
	// made-up names don't fill the memory.
	maxAbsent = 64
	// headerBytes is what one labels.Labels takes besides its bytes.
	headerBytes = 16
)

// Set is an immutable set of the series of one metric: all of them carry the same __name__. A series' position
// is its index in the slice that the Set was made of. All methods may be called from many goroutines at once.
type Set struct {
	series []labels.Labels

	labelBytes  int64
	columnBytes atomic.Int64

	mu      sync.RWMutex
	columns map[string]*column
	absent  int
	recent  atomic.Pointer[column] // the filled one that was used last

	namesOnce sync.Once
	names     []string
}

// New makes a set of these series, and keeps ls. They must all have the same __name__, and no label twice.
func New(ls []labels.Labels) *Set {
	s := &Set{series: ls, columns: map[string]*column{}}
	for _, l := range ls {
		s.labelBytes += int64(l.ByteSize()) + headerBytes
	}
	return s
}

// Len is the number of series.
func (s *Set) Len() int { return len(s.series) }

// Labels returns the labels of the series at a position.
func (s *Set) Labels(position uint32) labels.Labels { return s.series[position] }

// Bytes is how much memory the set takes, about. It grows when a label is first asked for.
func (s *Set) Bytes() int64 { return s.labelBytes + s.columnBytes.Load() }

// LabelNames lists the names of the labels of the series at these positions, sorted.
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

// LabelValues lists the values that the series at these positions have for a label, sorted; a series
// without the label adds none. There are none if the context has ended.
func (s *Set) LabelValues(ctx context.Context, name string, positions []uint32) []string {
	if name == labels.MetricName && len(positions) > 0 { // The same for all.
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
