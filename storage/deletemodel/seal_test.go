package deletemodel

import "slices"

// maxGathers bounds how often a seal gathers its samples again because the deletes have changed.
const maxGathers = 20

// sealPass seals the staged rows of one slot:
//
//	close the generations ─► list staged rows ─► per tenant: chunks, rollups, commit records ─► staged rows deleted
type sealPass struct {
	a     *actor
	p     *process
	slot  int
	begun int
	// own contains the closed generations of the head. upTo is the highest number of this process' blobs in them.
	own  []*generation
	upTo int
	// rows contains the keys of the staged rows to delete, and left the keys of rows that couldn't be read.
	rows, left []stageKey
	samples    content
	// deletes contains the deletes that the chunks name, by tenant. They were read after all samples.
	deletes [tenantCount]deletions
}

// seal seals a slot. It returns false after an error. The next seal then restarts.
func (p *process) seal(a *actor, slot int) bool {
	if p.sealing == a { // The calling delete, cleaning or import holds the lock.
		return p.sealLocked(a, slot)
	}
	a.lock("seals", &p.sealing)
	ok := p.sealLocked(a, slot)
	p.sealing = nil
	return ok
}

func (p *process) sealLocked(a *actor, slot int) bool {
	s := &sealPass{a: a, p: p, slot: slot, begun: p.w.now}
	if !p.w.broken[followBeforeSealing] {
		p.forgetDue(a)
	}
	s.own, s.upTo = p.closeGenerations(slot), p.seq
	if !s.gather() {
		return false
	}
	if p.w.broken[deleteStagedLast] && !s.deleteRows() {
		return false
	}
	for tenant := range tenantCount {
		if len(s.rows) > 0 && !s.sealTenant(tenant) {
			return false
		}
	}
	if !p.w.broken[deleteStagedLast] && !s.deleteRows() {
		return false
	}
	p.release(slot, slices.DeleteFunc(s.own, func(g *generation) bool {
		return slices.ContainsFunc(s.left, g.covers)
	}))
	return true
}

func (s *sealPass) allDeletes() (all [tenantCount]deletions) {
	for tenant := range all {
		all[tenant] = s.deletesToName(tenant)
	}
	return all
}

// deletesToName returns the deletes that new chunks of a tenant name, including announced deletes.
func (s *sealPass) deletesToName(tenant int) deletions {
	found := s.a.namedDeletes(tenant)
	if s.p.w.broken[nameAnnounced] {
		return found.inForce()
	}
	return found
}

// gather collects the samples to seal, without deleted samples. If a delete applies to samples in memory, it reads the
// samples from the staging log instead.
//
// Invariant: the samples are read between two equal reads of the deletes. New chunks name these deletes.
func (s *sealPass) gather() bool {
	w := s.p.w
	before := s.allDeletes()
	for range maxGathers {
		known := s.own
		for _, g := range s.own {
			for _, ds := range before {
				if matches(g.samples, s.slot, ds) && !w.broken[gatherFromStage] {
					known = nil
				}
			}
		}
		s.gatherRows(known)
		if w.broken[readDeletesTwice] {
			s.deletes = before
			return true
		}
		after := s.allDeletes()
		if same := slices.EqualFunc(before[:], after[:], sameDeletes); same {
			s.deletes = after
			return true
		}
		before = after
	}
	return false
}

func sameDeletes(a, b deletions) bool {
	return slices.EqualFunc(a, b, func(a, b deletion) bool { return a.id == b.id && a.announced == b.announced })
}

// gatherRows lists the staged rows, and reads those that the generations in known don't contain.
func (s *sealPass) gatherRows(known []*generation) {
	w := s.p.w
	s.rows, s.left, s.samples = nil, nil, content{}
	for _, g := range known {
		s.samples.add(g.samples)
	}
	s.a.step("list the stage")
	w.store.stage.each(func(key stageKey, b blob) {
		switch {
		case key.slot != s.slot || key.writer == s.p.writer && key.seq > s.upTo:
		case slices.ContainsFunc(known, func(g *generation) bool { return g.covers(key) }):
			s.rows = append(s.rows, key)
		case s.wasProcessed(key):
			s.rows = append(s.rows, key)
		default:
			s.left = append(s.left, key)
		}
	})
	if len(s.left) == 0 {
		return
	}
	s.a.step("read the stage")
	s.left = slices.DeleteFunc(s.left, func(key stageKey) bool {
		b, ok := w.store.stage.get(key)
		if ok {
			s.samples.add(b.samples)
			s.rows = append(s.rows, key)
		}
		return ok
	})
	if len(s.left) == 0 || w.broken[releaseRowsOfOthers] {
		return
	}
	s.a.step("list the stage again")
	s.left = slices.DeleteFunc(s.left, func(key stageKey) bool { // Missing rows were sealed by another process.
		_, ok := w.store.stage.get(key)
		return !ok
	})
}

