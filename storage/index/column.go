package index

import (
	"context"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// column maps the values of one label to the series with each value.
type column struct {
	name string
	// isFilled is set once the fields below don't change any more.
	isFilled atomic.Bool
	// mu guards the fields below until the column is filled. It is held for one step at a time.
	mu      sync.Mutex
	filling *filling // nil once the column is filled
	lookups int      // look-ups answered by testing every series
	counted int64    // bytes added to the set's size

	users int // readers that fill the column; guarded by the mutex of the set

	// values are the label's values except the empty one, sorted.
	values []string
	// ends[i] is the end of the positions of values[i], where the positions of values[i+1] start.
	ends []uint32
	// positions are in the order of values, and in ascending order for each value.
	positions []uint32
	// places is a hash table with linear probing. It contains indices of values plus 1, and 0 in free places. Its
	// length is a power of two. A look-up compares about one text. A binary search would compare many texts that are
	// spread over the memory.
	places []uint32
}

// filledColumn returns a label's column, or nil if it isn't filled.
func (s *Set) filledColumn(name string) *column {
	if c := s.recent.Load(); c != nil && c.name == name {
		return c
	}
	s.mu.RLock()
	c := s.columns[name]
	s.mu.RUnlock()
	if c == nil || !c.isFilled.Load() {
		return nil
	}
	s.recent.Store(c)
	return c
}

// column returns a label's column. If the column isn't filled, column fills it, together with other readers that need
// it. It returns nil if the context has ended.
func (s *Set) column(ctx context.Context, name string) *column {
	if c := s.filledColumn(name); c != nil {
		return c
	}
	c := s.joinColumn(name)
	defer s.leaveColumn(c)
	for !hasEnded(ctx) { // No lock may be held here, because the meter may wait.
		if s.advanceColumn(c) {
			s.recent.Store(c)
			return c
		}
	}
	return nil
}

// prefersTests reports whether a look-up should test every series instead of filling the label's column. This is the
// case if the label has many values, because filling the column then takes as long as dozens of look-ups that test
// every series. Each look-up after the first does a part of the filling, so that the column of a label that is looked
// up often is eventually filled, and no look-up waits for long.
func (s *Set) prefersTests(ctx context.Context, name string) bool {
	if s.filledColumn(name) != nil {
		return false
	}
	c := s.joinColumn(name)
	defer s.leaveColumn(c)
	if s.advanceColumn(c) { // After one step it is known whether there are many values.
		return false
	}
	lookups := c.countLookup()
	if lookups == 0 {
		return false
	}
	for steps := len(s.series) / stretch / 2; lookups > 1 && steps > 0 && ctx.Err() == nil; steps-- {
		if isFilled, ok := s.tryAdvanceColumn(c); isFilled || !ok {
			return !isFilled
		}
	}
	return true
}

// countLookup counts a look-up that tests every series, and returns the count. It returns 0 if filling the column costs
// little more than testing every series.
func (c *column) countLookup() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.filling == nil || c.filling.hasFewValues() {
		return 0
	}
	c.lookups++
	return c.lookups
}

// joinColumn returns a label's column for a reader that fills it. The reader must call leaveColumn when it stops.
func (s *Set) joinColumn(name string) *column {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.columns[name]
	if c == nil {
		c = newColumn(name, s.series)
		s.columns[name] = c
	}
	c.users++
	return c
}

// leaveColumn removes the column if its last reader leaves before a value was found. Otherwise names that no series has
// would take memory.
func (s *Set) leaveColumn(c *column) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.users--; c.users == 0 && !c.isFilled.Load() && len(c.filling.texts) == 0 {
		delete(s.columns, c.name)
		s.columnBytes.Add(-c.counted)
	}
}

// advanceColumn does one step of filling a column, and reports whether the column is filled.
func (s *Set) advanceColumn(c *column) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return s.stepColumn(c)
}

// tryAdvanceColumn is like advanceColumn, but returns ok false if another reader is doing a step.
func (s *Set) tryAdvanceColumn(c *column) (isFilled, ok bool) {
	if !c.mu.TryLock() {
		return false, false
	}
	defer c.mu.Unlock()
	return s.stepColumn(c), true
}

// stepColumn is like advanceColumn. The caller must hold the column's lock.
func (s *Set) stepColumn(c *column) bool {
	if c.isFilled.Load() {
		return true
	}
	c.step()
	bytes := c.bytes() + int64(len(c.name))
	if c.filling == nil && len(c.values) == 0 {
		bytes = 0
	}
	s.columnBytes.Add(bytes - c.counted)
	if c.counted = bytes; c.filling != nil {
		return false
	}
	c.isFilled.Store(true)
	if len(c.values) == 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.absent++; s.absent > maxAbsent {
			delete(s.columns, c.name)
		}
	}
	return true
}

// seed is used for all hashes of values.
var seed = maphash.MakeSeed()

func hashOf(value string) uint64 { return maphash.String(seed, value) }

func (c *column) placeOf(hash uint64) int { return int(hash) & (len(c.places) - 1) }

// find returns the index of a value with the given hash. ok is false if no series has the value.
func (c *column) find(value string, hash uint64) (i int, ok bool) {
	for at := c.placeOf(hash); c.places[at] != 0; at = (at + 1) & (len(c.places) - 1) {
		if i := int(c.places[at]) - 1; c.values[i] == value {
			return i, true
		}
	}
	return 0, false
}

// bytes returns the approximate size of the column in memory.
func (c *column) bytes() int64 {
	n := int64(len(c.values)*(headerBytes+4) + len(c.positions)*4 + len(c.places)*4)
	if c.filling != nil {
		n += c.filling.bytes()
	}
	return n
}

// positionsOf returns the positions of the series with values[i].
func (c *column) positionsOf(i int) []uint32 {
	start := uint32(0)
	if i > 0 {
		start = c.ends[i-1]
	}
	return c.positions[start:c.ends[i]]
}

// prefixRange returns the range of values that start with prefix.
func (c *column) prefixRange(prefix string) (from, to int) {
	from, _ = slices.BinarySearch(c.values, prefix)
	rest := c.values[from:]
	n, _ := slices.BinarySearchFunc(rest, prefix, func(v, prefix string) int {
		if strings.HasPrefix(v, prefix) {
			return -1
		}
		return 1
	})
	return from, from + n
}
