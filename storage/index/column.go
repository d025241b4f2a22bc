package index

import (
	"hash/maphash"
	"math/bits"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/prometheus/model/labels"
)

// column holds, for one label, which series have which value.
type column struct {
	name string
	once sync.Once
	// values are the label's values, sorted, without the empty one.
	values []string
	// ends[i] is where the positions of values[i] end; they start where those of values[i-1] end.
	ends []uint32
	// positions are ascending within a value.
	positions []uint32
	// places is a hash table, with linear probing, of the indices of values plus 1; 0: a place is free. Its length is a power of two.
	places []uint32
}

// column returns a label's column, making it if this is the first time that it's asked for.
func (s *Set) column(name string) *column {
	if c := s.recent.Load(); c != nil && c.name == name {
		return c
	}
	s.mu.RLock()
	c := s.columns[name]
	s.mu.RUnlock()
	if c == nil {
		s.mu.Lock()
		if c = s.columns[name]; c == nil {
			c = &column{name: name}
			s.columns[name] = c
		}
		s.mu.Unlock()
	}
	c.once.Do(func() {
		c.fill(s.series, name)
		if len(c.values) > 0 {
			s.columnBytes.Add(c.bytes() + int64(len(name)))
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.absent++; s.absent > maxAbsent {
			delete(s.columns, name)
		}
	})
	s.recent.Store(c)
	return c
}

// hasColumn reports whether a label's column is there, or being made.
func (s *Set) hasColumn(name string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.columns[name] != nil
}

// fill finds the values, numbers them in the order of the text, and sorts the positions by counting.
func (c *column) fill(series []labels.Labels, name string) {
	const none = ^uint32(0)
	found := map[string]uint32{}
	ordinals := make([]uint32, len(series))
	lastValue, lastOrdinal := "", none
	for i, ls := range series {
		v := ls.Get(name)
		switch {
		case v == "":
			ordinals[i] = none
			continue
		case v != lastValue:
			o, ok := found[v]
			if !ok {
				o = uint32(len(c.values))
				found[v] = o
				c.values = append(c.values, v)
			}
			lastValue, lastOrdinal = v, o
		}
		ordinals[i] = lastOrdinal
	}

	slices.Sort(c.values)
	renumber := make([]uint32, len(c.values))
	for i, v := range c.values {
		renumber[found[v]] = uint32(i)
	}
	c.values = slices.Clip(c.values)
	c.hash()
	c.ends = make([]uint32, len(c.values))
	for i, o := range ordinals {
		if o != none {
			ordinals[i] = renumber[o]
			c.ends[ordinals[i]]++
		}
	}
	total := uint32(0)
	for i, n := range c.ends {
		c.ends[i] = total // for now where the value starts
		total += n
	}
	c.positions = make([]uint32, total)
	for i, o := range ordinals {
		if o != none {
			c.positions[c.ends[o]] = uint32(i)
			c.ends[o]++
		}
	}
}

// seed is that of all hashes of values.
var seed = maphash.MakeSeed()

func hashOf(value string) uint64 { return maphash.String(seed, value) }

// hash makes the table of values: to compare one text costs less than a binary search, whose texts are all over the memory.
func (c *column) hash() {
	c.places = make([]uint32, 1<<bits.Len(uint(len(c.values)+len(c.values)/4)))
	for i, v := range c.values {
		at := c.place(hashOf(v))
		for c.places[at] != 0 {
			at = (at + 1) & (len(c.places) - 1)
		}
		c.places[at] = uint32(i) + 1
	}
}

func (c *column) place(hash uint64) int { return int(hash) & (len(c.places) - 1) }

// find returns the index of a value with this hash; ok is false if no series has it.
func (c *column) find(value string, hash uint64) (i int, ok bool) {
	for at := c.place(hash); c.places[at] != 0; at = (at + 1) & (len(c.places) - 1) {
		if i := int(c.places[at]) - 1; c.values[i] == value {
			return i, true
		}
	}
	return 0, false
}

func (c *column) bytes() int64 {
	return int64(len(c.values)*(headerBytes+4) + len(c.positions)*4 + len(c.places)*4)
}

// of returns the positions of the series with values[i].
func (c *column) of(i int) []uint32 {
	start := uint32(0)
	if i > 0 {
		start = c.ends[i-1]
	}
	return c.positions[start:c.ends[i]]
}

// prefixed returns the range of values that start with prefix.
func (c *column) prefixed(prefix string) (from, to int) {
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
