package index

import (
	"context"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/meter"
)

// Prepared contains matchers that Prepare has analyzed. It can be used with any number of sets and is immutable.
type Prepared struct {
	names      []*labels.Matcher // matchers of the metric's name
	conditions []condition       // the cheapest first
}

// Prepare analyzes matchers. A series must match all of them; without matchers, every series matches.
func Prepare(ms []*labels.Matcher) Prepared {
	q := Prepared{conditions: make([]condition, 0, len(ms))}
	for _, m := range ms {
		c := condition{m: m, negative: m.Type == labels.MatchNotEqual || m.Type == labels.MatchNotRegexp}
		if m.Name == labels.MetricName {
			q.names = append(q.names, m)
			continue
		}
		if c.plan(); c.always {
			continue
		}
		for _, v := range c.lookups {
			c.hashes = append(c.hashes, hashOf(v))
		}
		q.conditions = append(q.conditions, c)
	}
	slices.SortStableFunc(q.conditions, func(a, b condition) int { return int(a.way) - int(b.way) })
	return q
}

// Match is MatchPrepared for matchers that aren't prepared.
func (s *Set) Match(ms []*labels.Matcher) []uint32 {
	q := Prepare(ms)
	return s.MatchPrepared(context.Background(), &q)
}

// MatchPrepared returns the positions, in ascending order, of the series that match all matchers. As in Prometheus, a
// series without a label has the empty value for it. The answer is incomplete if the context has ended.
func (s *Set) MatchPrepared(ctx context.Context, q *Prepared) []uint32 {
	if len(s.series) == 0 {
		return nil
	}
	x := NewMatching(ctx)
	for _, m := range q.names {
		if !x.Matches(m, s.series[0].Get(labels.MetricName)) {
			return nil
		}
	}
	switch {
	case len(q.conditions) == 0:
		return s.all()
	case len(s.series) <= smallSet:
		return s.testEach(&x, q.conditions)
	}
	return s.applyAll(&x, q.conditions)
}

// accessPath is the way to find the values that a matcher matches. The cheapest way has the lowest number.
type accessPath uint8

const (
	byLookup accessPath = iota // the values are known
	byPrefix                   // the values share a known prefix
	byScan                     // every value must be tested
)

// condition is an analyzed matcher. Its named values are the values that its positive form matches: v for both a="v"
// and a!="v". A series passes if the matcher matches it.
type condition struct {
	m        *labels.Matcher
	way      accessPath
	negative bool
	// everyValue is true if all values are named, except the empty value.
	everyValue bool
	// always is true if every series passes.
	always bool
	// missing is true if a series without the label passes.
	missing bool
	lookups []string
	hashes  []uint64 // of lookups
}

func (c *condition) plan() {
	m := c.m
	c.missing = m.Matches("")
	switch m.Type {
	case labels.MatchEqual, labels.MatchNotEqual:
		if m.Value != "" {
			c.lookups = []string{m.Value}
		}
	case labels.MatchRegexp, labels.MatchNotRegexp:
		switch {
		case m.Value == ".*" || m.Value == ".+":
			c.everyValue = true
			c.always = m.Type == labels.MatchRegexp && m.Value == ".*"
		case len(m.SetMatches()) > 0:
			c.lookups = m.SetMatches()
		case m.Prefix() != "":
			c.way = byPrefix
		default:
			c.way = byScan
		}
	}
}

// passes reports whether series with these labels pass. A missing label has the value "".
func (c *condition) passes(x *Matching, ls labels.Labels) bool {
	return x.Matches(c.m, ls.Get(c.m.Name))
}

func (s *Set) all() []uint32 {
	positions := make([]uint32, len(s.series))
	for i := range positions {
		positions[i] = uint32(i)
	}
	return positions
}

// testEach tests every series of the set, and returns those that pass all conditions.
func (s *Set) testEach(x *Matching, conditions []condition) (kept []uint32) {
next:
	for p := range s.series {
		for i := range conditions {
			if !conditions[i].passes(x, s.series[p]) {
				continue next
			}
		}
		kept = append(kept, uint32(p))
	}
	return kept
}

// testCandidates keeps the candidates that pass all conditions, in place.
func (s *Set) testCandidates(x *Matching, candidates []uint32, conditions []condition) []uint32 {
	kept := candidates[:0]
next:
	for _, p := range candidates {
		for i := range conditions {
			if !conditions[i].passes(x, s.series[p]) {
				continue next
			}
		}
		kept = append(kept, p)
	}
	if len(kept) == 0 {
		return nil
	}
	return kept
}

// applyAll returns the series that pass all conditions. It applies the conditions in their order: the cheapest must be
// first.
func (s *Set) applyAll(x *Matching, conditions []condition) []uint32 {
	if few, by := s.fewestCandidates(conditions); by >= 0 {
		return s.testCandidates(x, s.testCandidates(x, few, conditions[:by]), conditions[by+1:])
	}
	left := fullBitmap(len(s.series))
	count := len(s.series)
	for i := range conditions {
		c := &conditions[i]
		if s.testIsCheaper(x, c, count) {
			s.testAll(x, c, left)
		} else {
			s.apply(x, c, left)
		}
		if count = left.count(); count == 0 {
			return nil
		}
		if count <= fewSeries {
			return s.testCandidates(x, left.appendTo(make([]uint32, 0, count)), conditions[i+1:])
		}
	}
	return left.appendTo(make([]uint32, 0, count))
}

