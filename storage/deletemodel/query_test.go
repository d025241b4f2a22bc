package deletemodel

// query executes a query at one resolution, and lets the judge check the answer. It reads the head first, then the
// commit records, and then the rows.
func (p *process) query(a *actor, tenant int, res resolution) bool {
	w := p.w
	begin := w.judge.expect()
	ds, ok := p.loadDeletes(a, tenant)
	if !ok {
		return false
	}
	q := &reader{w: w, tenant: tenant, res: res, deletes: ds, step: a.step}
	if !w.broken[readHeadFirst] {
		q.head = p.unsealed()
	}
	got := q.read()
	if w.broken[readHeadFirst] {
		got.merge(p.unsealed(), tenant)
	}
	w.check(a.name, tenant, res, got, begin)
	return true
}

// observe checks the answers that a new process would return. It doesn't change the world.
func (w *world) observe() {
	p := &process{w: w, name: "observer", followed: map[stageKey]bool{}}
	p.readStage()
	begin := w.judge.expect()
	for tenant := range tenantCount {
		found, _ := w.scanDeletes(tenant)
		for res := raw; res <= hourly; res++ {
			q := &reader{
				w: w, tenant: tenant, res: res, deletes: found.inForce(), head: p.unsealed(), step: func(string) {},
			}
			w.check("observer", tenant, res, q.read(), begin)
		}
	}
}

// reader answers one query.
type reader struct {
	w       *world
	tenant  int
	res     resolution
	deletes deletions
	head    content
	step    func(label string)
	// The commit records of the raw window and of the queried resolution, by slot.
	rawMarks, marks [slotCount][]markKey
	// fromSamples contains the slots that are answered only from samples. uncleared contains the deletes that a slot's
	// rollups don't reflect.
	fromSamples [slotCount]bool
	uncleared   [slotCount]deletions
}

func (q *reader) read() (got answer) {
	if q.res == raw {
		if q.w.phases[raw] < hidden {
			q.step("read chunks")
			for series := range seriesCount {
				got.counts[series] = tallyOf(q.samplesOf(series))
			}
		}
		return got
	}
	q.findSlots()
	q.step("read chunks")
	var cells content
	for series := range seriesCount {
		cells[series] = q.cellsOf(series)
	}
	q.step("read rollups")
	for series := range seriesCount {
		if tenantOf(series) == q.tenant {
			got.counts[series], got.flagged[series] = q.bucketsOf(series, cells[series])
		}
	}
	return got
}

// samplesOf returns the samples of a series from the head and from chunks.
func (q *reader) samplesOf(series int) samples {
	if tenantOf(series) != q.tenant {
		return 0
	}
	all := q.head[series]
	for slot := range slotCount {
		all |= q.stored(series, slot)
	}
	return all
}

func (q *reader) stored(series, slot int) (all samples) {
	if q.w.phases[raw] >= expired {
		return 0
	}
	ds := q.deletes.about(series, slot)
	q.w.store.raw.each(func(key rawKey, c rawChunk) {
		if key.series == series && key.slot == slot {
			all |= ds.applying(c.exempt).hide(c.samples)
		}
	})
	return all
}

// readMarks reads the commit records of a resolution, by slot.
func (q *reader) readMarks(res resolution) (found [slotCount][]markKey) {
	if q.w.phases[res] >= expired {
		return found
	}
	q.w.store.marks[res].each(func(key markKey, _ struct{}) {
		if key.tenant == q.tenant {
			found[key.slot] = append(found[key.slot], key)
		}
	})
	return found
}

// findSlots decides for each slot whether it is answered from rollups. Rollups are used if they include all sealed
// samples and the head has no samples of the slot.
func (q *reader) findSlots() {
	q.step("read marks of raw rows")
	q.rawMarks = q.readMarks(raw)
	q.step("read marks of rollups")
	q.marks = q.readMarks(q.res)
	for slot := range slotCount {
		unfit := false
		for _, m := range q.rawMarks[slot] {
			unfit = unfit || m.id < deleteMarks && !contains(q.marks[slot], m) && !q.w.broken[samplesWhereRollupsLack]
		}
		for series, s := range q.head {
			if tenantOf(series) == q.tenant && s&slotMask(slot) != 0 && !q.w.broken[headExcludesRollups] &&
				(q.w.phases[raw] < expired || len(q.marks[slot]) == 0) {
				unfit = true
			}
		}
		q.fromSamples[slot] = unfit || len(q.marks[slot]) == 0
		for _, d := range q.deletes {
			if d.touches(slot) && !contains(q.marks[slot], d.mark(slot)) {
				q.uncleared[slot] = append(q.uncleared[slot], d)
			}
		}
	}
}

func contains(marks []markKey, m markKey) bool {
	for _, o := range marks {
		if o == m {
			return true
		}
	}
	return false
}

// isTouched reports whether a delete applies to a time of a bucket.
func (ds deletions) isTouched(in samples) bool {
	return len(ds.where(func(d deletion) bool { return d.times&in != 0 })) > 0
}

// cellsOf returns the samples from which the query computes buckets.
func (q *reader) cellsOf(series int) (cells samples) {
	if tenantOf(series) != q.tenant {
		return 0
	}
	cells = q.head[series]
	for slot := range slotCount {
		stored := q.stored(series, slot)
		if q.fromSamples[slot] {
			cells |= stored
			continue
		}
		ds := q.uncleared[slot].about(series, slot)
		for _, in := range q.res.buckets() {
			if ds.isTouched(in & slotMask(slot)) {
				cells |= stored & in
			}
		}
	}
	return cells
}

// bucketsOf returns the buckets of a series. It prefers a rollup's bucket to a bucket that is computed from samples.
func (q *reader) bucketsOf(series int, cells samples) (counts tally, flagged samples) {
	w := q.w
	for _, in := range q.res.buckets() {
		slot := slotOf(in.first())
		var chunk rollupChunk
		if w.phases[q.res] < expired {
			key := rollupKey{series, slot}
			if q.res == hourly {
				key.slot = 0
			}
			chunk, _ = w.store.rollups[q.res].get(key)
		}
		b := chunk.keep(in)
		ds := q.uncleared[slot].about(series, slot)
		switch {
		case b.counts == 0, q.fromSamples[slot] && w.phases[raw] < expired,
			q.fromSamples[slot] && len(q.marks[slot]) == 0:
		case len(ds.where(func(d deletion) bool { return d.covers(in) })) > 0:
		case ds.isTouched(in) && q.hasChunks(series, slot):
		default:
			if _, changed := b.trim(q.res, func(int) []deletion { return ds }); changed {
				flagged |= in
			}
			counts += b.counts
			flagged |= b.flagged
			continue
		}
		counts += tallyOf(cells & in)
	}
	return counts, flagged
}

// hasChunks reports whether a series has raw chunks in a slot.
func (q *reader) hasChunks(series, slot int) bool {
	return q.w.phases[raw] < expired &&
		q.w.store.raw.has(func(key rawKey) bool { return key.series == series && key.slot == slot })
}