// wasProcessed reports whether a staged row was already sealed. Its deletion is pending, or it has reappeared.
func (s *sealPass) wasProcessed(key stageKey) bool {
	_, ok := s.p.w.store.processed.get(key)
	return ok && !s.p.w.broken[skipProcessedRows]
}

// isInTime reports whether the seal may still write. It must write within half of the time that deletes rest.
func (s *sealPass) isInTime() bool {
	return s.p.w.now-s.begun <= restTicks/2 || s.p.w.broken[restartSlowSeals]
}

// sealTenant writes the chunks, rollups and commit records of a tenant.
func (s *sealPass) sealTenant(tenant int) bool {
	w, mine := s.p.w, content{}
	for series, samples := range s.samples {
		if tenantOf(series) == tenant {
			mine[series] = samples
		}
	}
	if mine.isEmpty() {
		return true
	}
	finest := w.finest()
	if finest == resolutionCount {
		return true
	}
	r := &roller{a: s.a, w: w, tenant: tenant, finest: finest, inTime: s.isInTime}
	b := &bringer{roller: r, deletes: s.deletes[tenant]}
	if finest > raw {
		if !s.beginFilling(b, mine) {
			return false
		}
		defer s.a.endFilling()
	}
	if !b.bring(s.slot, mine, b.isMarked(s.slot)) || !r.run() {
		return false
	}
	id := w.newID()
	for res := hourly; res >= finest; res-- {
		if !s.a.mark(res, markKey{tenant, s.slot, id}) {
			return false
		}
	}
	return !w.hasExpired(finest)
}

// hasExpired reports whether the window of the finest rows of a seal or an import has expired since it started. The
// rows that it has written are then incomplete.
func (w *world) hasExpired(finest resolution) bool {
	return w.phases[finest] >= expired && !w.broken[failWhenWindowExpires]
}

// beginFilling acquires the turn for changing rollups without samples, and applies the deletes of the samples in mine
// to the stored rollups.
func (s *sealPass) beginFilling(b *bringer, mine content) bool {
	s.a.beginFilling()
	w, tenant := s.p.w, b.tenant
	if !w.broken[sameDeletesBeforeFilling] && !sameDeletes(s.deletes[tenant], s.deletesToName(tenant)) {
		s.a.endFilling()
		return false
	}
	ds := s.deletes[tenant].where(func(d deletion) bool { return matches(mine, s.slot, deletions{d}) })
	if !w.broken[trimBeforeFilling] && !s.p.trimBefore(s.a, tenant, b.finest, []int{s.slot}, ds, s.begun) {
		s.a.endFilling()
		return false
	}
	return true
}

// deleteRows records the sealed staged rows as processed, and then deletes them.
func (s *sealPass) deleteRows() bool {
	w := s.p.w
	if len(s.rows) == 0 {
		return true
	}
	if w.broken[noteBeforeDeleting] {
		return s.deleteFound() && (!w.shared || s.noteRows())
	}
	if w.shared && !s.noteRows() {
		return false
	}
	return s.deleteFound()
}

// noteRows records the staged rows as processed.
func (s *sealPass) noteRows() bool {
	return s.a.write("note the processed rows", func() {
		for _, key := range s.rows {
			s.p.w.store.processed.put(key, 1, struct{}{})
		}
	})
}

// deleteFound deletes the staged rows.
func (s *sealPass) deleteFound() bool {
	w := s.p.w
	w.judge.sealedRows(s.rows)
	return s.a.write("delete the stage rows", func() {
		rows := s.rows
		if w.broken[deleteOnlyReadRows] {
			rows = w.store.stagedIn(s.slot)
		}
		for _, key := range rows {
			w.store.stage.remove(key, 1, w.now)
		}
	})
}

// finest returns the finest resolution whose window hasn't expired.
func (w *world) finest() resolution {
	res := raw
	for res < resolutionCount && w.phases[res] >= expired {
		res++
	}
	return res
}

// mark writes a commit record.
func (a *actor) mark(res resolution, key markKey) bool {
	return a.write("mark the slot", func() {
		if a.w.phases[res] < expired {
			a.w.store.marks[res].put(key, 1, struct{}{})
		}
	})
}

// beginFilling waits for the turn to change rollups without samples. A paused process keeps its turn: see Limits in the
// package comment.
func (a *actor) beginFilling() {
	w := a.w
	a.wait("filling", func() bool {
		return w.filling == nil || w.filling == a || w.broken[oneFillsAtATime]
	})
	w.filling = a
}

func (a *actor) endFilling() {
	if a.w.filling == a {
		a.w.filling = nil
	}
}
