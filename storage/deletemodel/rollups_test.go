package deletemodel

import "slices"

// roller computes the rollups of some series of a tenant from rows that it reads back:
//
//	chunks are written ─► 5m of the slots ─► durable ─► 1h of the day
type roller struct {
	a      *actor
	w      *world
	tenant int
	// finest is the resolution of the finest rows that a seal or an import writes. If it isn't raw, samples are only
	// added to stored rollups.
	finest resolution
	tasks  []rollupTask
	// expired is true if the raw window expired while its chunks were written.
	expired bool
	// due contains the deletes that the stored rollups don't reflect, by slot.
	due [slotCount]deletions
	// before and inTime are called before each rollup is written. If one of them returns false, the roller stops.
	before func() bool
	inTime func() bool
}

// rollupTask is a rollup chunk to compute.
type rollupTask struct {
	series, slot int
	res          resolution
	// own contains the keys of the chunks that the caller has written. added contains samples that are stored only in
	// rollups, because the raw window has expired.
	own   []rawKey
	added samples
	// ahead contains the keys of the chunks that were listed before the caller wrote its chunks.
	ahead []rawKey
	// chunk is the result. It is written if write is true. fromRaw is true if it was computed from samples.
	chunk          rollupChunk
	write, fromRaw bool
}

func (r *roller) add(t rollupTask) {
	t.res = fine
	r.tasks = append(r.tasks, t)
}

// run computes and writes the rollups of all tasks.
func (r *roller) run() bool {
	if len(r.tasks) == 0 {
		return true
	}
	if r.finest == hourly {
		return r.extendHours()
	}
	hiding := r.a.namedDeletes(r.tenant).inForce()
	if r.w.broken[readDeletesAfterChunks] {
		hiding = nil
		for slot := range r.due {
			hiding = append(hiding, r.due[slot]...)
		}
	}
	for i := range r.tasks {
		r.makeFine(&r.tasks[i], hiding)
	}
	if r.expired && !r.w.broken[failWhenWindowExpires] {
		return false
	}
	return r.put(r.tasks) && r.makeHours()
}

func (r *roller) series() (list []int) {
	for _, t := range r.tasks {
		if !slices.Contains(list, t.series) {
			list = append(list, t.series)
		}
	}
	return list
}

// dueOf returns a function that returns the due deletes of a series in a slot.
func (r *roller) dueOf(series int) func(slot int) []deletion {
	return func(slot int) []deletion { return r.due[slot].about(series, slot) }
}

func (r *roller) put(tasks []rollupTask) bool {
	for _, t := range tasks {
		if !t.write {
			continue
		}
		if r.before != nil && !r.before() {
			return false
		}
		w, key, res, chunk := r.w, rollupKey{t.series, t.slot}, t.res, t.chunk
		stands := func() bool { return !t.fromRaw || w.phases[raw] < expired || w.broken[failWhenWindowExpires] }
		if !r.a.writeIf("write a rollup", func() bool { return r.isInTime() && stands() }, func() {
			if w.phases[res] < vanished {
				w.store.rollups[res].put(key, w.rollupTimestamp(chunk), chunk)
			}
		}) {
			return false
		}
	}
	return true
}

func (r *roller) isInTime() bool { return r.inTime == nil || r.inTime() }

func (w *world) rollupTimestamp(c rollupChunk) int {
	if w.broken[highestVersionWins] {
		return w.events
	}
	return c.version
}

// listChunks reads the raw chunks of a series in a slot.
func (r *roller) listChunks(series, slot int) (found []rawChunk, keys []rawKey) {
	if r.w.phases[raw] >= expired {
		return nil, nil
	}
	r.w.store.raw.each(func(key rawKey, c rawChunk) {
		if key.series == series && key.slot == slot {
			found, keys = append(found, c), append(keys, key)
		}
	})
	return found, keys
}

