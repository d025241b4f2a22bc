package index

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
)

const (
	// stretch is the number of series, or of values, that one step of a filling processes.
	stretch = 1 << 12
	// noValue is the ordinal of series without the label.
	noValue = ^uint32(0)
)

// fillPhase is a phase of a filling. Each phase takes many steps.
type fillPhase uint8

const (
	findValues   fillPhase = iota // number the values in the order in which they are found
	sortRuns                      // sort runs of values
	mergeRuns                     // merge pairs of runs until a single run is left
	numberValues                  // number the sorted values
	countSeries                   // count the series of each value
	placeSeries                   // list the series of each value: sort their positions by counting
	filled
)

// filling is the state of a column that isn't filled yet. Readers share the work: each does one step at a time, and a
// reader that stops early leaves its completed steps to the others.
type filling struct {
	series []labels.Labels
	phase  fillPhase
	next   int // number of items that the phase has processed

	ordinals []uint32     // numbers of the series' values, by position
	texts    []foundValue // the values in the order in which they were found; later sorted
	merged   []foundValue // the merged runs of texts
	hashes   []uint64     // hashes of the values in the order in which they were found
	last     foundValue   // value of the previous series
	width    int          // length of the runs
	left     int          // next item of the left run of the pair that is being merged
	right    int          // next item of the right run
	renumber []uint32     // maps the first numbers of values to their sorted numbers
}

// foundValue is a value and its number in the order in which the values were found.
type foundValue struct {
	text    string
	ordinal uint32
}

func newColumn(name string, series []labels.Labels) *column {
	return &column{name: name, filling: &filling{series: series, last: foundValue{ordinal: noValue}}}
}

// step does one step of the filling: it processes up to stretch items. The last step of a phase also prepares the next
// phase.
func (c *column) step() {
	f := c.filling
	from := f.next
	total := len(f.series)
	if f.phase == sortRuns || f.phase == numberValues {
		total = len(f.texts)
	}
	to := min(from+stretch, total)
	f.next = to
	switch f.phase {
	case findValues:
		c.findValues(from, to)
	case sortRuns:
		slices.SortFunc(f.texts[from:to], compareTexts)
	case mergeRuns:
		if f.mergeStretch() {
			f.enterPhase(numberValues)
			c.startNumbers()
		}
		return
	case numberValues:
		for i, v := range f.texts[from:to] {
			c.values[from+i] = v.text
			f.renumber[v.ordinal] = uint32(from + i)
		}
	case countSeries:
		for i, o := range f.ordinals[from:to] {
			if o != noValue {
				o = f.renumber[o]
				f.ordinals[from+i] = o
				c.ends[o]++
			}
		}
	case placeSeries:
		for i, o := range f.ordinals[from:to] {
			if o != noValue {
				c.positions[c.ends[o]] = uint32(from + i)
				c.ends[o]++
			}
		}
	}
	if to == total {
		f.enterPhase(f.phase + 1)
		c.startPhase()
	}
}

func (f *filling) enterPhase(phase fillPhase) { f.phase, f.next = phase, 0 }

// startPhase prepares the current phase.
func (c *column) startPhase() {
	f := c.filling
	switch f.phase {
	case mergeRuns:
		f.width = stretch
		f.merged = make([]foundValue, 0, len(f.texts))
	case countSeries:
		for i, at := range c.places {
			if at != 0 {
				c.places[i] = f.renumber[at-1] + 1
			}
		}
		c.ends = make([]uint32, len(c.values))
	case placeSeries:
		total := uint32(0)
		for i, n := range c.ends {
			c.ends[i] = total // temporarily the start of the value
			total += n
		}
		c.positions = make([]uint32, total)
	case filled:
		c.filling = nil
	}
}

// startNumbers prepares the phase after the merges.
func (c *column) startNumbers() {
	f := c.filling
	f.merged, f.hashes = nil, nil
	c.values, f.renumber = make([]string, len(f.texts)), make([]uint32, len(f.texts))
}

// findValues assigns numbers to the values of the series with positions in [from, to). Until the values are sorted, the
// hash table contains these numbers.
func (c *column) findValues(from, to int) {
	f := c.filling
	if f.ordinals == nil {
		f.ordinals = make([]uint32, len(f.series))
		c.places = make([]uint32, 1)
	}
	for i, ls := range f.series[from:to] {
		v := ls.Get(c.name)
		if v == "" {
			f.ordinals[from+i] = noValue
			continue
		}
		if v != f.last.text {
			f.last = foundValue{v, c.numberOf(v)}
		}
		f.ordinals[from+i] = f.last.ordinal
	}
}

// numberOf returns the number of a value. It assigns the next number to a new value.
func (c *column) numberOf(v string) uint32 {
	f := c.filling
	hash := hashOf(v)
	at := c.placeOf(hash)
	for ; c.places[at] != 0; at = (at + 1) & (len(c.places) - 1) {
		if o := c.places[at] - 1; f.hashes[o] == hash && f.texts[o].text == v {
			return o
		}
	}
	o := uint32(len(f.texts))
	f.texts, f.hashes = append(f.texts, foundValue{v, o}), append(f.hashes, hash)
	if size := placesFor(len(f.texts)); size > len(c.places) {
		c.places = make([]uint32, size)
		for i, h := range f.hashes {
			c.put(h, uint32(i))
		}
		return o
	}
	c.places[at] = o + 1
	return o
}

// placesFor returns the length of the hash table for n values.
func placesFor(n int) int { return 1 << bits.Len(uint(n+n/4)) }

// put adds the number of a value that isn't in the hash table yet.
func (c *column) put(hash uint64, number uint32) {
	at := c.placeOf(hash)
	for c.places[at] != 0 {
		at = (at + 1) & (len(c.places) - 1)
	}
	c.places[at] = number + 1
}

// mergeStretch moves up to stretch values from pairs of runs to merged runs, and returns true once a single run is
// left.
func (f *filling) mergeStretch() bool {
	n := len(f.texts)
	if f.width >= n {
		return true
	}
	for range stretch {
		done := len(f.merged)
		if done == n {
			f.texts, f.merged = f.merged, f.texts[:0]
			f.width *= 2
			return f.width >= n
		}
		start := done - done%(2*f.width)
		if done == start {
			f.left, f.right = start, start+f.width
		}
		middle, end := min(start+f.width, n), min(start+2*f.width, n)
		if f.right >= end || f.left < middle && f.texts[f.left].text < f.texts[f.right].text {
			f.merged = append(f.merged, f.texts[f.left])
			f.left++
		} else {
			f.merged = append(f.merged, f.texts[f.right])
			f.right++
		}
	}
	return false
}

func compareTexts(a, b foundValue) int { return cmp.Compare(a.text, b.text) }

// hasFewValues reports whether the series that were read until now have few values of the label, so that filling the
// column costs little more than testing every series.
func (f *filling) hasFewValues() bool {
	if f.phase == findValues {
		return len(f.texts)*8 <= f.next
	}
	return len(f.texts)*8 <= len(f.series)
}

// bytes returns the approximate memory of the filling. It doesn't include the column.
func (f *filling) bytes() int64 {
	return int64(cap(f.texts)+cap(f.merged))*(headerBytes+8) + int64(len(f.ordinals)+len(f.renumber))*4 +
		int64(cap(f.hashes))*8
}
