package deletemodel

import "slices"

// cleanTombstones removes the deleted samples of a tenant from the sealed rows, and then removes the deletes:
//
//	raw window:     rollups recomputed ─► chunks rewritten ─┐
//	older windows:  buckets removed ────────────────────────┴─► the deletes' rows removed
func (p *process) cleanTombstones(a *actor, tenant int) bool {
	a.lock("cleaning", &p.cleaning)
	defer func() { p.cleaning = nil }()
	if !p.settleDeletes(a, tenant) {
		return false
	}
	all, ok := p.loadDeletes(a, tenant)
	if !ok {
		return false
	}
	if len(all) > 0 {
		if p.w.broken[removeDeletesLast] && !p.dropDeletes(a, tenant, all) {
			return false
		}
		if !p.w.shared && !p.markStaged(a, tenant, all) || !p.rollWindow(a, tenant) || !p.cleanChunks(a, tenant, all) {
			return false
		}
		for res := fine; res <= hourly; res++ {
			if !p.trimWindow(a, tenant, res, all, func(int) bool { return true }) {
				return false
			}
		}
	}
	return p.dropDeletes(a, tenant, all)
}

// markStaged writes commit records for staged slots that deletes touch. A failed seal may have left chunks in such a
// slot. The commit record makes the next seal read them.
func (p *process) markStaged(a *actor, tenant int, all deletions) bool {
	if p.w.broken[markStagedSlots] {
		return true
	}
	for slot := range slotCount {
		in := all.where(func(d deletion) bool { return d.touches(slot) })
		a.step("list the stage to mark")
		if len(in) == 0 || !p.w.store.stage.has(func(key stageKey) bool { return key.slot == slot }) {
			continue
		}
		for i := range resolutionCount {
			// The raw record is written first. Otherwise a trim would treat the rollups as rollups without samples.
			res := i
			if p.w.broken[markSamplesFirst] {
				res = hourly - i
			}
			if !a.mark(res, markKey{tenant, slot, -1 - in[0].id}) {
				return false
			}
		}
	}
	return true
}

// cleanChunks rewrites raw chunks without deleted samples. A chunk keeps its key, even if no samples are left in it.
func (p *process) cleanChunks(a *actor, tenant int, all deletions) bool {
	w := p.w
	a.step("read chunks to clean")
	if w.phases[raw] >= expired {
		return true
	}
	for _, r := range slices.Clone(w.store.raw.rows) {
		ds := all.about(r.key.series, r.key.slot).applying(r.value.exempt)
		if len(ds) == 0 || r.removed {
			continue
		}
		cleaned := rawChunk{r.value.exempt | ds.ids(), ds.hide(r.value.samples)}
		if w.broken[cleanedChunksNameDeletes] {
			cleaned.exempt = r.value.exempt
		}
		timestamp := cleaned.exempt.count()
		if w.broken[cleanedChunksWin] {
			timestamp = 0
		}
		if !a.write("rewrite a chunk", func() {
			switch {
			case w.phases[raw] >= vanished:
			case cleaned.samples == 0 && w.broken[keepEmptyChunks]:
				w.store.raw.remove(r.key, timestamp, w.now)
			default:
				w.store.raw.put(r.key, timestamp, cleaned)
			}
		}) {
			return false
		}
	}
	return true
}

// dropDeletes removes the deletes that are no longer needed.
func (p *process) dropDeletes(a *actor, tenant int, all deletions) bool {
	w := p.w
	abandoned := func(d deletion) bool { return d.announced && p.hasRested(d) }
	if !w.shared {
		if p.deleting != nil {
			abandoned = func(deletion) bool { return false }
		}
		a.lock("deletes", &p.deleting)
		defer func() { p.deleting = nil }()
	}
	a.step("read deletes to remove")
	rows, back := w.scanDeletes(tenant)
	gone := all.where(p.hasRested)
	if w.shared && !w.broken[keepDeletesOfStaged] {
		a.step("list the stage")
		gone = gone.where(func(d deletion) bool {
			return !w.store.stage.has(func(key stageKey) bool { return d.touches(key.slot) })
		})
	}
	gone = append(gone, rows.where(abandoned)...)
	note := func() bool { return !w.shared || len(gone) == 0 || p.clear(a, tenant, gone, rows) }
	if !w.broken[noteBeforeRemoving] && !note() {
		return false
	}
	for _, d := range slices.Concat(gone, back) {
		if !p.removeDelete(a, d) {
			return false
		}
	}
	return !w.broken[noteBeforeRemoving] || note()
}

