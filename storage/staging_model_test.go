package storage

import (
	"fmt"
	"slices"
)

// The protocol of the list of staged slots (design/several-processes.md) as a small state machine. Every interleaving
// of two writers and two sealers of one slot partition is explored. Their clocks differ by less than a day, they crash
// or pause at any point, and their writes may have an unknown outcome: such a write is applied later, or never.
//
//	writer: blob, and while the slot is young and not cached as listed, a row ─► clock ─┬─► young: acknowledge
//	                                                                                    └─► old: read the rows; none open: write one ─► acknowledge
//	sealer: read the rows ─► old: close one ─► list the staged blobs ─► empty: delete exactly that row
//
// Invariant: an acknowledged blob is sealed, or it is staged and its slot is listed by a row. If units are modeled, the
// unit of that row is also listed. TestStagingModel explores the protocol with all rules, and without each of its
// rules, which must violate the invariant.

// stagingRules selects the rules of the protocol. Each of them can be removed.
type stagingRules struct {
	// levels is 1 if only slots are listed, and 2 if their units are also listed, by the same protocol.
	levels  int
	commits [2]int
	// birth and end are the first and the last modeled age of the slot, in days.
	birth, end int8

	noClosing, listsBeforeClosing, deletesAll, goesOnInDoubt bool
	closesAfterADay                                          bool
	readsBeforeBlob, closingIsListed, cachesDoubt            bool
	trustsCacheOfOld, readsClockBeforeBlob, reusesGeneration bool
	skipsUnit, listsUnitFirst                                bool
}

const (
	modelWriters = 2
	modelBlobs   = 4
	modelRows    = 8
)

// modelList is the list of one level: the state of each generation's row.
type modelList [modelRows]uint8

const (
	rowPut uint8 = 1 << iota
	rowClosing
	rowDeleted
	// The doubtful bits mark writes with an unknown outcome, which may be applied later.
	doubtfulPut
	doubtfulClosing
	doubtfulDelete
)

func isListed(row uint8) bool { return row&(rowPut|rowClosing) != 0 && row&rowDeleted == 0 }
func isOpen(row uint8) bool   { return row&(rowPut|rowClosing|rowDeleted) == rowPut }

func (l *modelList) any(is func(row uint8) bool) bool { return slices.ContainsFunc(l[:], is) }

type writerStep int8

const (
	writerIdle writerStep = iota
	// writerBegun must still write the blob and the row, in any order.
	writerBegun
	writerDurable
	writerOld
	// writerListing writes a row, and writerUnit reads the rows of the unit.
	writerListing
	writerUnit
	writerUnitListing
	writerDown
)

type modelWriter struct {
	step        writerStep
	commit      int8
	blob, row   bool // writes that must still be done
	cached      bool
	wasYoung    bool // the slot was young before the blob was written
	wasOpen     bool // a row was open before the blob was written
	unitWasOpen bool
	doubt       bool // the row's outcome is unknown
	generation  int8 // the last written generation, if generations are reused; -1: none
}

type sealerStep int8

const (
	sealerIdle sealerStep = iota
	sealerClosed
	sealerEmpty
	sealerListedFirst
)

type modelSealer struct {
	step       sealerStep
	level      int8
	generation int8
}

type stagingState struct {
	age                 int8
	stage, doubt, acked uint8 // sets of blobs
	lists               [2]modelList
	writers             [modelWriters]modelWriter
	sealers             [2]modelSealer
}

// blobOf returns the bit of the current blob of writer i.
func (w *modelWriter) blobOf(i int) uint8 { return 1 << (2*i + int(w.commit)) }

// lost reports whether an acknowledged blob is staged whose slot or unit isn't listed.
func (s *stagingState) lost(r *stagingRules) bool {
	for l := range r.levels {
		if s.acked&s.stage != 0 && !s.lists[l].any(isListed) {
			return true
		}
	}
	return false
}

// next calls yield with each possible next state.
func (s stagingState) next(r *stagingRules, yield func(what string, s stagingState)) {
	if s.age < r.end {
		n := s
		n.age++
		yield("a day passes", n)
	}
	s.doubtful(r, yield)
	for i := range s.writers {
		if s.writers[i].step != writerDown {
			n := s
			n.writers[i] = modelWriter{step: writerDown, generation: -1}
			yield(fmt.Sprintf("writer %d crashes", i), n)
			s.writer(i, r, func(what string, n stagingState) { yield(fmt.Sprintf("writer %d %s", i, what), n) })
		}
	}
	for i := range s.sealers {
		if s.sealers[i].step != sealerIdle {
			n := s
			n.sealers[i] = modelSealer{generation: -1}
			yield(fmt.Sprintf("sealer %d crashes", i), n)
		}
		s.sealer(i, r, func(what string, n stagingState) { yield(fmt.Sprintf("sealer %d %s", i, what), n) })
	}
}