// makeFine computes the 5m chunk of a series in a slot from all its raw chunks. The only process of a store lists the
// chunks between two equal reads of the deletes, because it removes deletes without waiting until they have rested.
func (r *roller) makeFine(t *rollupTask, hiding deletions) {
	r.a.step("list chunks")
	found, keys := r.listChunks(t.series, t.slot)
	for !r.w.shared && !r.w.broken[readDeletesAfterChunks] && !r.w.broken[listBetweenDeletes] {
		now := r.a.namedDeletes(r.tenant).inForce()
		if sameDeletes(now, hiding) {
			break
		}
		hiding = now
		r.a.step("list chunks")
		found, keys = r.listChunks(t.series, t.slot)
	}
	if r.w.broken[listAfterWriting] && len(t.own) > 0 {
		found, keys = t.onlyAhead(found, keys)
	}
	fromRollup := r.finest > raw || len(found) == 0 && len(t.own) == 0
	for _, own := range t.own {
		r.expired = r.expired || !slices.Contains(keys, own)
	}
	if fromRollup {
		r.fill(t)
		if r.finest > raw || !t.write || len(t.own) > 0 {
			return
		}
		// A seal may have written the first chunks of the series since the previous listing.
		r.a.step("list chunks again")
		if found, _ = r.listChunks(t.series, t.slot); len(found) == 0 || r.w.broken[listAgain] {
			return
		}
	}
	if r.w.broken[ownChunksOnly] && len(t.own) > 0 {
		found = slices.DeleteFunc(found, func(c rawChunk) bool {
			return !slices.ContainsFunc(t.own, func(k rawKey) bool { return k.samples == c.samples })
		})
	}
	hiding = hiding.about(t.series, t.slot)
	t.chunk, t.write, t.fromRaw = rollupChunk{}, true, true
	all := samples(0)
	for _, c := range found {
		due := hiding.applying(c.exempt)
		all |= due.hide(c.samples)
		t.chunk.version += r.w.weight(c.exempt.count(), len(due))
	}
	t.chunk.counts = tallyOf(all)
	t.write = all != 0 || !r.w.broken[writeEmptyRollups]
}

// weight returns the weight of a chunk in the version of a rollup: one, plus one per delete that the chunk names or
// that applies to it.
func (w *world) weight(exempt, applying int) int {
	if w.broken[countDeletesInVersions] {
		return 1
	}
	return 1 + exempt + applying
}

func (r *roller) stored(t *rollupTask) (rollupChunk, bool) {
	r.a.step("read the stored rollup")
	if r.w.phases[t.res] >= expired {
		return rollupChunk{}, false
	}
	return r.w.store.rollups[t.res].get(rollupKey{t.series, t.slot})
}

// fill changes the stored chunk of a task: it removes deleted buckets, and adds samples that are stored only in
// rollups.
func (r *roller) fill(t *rollupTask) {
	kept, ok := r.stored(t)
	if !ok {
		t.chunk = rollupChunk{1, buckets{counts: tallyOf(t.added)}}
		t.write = t.added != 0
		return
	}
	trimmed, changed := kept.trim(t.res, r.dueOf(t.series))
	if t.added != 0 {
		var left samples
		before := trimmed.counts
		trimmed, left = r.extend(trimmed, t)
		if t.res == r.finest {
			r.w.judge.leaveOut(t.series, left)
		}
		changed = changed || trimmed.counts != before
	}
	t.write, t.chunk = changed, rollupChunk{kept.version + 1, trimmed}
	if t.added != 0 && r.w.broken[fillRaisesVersion] {
		t.chunk.version--
	}
}

func (r *roller) extend(b buckets, t *rollupTask) (buckets, samples) {
	if r.w.broken[extendOnlyAround] {
		b.counts += tallyOf(t.added)
		return b, 0
	}
	return b.extend(tallyOf(t.added), t.res)
}

// makeHours computes the 1h chunks of the series from the day's 5m chunks.
func (r *roller) makeHours() bool {
	var tasks []rollupTask
	for _, series := range r.series() {
		t := rollupTask{series: series, res: hourly}
		if !r.makeHour(&t) && t.write {
			r.makeHour(&t) // A seal may have added 5m chunks since the last read.
		}
		tasks = append(tasks, t)
	}
	return r.put(tasks)
}