// clear writes a clearance for the deletes in gone, which are about to be removed. A clearance covers all deletes that
// were requested before some time. The clearance therefore lists the deletes in rows that are as old but that aren't
// removed.
func (p *process) clear(a *actor, tenant int, gone, rows deletions) bool {
	before := p.w.now - restTicks + 1
	c := clearance{before: before}
	if !p.w.broken[clearanceNamesStanding] {
		c.standing = rows.where(func(d deletion) bool { return d.when < before && gone.ids()>>d.id&1 == 0 }).ids()
	}
	return p.removeClearly(a, tenant, c)
}

func (p *process) removeClearly(a *actor, tenant int, c clearance) bool {
	return a.write("note the removed deletes", func() { p.w.store.clearance.put(tenant, c.before, c) })
}

// hasRested reports whether a delete was requested so long ago that every running seal was started after it.
func (p *process) hasRested(d deletion) bool {
	return !p.w.shared || p.w.broken[deletesRest] || p.w.now-d.when >= restTicks
}

// trim removes the buckets of deleted samples from rollups for which there are no samples and no finer rollups.
type trim struct {
	a      *actor
	p      *process
	tenant int
	res    resolution
	// missing contains the keys of the missing commit records. waiting contains the deletes to apply, by slot.
	missing []markKey
	waiting [slotCount]deletions
}

const trimTries = 5

// trimWindow removes deleted buckets from the window of a resolution, in the slots for which the function of returns
// true.
func (p *process) trimWindow(a *actor, tenant int, res resolution, ds deletions, of func(slot int) bool) bool {
	a.beginFilling()
	defer a.endFilling()
	if standing := a.namedDeletes(tenant).ids(); !p.w.broken[trimForStanding] {
		ds = ds.where(func(d deletion) bool { return standing.has(d.id) })
	}
	for range trimTries {
		t := &trim{a: a, p: p, tenant: tenant, res: res}
		marks := t.marks()
		for slot := range slotCount {
			marked := slices.ContainsFunc(marks, func(m markKey) bool { return m.slot == slot })
			if marked && of(slot) && (!t.hasFiner(slot) || p.w.broken[trimOnlyWithoutFiner]) {
				t.addSlot(marks, slot, ds)
			}
		}
		ok, again := t.run()
		if !again {
			return ok
		}
	}
	return false
}

// trimBefore applies deletes to rollups, and writes commit records for them. It must be called before samples are added
// to rollups without raw rows, because rollups don't name the deletes that they are exempt from.
func (p *process) trimBefore(a *actor, tenant int, finest resolution, slots []int, ds deletions, begun int) bool {
	ds = ds.where(func(d deletion) bool { return slices.ContainsFunc(slots, d.touches) })
	if len(ds) == 0 {
		return true
	}
	if !p.rollWindow(a, tenant) {
		return false
	}
	res := fine
	if finest == hourly && p.w.phases[fine] >= expired {
		res = hourly
	}
	for range trimTries {
		t := &trim{a: a, p: p, tenant: tenant, res: res}
		marks := t.marks()
		for _, slot := range slots {
			t.addSlot(marks, slot, ds)
		}
		for _, d := range ds {
			if d.announced && !p.w.broken[waitForAnnounced] &&
				slices.ContainsFunc(t.missing, func(m markKey) bool { return d.mark(m.slot) == m }) &&
				p.mayCome(d, begun) {
				return false
			}
		}
		if ok, again := t.run(); !again {
			return ok
		}
	}
	return false
}

// mayCome reports whether a delete that was read as announced after begun may have come into force since then, or may
// still come into force. If the request is too old, the delete can't come into force any more, because the requesting
// process has given up.
func (p *process) mayCome(d deletion, begun int) bool {
	if p.w.broken[countWaitFromRead] {
		begun = p.w.now
	}
	return begun <= d.when+1
}

// trimEnds applies a delete to the slots at its two ends, whose buckets it may delete in part. It does so only if
// queries don't read raw rows any more, or will stop reading them soon.
func (p *process) trimEnds(a *actor, d deletion) bool {
	if p.w.broken[trimEndsAtOnce] || p.w.phases[raw] < hiddenSoon {
		return true
	}
	ends := []int{slotOf(d.times.first()), slotOf(d.times.last())}
	if !p.rollWindow(a, d.tenant) {
		return false
	}
	for res := fine; res <= hourly; res++ {
		if !p.trimWindow(a, d.tenant, res, deletions{d}, func(slot int) bool { return slices.Contains(ends, slot) }) {
			return false
		}
	}
	return true
}