// doubtful yields the states after a write with an unknown outcome is applied.
func (s stagingState) doubtful(r *stagingRules, yield func(string, stagingState)) {
	for b := uint8(1); b != 0 && b < 1<<modelBlobs; b <<= 1 {
		if s.doubt&b != 0 {
			n := s
			n.doubt &^= b
			n.stage |= b
			yield("a blob in doubt is applied", n)
		}
	}
	for l := range r.levels {
		for g, row := range s.lists[l] {
			for _, b := range []uint8{doubtfulPut, doubtfulClosing, doubtfulDelete} {
				if row&b != 0 {
					n := s
					n.lists[l][g] = row&^b | b>>3
					yield(fmt.Sprintf("a write in doubt is applied to a row of level %d", l), n)
				}
			}
		}
	}
}

// isYoung reports whether the slot ended at most a day ago by a writer's clock.
func (s *stagingState) isYoung() bool { return s.age <= 1 }

// mayClose reports whether the slot ended more than two days ago by the clock of sealer i. The clock of sealer 1 is a
// day fast.
func (s *stagingState) mayClose(i int, r *stagingRules) bool {
	if r.closesAfterADay {
		return s.age+int8(i) > 1
	}
	return s.age+int8(i) > 2
}

// reads reports whether a writer that reads the rows of a list treats the slot as listed.
func (l *modelList) reads(r *stagingRules) bool {
	if r.closingIsListed {
		return l.any(isListed)
	}
	return l.any(isOpen)
}

// put adds a row to a list.
func (s *stagingState) put(level int, w *modelWriter, r *stagingRules, doubt bool) {
	g := w.generation
	if level > 0 || g < 0 {
		for g = 0; s.lists[level][g] != 0 || s.isReferred(level, g); g++ {
		}
		if level == 0 && r.reusesGeneration {
			w.generation = g
		}
	}
	if doubt {
		s.lists[level][g] |= doubtfulPut
	} else {
		s.lists[level][g] |= rowPut
	}
}

// isReferred reports whether a process still refers to a generation's row.
func (s *stagingState) isReferred(level int, g int8) bool {
	for i := range s.sealers {
		if x := &s.sealers[i]; x.step != sealerIdle && int(x.level) == level && x.generation == g {
			return true
		}
	}
	return level == 0 && slices.ContainsFunc(s.writers[:], func(w modelWriter) bool { return w.generation == g })
}

