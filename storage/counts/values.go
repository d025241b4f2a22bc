package counts

import (
	"hash/maphash"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/format"
)

// valueCounter counts the series with each value of each label, in bounded memory. If the values of all labels don't
// fit, it postpones some labels. If the values of one label don't fit, it postpones a part of these values. To count
// postponed values, the caller must add all series again.
//
//	series ─► add … ─► endPass ─┬─► more: series ─► add …
//	                            └─► done: found
type valueCounter struct {
	// limit is the maximum size of the values that are counted together, in bytes. used is their current size.
	limit, used int
	// keep is the number of values that are kept per label: those with the most series.
	keep int
	// again is true after the first pass. Later passes add no new labels.
	again    bool
	seed     maphash.Seed
	counting map[string]*countedLabel
	putOff   []valueShare
	found    map[string]*foundLabel
	// tooMany is true if there are more than maxCountedLabels labels. The counter then stops counting.
	tooMany bool
}

// maxCountedLabels is the maximum number of label names that a valueCounter counts.
const maxCountedLabels = 50_000

// valueShare is a part of a label's values, selected by the lowest bits of their hashes.
type valueShare struct {
	label string
	bits  int
	ends  uint64
}

func (s *valueShare) contains(hash uint64) bool { return hash&(1<<s.bits-1) == s.ends }

// countedLabel is a label whose values are counted in this pass.
type countedLabel struct {
	valueShare
	values map[string]uint64
	used   int
}

// foundLabel holds the results for a label.
type foundLabel struct {
	values   uint64
	greatest largestCounts
}

// counterBytes is the approximate memory that a valueCounter needs for a value, in addition to its text.
const counterBytes = 64

func newValueCounter(limit, keep int) *valueCounter {
	return &valueCounter{
		limit: limit, keep: keep, seed: maphash.MakeSeed(), counting: map[string]*countedLabel{},
		found: map[string]*foundLabel{},
	}
}

// add counts the labels of a series, given the value of its labels row. It returns ErrMalformedLabels if the value is
// malformed.
func (c *valueCounter) add(row []byte) error { return format.EachLabel(row, c.value) }

func (c *valueCounter) value(name, value []byte) {
	l := c.counting[string(name)]
	if l == nil {
		if c.again || c.isPostponed(name) {
			return
		}
		if len(c.counting)+len(c.putOff) >= maxCountedLabels {
			c.tooMany = true
			return
		}
		l = &countedLabel{valueShare: valueShare{label: string(name)}, values: map[string]uint64{}}
		c.counting[l.label] = l
	}
	if n, ok := l.values[string(value)]; ok {
		l.values[string(value)] = n + 1
		return
	}
	if l.bits > 0 && !l.contains(maphash.Bytes(c.seed, value)) {
		return
	}
	l.values[string(value)] = 1
	size := len(value) + counterBytes
	l.used, c.used = l.used+size, c.used+size
	for c.used > c.limit && len(l.values) > 0 {
		c.postponeLargest()
	}
}

func (c *valueCounter) isPostponed(name []byte) bool {
	for i := range c.putOff {
		if c.putOff[i].label == string(name) {
			return true
		}
	}
	return false
}

// maxShareBits bounds the number of shares of a label's values: there are at most 2^maxShareBits shares.
const maxShareBits = 32

// postponeLargest frees memory by postponing the label whose values take the most memory. If this label takes most of
// the limit, it postpones only half of its values.
func (c *valueCounter) postponeLargest() {
	var most *countedLabel
	for _, l := range c.counting {
		if most == nil || l.used > most.used || l.used == most.used && l.label < most.label {
			most = l
		}
	}
	c.used -= most.used
	if most.used < c.limit*3/4 || most.bits == maxShareBits {
		delete(c.counting, most.label)
		c.putOff = append(c.putOff, most.valueShare)
		most.values, most.used = nil, 0
		return
	}
	other := most.valueShare
	other.bits++
	other.ends |= 1 << most.bits
	c.putOff = append(c.putOff, other)
	kept := make(map[string]uint64, len(most.values)/2)
	most.bits, most.used = most.bits+1, 0
	for value, n := range most.values {
		if most.contains(maphash.String(c.seed, value)) {
			kept[value] = n
			most.used += len(value) + counterBytes
		}
	}
	most.values = kept
	c.used += most.used
}

// endPass adds the counts of a pass to the results. If it returns true, the caller must add all series again.
func (c *valueCounter) endPass() (more bool) {
	for name, l := range c.counting {
		f := c.found[name]
		if f == nil {
			f = &foundLabel{greatest: largestCounts{limit: c.keep}}
			c.found[name] = f
		}
		f.values += uint64(len(l.values))
		for value, n := range l.values {
			f.greatest.add(value, n)
		}
	}
	clear(c.counting)
	c.used, c.again = 0, true
	later := c.putOff[:0]
	for _, share := range c.putOff { // One share per label at a time.
		if c.counting[share.label] != nil {
			later = append(later, share)
			continue
		}
		c.counting[share.label] = &countedLabel{valueShare: share, values: map[string]uint64{}}
	}
	c.putOff = later
	return len(c.counting) > 0
}

// labels returns the counts in any order. The label __name__ is missing, because labels rows don't contain it.
func (c *valueCounter) labels() (list []format.LabelCounts) {
	for name, l := range c.found {
		list = append(list, format.LabelCounts{
			NamedCount: Count{Name: name, Count: l.values}, Values: l.greatest.sorted(),
		})
	}
	return list
}

// labelsOfMetrics returns the counts of the label __name__.
func labelsOfMetrics(metrics int) format.LabelCounts {
	return format.LabelCounts{NamedCount: Count{Name: labels.MetricName, Count: uint64(metrics)}}
}