// makeHour computes a 1h chunk. It returns false if there are no 5m chunks.
func (r *roller) makeHour(t *rollupTask) bool {
	r.a.step("read the day's 5m chunks")
	var made rollupChunk
	there := samples(0)
	for slot := range slotCount {
		if c, ok := r.w.store.rollups[fine].get(rollupKey{t.series, slot}); ok && r.w.phases[fine] < expired {
			made.version += c.version
			made.counts += c.counts
			if c.flagged != 0 {
				made.flagged |= slotMask(slot)
			}
			there |= slotMask(slot)
		}
	}
	if there == 0 {
		r.fill(t)
		return false
	}
	t.chunk, t.write = made, true
	if r.w.phases[fine] >= expired && !r.w.broken[keepHours] {
		if kept, ok := r.stored(t); ok {
			rest, _ := kept.keep(^there).trim(hourly, r.dueOf(t.series))
			t.chunk.counts += rest.counts
			t.chunk.flagged |= rest.flagged
			t.chunk.version = max(t.chunk.version, kept.version+1)
		}
	}
	return true
}

// extendHours adds samples to the stored 1h chunks, after the 5m window has expired.
func (r *roller) extendHours() bool {
	var tasks []rollupTask
	for _, series := range r.series() {
		t := rollupTask{series: series, res: hourly}
		for _, of := range r.tasks {
			if of.series == series {
				t.added |= of.added
			}
		}
		r.fill(&t)
		tasks = append(tasks, t)
	}
	return r.put(tasks)
}

// missingMarks returns the commit records of raw rows and of deletes that a tenant's rollups should have and don't.
func (a *actor) missingMarks(tenant int, ds deletions) (missing []markKey) {
	w := a.w
	a.step("read marks of raw rows")
	if w.phases[raw] >= expired {
		return nil
	}
	var all []markKey
	w.store.marks[raw].each(func(key markKey, _ struct{}) {
		if key.tenant == tenant {
			all = append(all, key)
		}
	})
	for _, m := range slices.Clone(all) {
		for _, d := range ds {
			if at := d.mark(m.slot); d.touches(m.slot) && !slices.Contains(all, at) {
				all = append(all, at)
			}
		}
	}
	a.step("read marks of rollups")
	for _, m := range all {
		for res := fine; res <= hourly; res++ {
			if _, ok := w.store.marks[res].get(m); !ok && w.phases[res] < expired {
				missing = append(missing, m)
				break
			}
		}
	}
	return missing
}

// deleteMarks is the lowest number of a commit record of a delete. Commit records of seals have lower numbers.
const deleteMarks = 1 << 20

// mark returns the key of the commit record of a delete in a slot. The record means that the slot's rollups reflect the
// delete.
func (d deletion) mark(slot int) markKey { return markKey{d.tenant, slot, deleteMarks + d.id} }

// rollWindow computes the missing rollups of a tenant's raw window.
func (p *process) rollWindow(a *actor, tenant int) bool {
	a.rolling = true
	a.w.judge.beginRolling()
	defer func() { a.rolling = false }()
	ds := a.namedDeletes(tenant).inForce()
	missing := a.missingMarks(tenant, ds)
	if len(missing) == 0 {
		return true
	}
	r := &roller{a: a, w: p.w, tenant: tenant}
	whole := [slotCount]bool{}
	for _, m := range missing {
		i := slices.IndexFunc(ds, func(d deletion) bool { return d.mark(m.slot) == m })
		if i >= 0 {
			r.due[m.slot] = append(r.due[m.slot], ds[i])
		} else if m.id < deleteMarks {
			whole[m.slot] = true
		}
	}
	for series := range seriesCount {
		for slot := range slotCount {
			if tenantOf(series) == tenant && (whole[slot] || len(r.due[slot].about(series, slot)) > 0) {
				r.add(rollupTask{series: series, slot: slot})
			}
		}
	}
	if !p.w.broken[rollBeforeMarks] && !r.run() {
		return false
	}
	for _, m := range missing {
		for _, res := range []resolution{fine, hourly, raw} {
			if (res > raw || m.id >= deleteMarks) && !a.mark(res, m) {
				return false
			}
		}
	}
	return true
}