func (s stagingState) writer(i int, r *stagingRules, yield func(string, stagingState)) {
	n := s
	w := &n.writers[i]
	fail := func() {
		w.step, w.row, w.blob, w.doubt = writerIdle, false, false, false
		w.commit++
	}
	ack := func(what string) {
		n.acked |= w.blobOf(i)
		fail()
		yield(what+" and acknowledges", n)
	}
	switch w.step {
	case writerIdle:
		if int(w.commit) >= r.commits[i] {
			return
		}
		young := s.isYoung()
		w.wasYoung = young && (r.readsClockBeforeBlob || !w.cached)
		w.wasOpen = r.readsBeforeBlob && s.lists[0].reads(r)
		w.step, w.blob, w.row = writerBegun, true, young && !w.cached
		yield("begins", n)
	case writerBegun:
		if !w.blob && !w.row {
			if w.wasYoung {
				w.cached = true
			}
			w.step = writerDurable
			yield("has its writes durable", n)
			return
		}
		if w.blob {
			for _, doubt := range []bool{false, true} {
				n = s
				w.blob = false
				if doubt {
					n.doubt |= w.blobOf(i)
					fail()
					yield("doesn't learn whether its blob is durable", n)
				} else {
					n.stage |= w.blobOf(i)
					yield("writes its blob", n)
				}
			}
		}
		if s.writers[i].row {
			for _, doubt := range []bool{false, true} {
				n = s
				w.row = false
				for l := range r.levels {
					n.put(l, w, r, doubt)
				}
				if !doubt {
					yield("lists the slot", n)
					continue
				}
				w.cached = w.cached || r.cachesDoubt
				fail()
				yield("doesn't learn whether the slot is listed", n)
			}
		}
	case writerDurable:
		young := s.isYoung()
		if r.readsClockBeforeBlob {
			young = w.wasYoung
		}
		if young || r.trustsCacheOfOld && w.cached {
			ack("finds the slot young")
			return
		}
		w.step = writerOld
		yield("finds the slot old", n)
	case writerOld:
		listed := s.lists[0].reads(r)
		if r.readsBeforeBlob {
			listed = w.wasOpen
		}
		w.step = writerListing
		if listed {
			w.step = writerUnit
			if r.levels == 1 || r.skipsUnit {
				ack("finds the slot listed")
				return
			}
		}
		if r.listsUnitFirst {
			w.unitWasOpen = s.lists[1].reads(r)
		}
		yield("reads the rows", n)
	case writerListing:
		for _, doubt := range []bool{false, true} {
			n = s
			n.put(0, w, r, doubt)
			switch {
			case doubt:
				fail()
				yield("doesn't learn whether it has listed the old slot", n)
			case r.levels == 1:
				ack("lists the old slot")
			default:
				w.step = writerUnit
				yield("lists the old slot", n)
			}
		}
	case writerUnit:
		listed := s.lists[1].reads(r)
		if r.listsUnitFirst {
			listed = w.unitWasOpen
		}
		if listed {
			ack("finds the unit listed")
			return
		}
		w.step = writerUnitListing
		yield("reads the rows of the unit", n)
	case writerUnitListing:
		for _, doubt := range []bool{false, true} {
			n = s
			n.put(1, w, r, doubt)
			if doubt {
				fail()
				yield("doesn't learn whether it has listed the unit", n)
			} else {
				ack("lists the unit")
			}
		}
	case writerDown:
	}
}

// isEmpty reports whether there is nothing left to list at a level.
func (s *stagingState) isEmpty(level int8) bool {
	if level == 0 {
		return s.stage == 0
	}
	return !s.lists[0].any(isListed)
}

func (s stagingState) sealer(i int, r *stagingRules, yield func(string, stagingState)) {
	n := s
	x := &n.sealers[i]
	list := &n.lists[x.level]
	switch x.step {
	case sealerIdle:
		found := s.lists[0].any(isListed) && (r.levels == 1 || s.lists[1].any(isListed))
		if found && s.stage != 0 {
			n.stage = 0
			yield("seals what is staged", n)
		}
		if !s.mayClose(i, r) {
			return
		}
		for l := range int8(r.levels) {
			for g := range int8(modelRows) {
				if !isListed(s.lists[l][g]) {
					continue
				}
				n = s
				*x = modelSealer{level: l, generation: g}
				switch {
				case r.noClosing:
					x.step = sealerClosed
					yield(fmt.Sprintf("looks at generation %d of level %d", g, l), n)
					continue
				case r.listsBeforeClosing:
					if s.isEmpty(l) {
						x.step = sealerListedFirst
						yield("lists an empty stage", n)
					}
					continue
				}
				n.lists[l][g] |= rowClosing
				x.step = sealerClosed
				yield(fmt.Sprintf("closes generation %d of level %d", g, l), n)
				n = s
				n.lists[l][g] |= doubtfulClosing
				*x = modelSealer{generation: -1}
				if r.goesOnInDoubt {
					*x = modelSealer{step: sealerClosed, level: l, generation: g}
				}
				yield(fmt.Sprintf("doesn't learn whether it has closed generation %d of level %d", g, l), n)
			}
		}
	case sealerListedFirst:
		list[x.generation] |= rowClosing
		x.step = sealerEmpty
		yield("closes", n)
	case sealerClosed:
		if !s.isEmpty(x.level) {
			*x = modelSealer{generation: -1}
			yield("finds that there is more", n)
			return
		}
		x.step = sealerEmpty
		yield("finds nothing", n)
	case sealerEmpty:
		of := *x
		for _, doubt := range []bool{false, true} {
			n = s
			for g := range list {
				if g == int(of.generation) || r.deletesAll && isListed(list[g]) {
					if doubt {
						list[g] |= doubtfulDelete
					} else {
						list[g] |= rowDeleted
					}
				}
			}
			*x = modelSealer{generation: -1}
			yield("deletes, and may not learn whether it did", n)
		}
	}
}
