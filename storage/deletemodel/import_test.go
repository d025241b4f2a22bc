package deletemodel

// importSamples stores old samples without staging them:
//
//	commit record of the finest rows ─► chunks ─► rollups ─► commit records ─► rollups without deleted samples
func (p *process) importSamples(a *actor, tenant int, all content) bool {
	w := p.w
	a.lock("seals", &p.sealing)
	defer func() { p.sealing = nil }()
	sent, begun := w.judge.send(a, all, w.events), w.now
	ds, finest := a.namedDeletes(tenant), w.finest()
	if finest == resolutionCount {
		return false
	}
	matching := ds.where(func(d deletion) bool { return all.anyOf(d.series) })
	r := &roller{a: a, w: w, tenant: tenant, finest: finest}
	r.inTime = func() bool { return w.now-begun <= restTicks/2 || w.broken[restartSlowSeals] }
	b := &bringer{roller: r, deletes: ds}
	if finest > raw {
		a.beginFilling()
		defer a.endFilling()
		if !w.broken[trimBeforeFilling] && !p.trimBefore(a, tenant, finest, all.slots(), matching, begun) {
			return false
		}
	}
	if !b.importSlots(all) {
		return false
	}
	if finest == raw && len(matching) > 0 && !w.broken[importAppliesDeletes] {
		if !p.rollWindow(a, tenant) {
			return false
		}
	}
	if w.hasExpired(finest) {
		return false
	}
	sent.sealed = true
	sent.acknowledge(w.events)
	return true
}

// importSlots writes the chunks, rollups and commit records of an import.
func (b *bringer) importSlots(all content) bool {
	begun, done := b.w.newID(), b.w.newID()
	if b.w.broken[ownMarkPerImport] {
		begun, done = importMark, importMark
	}
	mark := func(res resolution, id int) bool {
		for _, slot := range all.slots() {
			if !b.a.mark(res, markKey{b.tenant, slot, id}) {
				return false
			}
		}
		return true
	}
	markCoarse := func() bool {
		for res := hourly; res > b.finest; res-- {
			if !mark(res, begun) || !mark(res, done) {
				return false
			}
		}
		return true
	}
	if !b.w.broken[markBeforeImport] && !mark(b.finest, begun) {
		return false
	}
	if b.w.broken[coarseMarksLast] && !markCoarse() {
		return false
	}
	for _, slot := range all.slots() {
		if !b.bring(slot, all.inSlot(slot), b.finest == raw) {
			return false
		}
	}
	if !b.run() {
		return false
	}
	return (b.w.broken[coarseMarksLast] || markCoarse()) && mark(b.finest, done)
}

// slots returns the slots in which c has samples.
func (c content) slots() (list []int) {
	for slot := range slotCount {
		if !c.inSlot(slot).isEmpty() {
			list = append(list, slot)
		}
	}
	return list
}

func (c content) anyOf(set seriesSet) bool {
	for series, s := range c {
		if s != 0 && set.has(series) {
			return true
		}
	}
	return false
}