// IsEmpty reports whether there are no conditions, so that every series of the set matches.
func (q *Prepared) IsEmpty() bool { return len(q.conditions) == 0 }

// IsLookup reports whether a condition requires a label to have one of its named values. Such a condition is answered
// by a look-up, and usually few series match.
func (q *Prepared) IsLookup() bool { return slices.ContainsFunc(q.conditions, condition.isLookup) }

// isLookup reports whether a series passes exactly if its label has one of the looked-up values.
func (c condition) isLookup() bool {
	return c.way == byLookup && !c.negative && !c.missing && !c.everyValue
}

// fewestCandidates returns the smallest set of series that a single condition selects, and the index of that condition.
// It considers only conditions that a look-up in a filled column answers with few series. If there are none, the index
// is -1. The caller may modify the result.
func (s *Set) fewestCandidates(conditions []condition) (best []uint32, by int) {
	by = -1
	for i := range conditions {
		c := &conditions[i]
		if !c.isLookup() {
			continue
		}
		col := s.filledColumn(c.m.Name)
		if col == nil {
			continue
		}
		if named, few := col.namedPositions(c); few && (by < 0 || len(named) < len(best)) {
			best, by = named, i
		}
	}
	if len(best) == 0 {
		return nil, by
	}
	return slices.Clone(best), by
}

// namedPositions returns the positions, in ascending order, of the series with the values that a condition looks up.
// few is false if there are too many. The caller must not modify the positions, because they may belong to the column.
func (c *column) namedPositions(of *condition) (positions []uint32, few bool) {
	if len(of.lookups) == 1 {
		if at, ok := c.find(of.lookups[0], of.hashes[0]); ok {
			positions = c.positionsOf(at)
		}
		return positions, len(positions) <= fewSeries
	}
	for k, v := range of.lookups {
		if at, ok := c.find(v, of.hashes[k]); ok {
			if positions = append(positions, c.positionsOf(at)...); len(positions) > fewSeries {
				return nil, false
			}
		}
	}
	slices.Sort(positions)
	return slices.Compact(positions), true // a regular expression may name a value twice
}

// testIsCheaper reports whether testing the remaining series costs less than testing the label's values.
func (s *Set) testIsCheaper(x *Matching, c *condition, left int) bool {
	col := s.filledColumn(c.m.Name)
	switch {
	case c.way == byLookup:
		return col == nil && s.prefersTests(x.ctx, c.m.Name)
	case col == nil:
		return left <= len(s.series)/8 // filling the column reads every series
	case c.way == byPrefix:
		from, to := col.prefixRange(c.m.Prefix())
		return left < to-from
	default:
		return left < len(col.values)
	}
}

// testAll removes the series that don't pass from left. If the context has ended, it removes all series.
func (s *Set) testAll(x *Matching, c *condition, left bitmap) {
	for i, p := range left.appendTo(nil) {
		if i%stretch == stretch-1 && hasEnded(x.ctx) {
			clear(left)
			return
		}
		if !c.passes(x, s.series[p]) {
			left.remove(p)
		}
	}
}

// hasEnded calls the meter, and reports whether the context has ended.
func hasEnded(ctx context.Context) bool {
	meter.Working(ctx, nil)
	return ctx.Err() != nil
}

// apply removes the series that don't pass from left. If the context has ended, it removes all series. A series has at
// most one value of the label, so each series with the label has either a named value or another value.
func (s *Set) apply(x *Matching, c *condition, left bitmap) {
	col := s.column(x.ctx, c.m.Name)
	if col == nil {
		clear(left)
		return
	}
	named := newBitmap(len(s.series))
	s.addNamed(x, c, col, named)
	if c.negative == c.missing { // a="v": only the named pass; a!="v": all but the named pass
		if c.negative {
			left.andNot(named)
		} else {
			left.and(named)
		}
		return
	}
	others := newBitmap(len(s.series))
	others.add(col.positions)
	others.andNot(named)
	if c.negative { // a!~"v|": the label must exist, with another value
		left.and(others)
	} else { // a=~"v|": the label may be missing
		left.andNot(others)
	}
}

// addNamed adds the series with a named value to named.
func (s *Set) addNamed(x *Matching, c *condition, col *column, named bitmap) {
	if c.everyValue {
		named.add(col.positions)
		return
	}
	from, to := 0, len(col.values)
	switch c.way {
	case byLookup:
		for k, v := range c.lookups {
			if at, ok := col.find(v, c.hashes[k]); ok {
				named.add(col.positionsOf(at))
			}
		}
		return
	case byPrefix:
		from, to = col.prefixRange(c.m.Prefix())
	}
	for i := from; i < to; i++ {
		if x.Matches(c.m, col.values[i]) != c.negative {
			named.add(col.positionsOf(i))
		}
	}
}
