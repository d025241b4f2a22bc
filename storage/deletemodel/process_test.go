package deletemodel

import (
	"slices"
)

// stageKey is the key of a staged blob. A writer never writes two different blobs with the same number.
type stageKey struct{ slot, writer, seq int }

// blob is the content of a staged row.
type blob struct{ samples content }

// rawKey is the key of a raw chunk. exempt and samples are the content of the chunk before any cleaning. In the
// product, the key contains a hash of this content.
type rawKey struct {
	series, slot int
	exempt       ids
	samples      samples
}

// rawChunk contains the samples of a series in a slot. exempt are the deletes that don't apply to it.
type rawChunk struct {
	exempt  ids
	samples samples
}

// rollupKey is the key of a rollup chunk. At 5m there is a chunk per slot, and at 1h a chunk per day, whose slot is 0.
type rollupKey struct{ series, slot int }

type rollupChunk struct {
	version int
	buckets
}

// markKey is the key of a commit record of a slot. The record is written by a seal, an import, or a delete.
type markKey struct{ tenant, slot, id int }

// store contains the engine's tables.
type store struct {
	stage     table[stageKey, blob]
	processed table[stageKey, struct{}]
	raw       table[rawKey, rawChunk]
	rollups   [resolutionCount]table[rollupKey, rollupChunk]
	marks     [resolutionCount]table[markKey, struct{}]
	deletes   table[deleteKey, deletion]
	clearance table[int, clearance]
}

// newStore returns an empty engine. If reversed is true, the smaller of two values with equal timestamps wins.
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
		stage: s.stage.copyOf(), processed: s.processed.copyOf(), raw: s.raw.copyOf(), deletes: s.deletes.copyOf(),
		clearance: s.clearance.copyOf(),
	}
	for res := range s.rollups {
		c.rollups[res], c.marks[res] = s.rollups[res].copyOf(), s.marks[res].copyOf()
	}
	return c
}

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
	// head contains the generations of unsealed samples, by slot. Only the last generation of a slot may be open.
	head [slotCount][]*generation
	// followed contains the keys of other processes' staged rows that this process has read.
	followed map[stageKey]bool
	// applied contains the deletes whose samples this process has released from the head.
	applied [tenantCount]ids
	// known contains the stored deletes if exact is true: the only process of a store caches them. toRemove contains
	// failed deletes that couldn't be removed.
	known    [tenantCount]deletions
	exact    bool
	toRemove deletions
	// forgot is the time of the last forgetDue, in ticks.
	forgot int
	// frozenUntil is the end of a pause of the whole process, in ticks.
	frozenUntil int
	// sealing is the lock of seals and imports, deleting the lock of deletes, and cleaning the lock of cleaning.
	sealing, deleting, cleaning *actor
	// following is the running pass of the follower.
	following *actor
}

// generation contains unsealed samples of a slot, and the keys of their staged rows.
type generation struct {
	closed  bool
	rows    []stageKey
	samples content
}

func (g *generation) covers(key stageKey) bool { return slices.Contains(g.rows, key) }

// start starts the process with a new writer and rebuilds its head from the staging log.
func (p *process) start() {
	w := p.w
	*p = process{w: w, name: p.name, writer: w.newID(), followed: map[stageKey]bool{}, forgot: w.now, exact: !w.shared}
	for tenant := range tenantCount {
		p.known[tenant], _ = w.scanDeletes(tenant)
	}
	p.readStage()
}

// readStage adds the staged rows that the head doesn't contain yet to the head. It skips rows that were processed and
// have reappeared.
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

// catchUp adds the samples that other processes have acknowledged to the head.
func (p *process) catchUp(a *actor) {
	if !p.w.shared {
		return
	}
	a.wait("a pass of the follower", func() bool { return p.following == nil })
	a.step("follow the stage")
	if p.isForgetDue() {
		locks := !p.w.broken[rereadBesideNoSeal]
		if locks {
			a.lock("seals", &p.sealing)
		}
		p.forgetDue(a)
		if locks {
			p.sealing = nil
		}
		a.step("follow the stage")
	}
	p.readStage()
}

// isForgetDue reports whether the last forgetDue is so long ago that the head may contain samples that were sealed,
// deleted and cleaned since.
func (p *process) isForgetDue() bool {
	return p.w.shared && p.w.now-p.forgot > restTicks/2 && !p.w.broken[releaseAfterSleep]
}

// forgetDue releases sealed samples from the head if isForgetDue returns true. If a generation also has rows that still
// exist, it reads these rows again. The caller must hold the lock of seals, because a running seal must release all
// generations of its rows.
func (p *process) forgetDue(a *actor) {
	w, begun := p.w, p.w.now
	if !p.isForgetDue() {
		return
	}
	for slot := range p.head {
		old := p.closeGenerations(slot)
		if len(old) == 0 {
			continue
		}
		a.step("list the stage to forget")
		if w.broken[rereadMixedGenerations] || w.broken[rereadAfterSleep] {
			p.release(slot, slices.DeleteFunc(old, func(g *generation) bool { return w.store.stage.has(g.covers) }))
			continue
		}
		again := &generation{closed: true}
		w.store.stage.each(func(key stageKey, b blob) {
			_, back := w.store.processed.get(key)
			if !back && slices.ContainsFunc(old, func(g *generation) bool { return g.covers(key) }) {
				again.rows = append(again.rows, key)
				again.samples.add(b.samples)
			}
		})
		p.release(slot, old)
		if len(again.rows) > 0 {
			p.head[slot] = slices.Insert(p.head[slot], 0, again)
		}
	}
	p.forgot = begun
}

// forget releases the generations of a slot whose staged rows were all deleted.
func (p *process) forget(a *actor, slot int) {
	gens := p.closeGenerations(slot)
	if len(gens) == 0 {
		return
	}
	staged := p.w.store.stagedIn(slot)
	a.step("list the stage to forget")
	if !p.w.broken[closeBeforeListing] {
		staged = p.w.store.stagedIn(slot)
	} else {
		gens = p.closeGenerations(slot)
	}
	p.release(slot, slices.DeleteFunc(gens, func(g *generation) bool { return slices.ContainsFunc(staged, g.covers) }))
}

// closeGenerations closes the open generation of a slot, and returns all its generations.
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

// stageSamples handles a client's write. The samples are acknowledged once they are durable in the staging log and in
// the head.
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