func (t *trim) marks() (found []markKey) {
	t.a.step("read marks to trim")
	if t.p.w.phases[t.res] >= expired {
		return nil
	}
	t.p.w.store.marks[t.res].each(func(key markKey, _ struct{}) {
		if key.tenant == t.tenant {
			found = append(found, key)
		}
	})
	return found
}

// addSlot adds the deletes that have no commit record in a slot. An announced delete only gets the record: no buckets
// are removed for it.
func (t *trim) addSlot(marks []markKey, slot int, ds deletions) {
	for _, d := range ds {
		if at := d.mark(slot); d.touches(slot) && !slices.Contains(marks, at) {
			t.missing = append(t.missing, at)
			if !d.announced || t.p.w.broken[trimOnlyInForce] {
				t.waiting[slot] = append(t.waiting[slot], d)
			}
		}
	}
}

// hasFiner reports whether a slot may have samples or finer rollups.
func (t *trim) hasFiner(slot int) bool {
	w := t.p.w
	t.a.step("read finer marks")
	for res := raw; res < t.res; res++ {
		if w.phases[res] >= expired {
			continue
		}
		if w.store.marks[res].has(func(key markKey) bool { return key.tenant == t.tenant && key.slot == slot }) {
			return true
		}
	}
	return w.phases[raw] < expired &&
		w.store.raw.has(func(key rawKey) bool { return tenantOf(key.series) == t.tenant && key.slot == slot })
}

// unmarked reports whether the missing commit records are still missing, so that no other process has trimmed the
// slots.
func (t *trim) unmarked() bool {
	if !t.p.w.shared || t.p.w.broken[checkMarksBeforeTrim] {
		return true
	}
	return !slices.ContainsFunc(t.marks(), func(m markKey) bool { return slices.Contains(t.missing, m) })
}

// run trims the rollups and writes the missing commit records. again is true if another process trimmed them
// concurrently.
func (t *trim) run() (ok, again bool) {
	if len(t.missing) == 0 {
		return true, false
	}
	w, stale := t.p.w, false
	r := &roller{a: t.a, w: w, tenant: t.tenant, due: t.waiting}
	r.before = func() bool {
		stale = stale || !t.unmarked()
		return !stale
	}
	var tasks []rollupTask
	for series := range seriesCount {
		if tenantOf(series) == t.tenant {
			tasks = append(tasks, t.tasksOf(series)...)
		}
	}
	for i := range tasks {
		if r.fill(&tasks[i]); w.broken[trimRaisesVersion] {
			tasks[i].chunk.version--
		}
	}
	if !r.put(tasks) {
		return false, stale
	}
	if t.res == fine {
		r.tasks, r.due = tasks, t.dueOfHours()
		if !r.makeHours() {
			return false, stale
		}
	}
	for _, m := range t.missing {
		for i := range hourly - t.res + 1 {
			res := hourly - i
			if w.broken[coarsestMarksFirst] {
				res = t.res + i
			}
			if !t.a.mark(res, m) {
				return false, false
			}
		}
	}
	return true, false
}

// tasksOf returns the rollup chunks of a series to trim.
func (t *trim) tasksOf(series int) (tasks []rollupTask) {
	any := false
	for slot := range slotCount {
		if len(t.waiting[slot].about(series, slot)) == 0 {
			continue
		}
		any = true
		if t.res == fine {
			tasks = append(tasks, rollupTask{series: series, slot: slot, res: fine})
		}
	}
	if any && t.res == hourly {
		tasks = append(tasks, rollupTask{series: series, res: hourly})
	}
	return tasks
}

// dueOfHours returns, for each slot, the deletes that have no commit record at 1h, so that they aren't applied to the
// stored 1h rollups yet.
func (t *trim) dueOfHours() (due [slotCount]deletions) {
	t.a.step("read marks of hours")
	for slot, ds := range t.waiting {
		due[slot] = ds.where(func(d deletion) bool {
			_, cleared := t.p.w.store.marks[hourly].get(d.mark(slot))
			return !cleared
		})
	}
	return due
}
