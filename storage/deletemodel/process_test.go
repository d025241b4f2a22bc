package deletemodel

import (
	"slices"
)

// stageKey names a staged blob, and a number of a writer names one content forever.
type stageKey struct{ slot, writer, seq int }

// blob is the content of a stage row.
type blob struct{ samples content }

// rawKey is the key of a raw chunk: a hash of the value that was written first.
type rawKey struct {
	series, slot int
	exempt       ids
	samples      samples
}

// rawChunk is the samples of a series in a slot. exempt are the deletes that it is exempt from.
type rawChunk struct {
	exempt  ids
	samples samples
}

// rollupKey is the key of a rollup chunk: of a slot at 5m, and of the day at 1h, where slot is 0.
type rollupKey struct{ series, slot int }

type rollupChunk struct {
	version int
	buckets
}

// markKey is a commit record of a slot: of a seal, an import, or a delete.
type markKey struct{ tenant, slot, id int }

// store is the engine's tables.
type store struct {
	stage     table[stageKey, blob]
	processed table[stageKey, struct{}]
	raw       table[rawKey, rawChunk]
	rollups   [resolutionCount]table[rollupKey, rollupChunk]
	marks     [resolutionCount]table[markKey, struct{}]
	deletes   table[deleteKey, deletion]
	clearance table[int, clearance]
}

// newStore returns an empty engine. reversed reverses the order of values with equal timestamps.
func newStore(reversed bool) store {
	s := store{}
	none := func(struct{}, struct{}) bool { return false }
	s.stage.larger = func(blob, blob) bool { return false }
	s.processed.larger = none
	s.raw.larger = func(a, b rawChunk) bool { return (a.samples > b.samples) != reversed && a.samples != b.samples }
	for res := range s.rollups {
		s.marks[res].larger = none
		s.rollups[res].larger = func(a, b rollupChunk) bool {
			return a.buckets.isLarger(b.buckets) != reversed && a.buckets != b.buckets
		}
	}
	s.deletes.larger = func(deletion, deletion) bool { return false }
	s.clearance.larger = func(clearance, clearance) bool { return false }
	return s
}

func (s *store) copyOf() store {
	c := store{
		stage: s.stage.copyOf(), processed: s.processed.copyOf(), raw: s.raw.copyOf(), deletes: s.deletes.copyOf(), clearance: s.clearance.copyOf(),
	}
	for res := range s.rollups {
		c.rollups[res], c.marks[res] = s.rollups[res].copyOf(), s.marks[res].copyOf()
	}
	return c
}

// vanish removes the rows of the window of a resolution.
func (s *store) vanish(res resolution) {
	if res == raw {
		s.raw.clear()
	} else {
		s.rollups[res].clear()
	}
	s.marks[res].clear()
}

// process is one process, with a head in memory.
type process struct {
	w      *world
	name   string
	writer int
	seq    int
	// head holds unsealed samples, by slot: generations, of which only the last may be open.
	head [slotCount][]*generation
	// followed are the stage rows that were read of other processes.
	followed map[stageKey]bool
	// applied are the deletes whose samples the head has released.
	applied [tenantCount]ids
	// passed is when the stage was followed last, in ticks.
	passed int
	// frozenUntil is when a pause of the whole process ends.
	frozenUntil int
	// The locks of seals and imports, of deletes that are under way, and of cleaning.
	sealing, deleting, cleaning *actor
}

// generation is unsealed samples of a slot, and the stage rows that hold them.
type generation struct {
	closed  bool
	rows    []stageKey
	samples content
}

func (g *generation) covers(key stageKey) bool { return slices.Contains(g.rows, key) }

// start starts the process with a new writer and rebuilds its head from the stage.
func (p *process) start() {
	w := p.w
	*p = process{w: w, name: p.name, writer: w.newID(), followed: map[stageKey]bool{}, passed: w.now}
	p.readStage()
}

// readStage adds to the head the stage rows that it hasn't read. Rows that were processed before came back, and aren't read.
func (p *process) readStage() {
	p.w.store.stage.each(func(key stageKey, b blob) {
		if p.followed[key] || key.writer == p.writer {
			return
		}
		if _, ok := p.w.store.processed.get(key); ok && !p.w.broken[skipProcessedRows] {
			return
		}
		p.followed[key] = true
		p.addToHead(key, b.samples)
	})
}

func (p *process) addToHead(key stageKey, samples content) {
	gens := p.head[key.slot]
	if n := len(gens); n == 0 || gens[n-1].closed {
		gens = append(gens, &generation{})
		p.head[key.slot] = gens
	}
	g := gens[len(gens)-1]
	g.rows = append(g.rows, key)
	g.samples.add(samples)
}

// catchUp brings to the head what other processes had acknowledged.
func (p *process) catchUp(a *actor) {
	if !p.w.shared {
		return
	}
	a.step("follow the stage")
	if p.hasSlept() {
		for slot := range p.head {
			p.forget(a, slot)
		}
	}
	p.readStage()
	p.passed = p.w.now
}

// hasSlept reports whether the process may hold samples that were sealed, deleted and cleaned since it followed the stage last.
func (p *process) hasSlept() bool {
	return p.w.shared && p.w.now-p.passed > restTicks/2 && !p.w.broken[releaseAfterSleep]
}

// forget releases the generations of a slot of which nothing is staged any more.
func (p *process) forget(a *actor, slot int) {
	gens := p.closeGenerations(slot)
	if len(gens) == 0 {
		return
	}
	a.step("list the stage to forget")
	p.release(slot, slices.DeleteFunc(gens, func(g *generation) bool {
		return p.w.store.stage.has(func(key stageKey) bool { return g.covers(key) })
	}))
}

// closeGenerations closes the open generation of a slot and returns all.
func (p *process) closeGenerations(slot int) []*generation {
	for _, g := range p.head[slot] {
		g.closed = true
	}
	return slices.Clone(p.head[slot])
}

func (p *process) release(slot int, gens []*generation) {
	p.head[slot] = slices.DeleteFunc(p.head[slot], func(g *generation) bool { return slices.Contains(gens, g) })
}

// unsealed returns the samples of the head.
func (p *process) unsealed() (all content) {
	for slot := range p.head {
		for _, g := range p.head[slot] {
			all.add(g.samples)
		}
	}
	return all
}

// stageSamples is the write of a client: the samples are durable in the stage and in the head before they are acknowledged.
func (p *process) stageSamples(a *actor, samples content) bool {
	slot := 0
	for _, s := range samples {
		if s != 0 {
			slot = slotOf(s.first())
		}
	}
	samples = samples.inSlot(slot)
	p.seq++
	key := stageKey{slot, p.writer, p.seq}
	sent := p.w.judge.send(a, samples, p.w.events)
	if !a.write("stage samples", func() {
		p.w.store.stage.put(key, 1, blob{samples})
	}) {
		return false
	}
	p.addToHead(key, samples)
	sent.acknowledge(p.w.events)
	sent.staged = append(sent.staged, key)
	return true
}
