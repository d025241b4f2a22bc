package deletemodel

import (
	"math/bits"
	"slices"
)

// ids is a set of deletes, by their numbers in the order of requests. The product uses random ids instead.
type ids uint32

func (x ids) has(id int) bool { return x>>id&1 != 0 }
func (x ids) count() int      { return bits.OnesCount32(uint32(x)) }

// seriesSet is the set of series that matchers select.
type seriesSet uint8

func (x seriesSet) has(series int) bool { return x>>series&1 != 0 }

type deleteKey struct{ tenant, id int }

// deletion is a delete of some series of a tenant in an interval of times.
type deletion struct {
	id     int
	tenant int
	when   int
	series seriesSet
	times  samples
	// announced is true until the delete is in force: chunks that are sealed name it, but it doesn't hide samples yet.
	announced bool
}

func (d deletion) touches(slot int) bool { return d.times&slotMask(slot) != 0 }

// covers reports whether all times of a bucket are in the range of the delete.
func (d deletion) covers(in samples) bool { return in&^d.times == 0 }

// clearance records which deletes were removed: all deletes that were requested earlier than before, in ticks, except
// the deletes in standing.
type clearance struct {
	before   int
	standing ids
}

// deletions is a list of deletes of one tenant.
type deletions []deletion

func (ds deletions) where(keep func(deletion) bool) (some deletions) {
	for _, d := range ds {
		if keep(d) {
			some = append(some, d)
		}
	}
	return some
}

func (ds deletions) inForce() deletions {
	return ds.where(func(d deletion) bool { return !d.announced })
}

// about returns the deletes of a series that touch a slot.
func (ds deletions) about(series, slot int) deletions {
	return ds.where(func(d deletion) bool { return d.series.has(series) && d.touches(slot) })
}

// applying returns the deletes that apply to a chunk with the given exemptions.
func (ds deletions) applying(exempt ids) deletions {
	return ds.where(func(d deletion) bool { return !exempt.has(d.id) })
}

func (ds deletions) ids() (x ids) {
	for _, d := range ds {
		x |= 1 << d.id
	}
	return x
}

// hide returns the samples that aren't deleted.
func (ds deletions) hide(s samples) samples {
	for _, d := range ds {
		s &^= d.times
	}
	return s
}

// scanDeletes reads the deletes of a tenant. back contains deletes whose rows have reappeared after their removal.
func (w *world) scanDeletes(tenant int) (found, back deletions) {
	cleared, _ := w.store.clearance.get(tenant)
	w.store.deletes.each(func(key deleteKey, d deletion) {
		switch {
		case key.tenant != tenant:
		case d.when < cleared.before && !cleared.standing.has(d.id) && !w.broken[ignoreClearedDeletes]:
			back = append(back, d)
		default:
			found = append(found, d)
		}
	})
	return found, back
}

// namedDeletes returns the deletes of a tenant that new chunks name, including announced ones. The only process of a
// store returns its cached list.
func (a *actor) namedDeletes(tenant int) deletions {
	a.step("read deletes")
	if a.p.exact {
		return slices.Clone(a.p.known[tenant])
	}
	found, _ := a.w.scanDeletes(tenant)
	return found
}

// loadDeletes returns the deletes that a query must apply. Before it returns, it seals the head's samples to which they
// apply. ok is false after an error.
func (p *process) loadDeletes(a *actor, tenant int) (found deletions, ok bool) {
	if p.w.broken[followAfterReading] {
		p.catchUp(a)
		found = a.namedDeletes(tenant).inForce()
	} else {
		found = a.namedDeletes(tenant).inForce()
		p.catchUp(a)
	}
	if !p.w.shared || p.w.broken[sealWhenMeetingDeletes] {
		return found, true
	}
	for _, d := range found {
		if p.applied[tenant].has(d.id) {
			continue
		}
		if p.w.broken[applyAfterSealing] {
			p.applied[d.tenant] |= 1 << d.id
		}
		if !p.sealDeleted(a, d) {
			return nil, false
		}
		p.applied[d.tenant] |= 1 << d.id
	}
	return found, true
}

// sealDeleted seals the slots in which the head contains samples that a delete applies to.
func (p *process) sealDeleted(a *actor, d deletion) bool {
	for slot := range slotCount {
		if p.headMatches(slot, deletions{d}) && !p.seal(a, slot) {
			return false
		}
	}
	return true
}

// headMatches reports whether the head contains samples of a slot that one of the deletes applies to.
func (p *process) headMatches(slot int, ds deletions) bool {
	for _, g := range p.head[slot] {
		if matches(g.samples, slot, ds) {
			return true
		}
	}
	return false
}

func matches(c content, slot int, ds deletions) bool {
	for series, s := range c {
		if s != 0 && len(ds.about(series, slot)) > 0 {
			return true
		}
	}
	return false
}

// deleteSeries handles a request to delete samples:
//
//	seal the deleted samples ─► announced: chunks sealed later name it ─► in force
func (p *process) deleteSeries(a *actor, d deletion) bool {
	w := p.w
	request := w.judge.request(a, d, w.events)
	a.lock("deletes", &p.deleting)
	if !w.broken[followBeforeDelete] {
		p.catchUp(a)
	}
	ok := (w.broken[sealBeforeDelete] || p.sealDeleted(a, d)) && p.writeDelete(a, d)
	p.deleting = nil
	ok = ok && p.trimEnds(a, d)
	request.end(ok, w.events)
	if ok && w.oneIn(2) {
		p.processDeletes(a, d.tenant)
	}
	return ok
}

// writeDelete writes the row of a delete.
func (p *process) writeDelete(a *actor, d deletion) bool {
	w, key, begun := p.w, deleteKey{d.tenant, d.id}, p.w.now
	inTime := func() bool { return w.now == begun || w.broken[putInForceInTime] }
	d.when = w.now
	put := func(announced bool, timestamp int) func() {
		row := d
		row.announced = announced
		return func() { w.store.deletes.put(key, timestamp, row) }
	}
	if !w.broken[announceFirst] {
		if !a.write("announce the delete", put(true, 1)) {
			p.cancelDelete(a, d)
			return false
		}
		p.remember(d, true)
	}
	ok := a.writeIf("put the delete in force", inTime, put(false, 2))
	if ok {
		p.remember(d, false)
	}
	if ok && inTime() {
		p.applied[d.tenant] |= 1 << d.id
		return true
	}
	if !w.shared || w.broken[neverCancelInForce] {
		p.cancelDelete(a, d)
	}
	return false
}

// remember updates the cached deletes of the only process of a store.
func (p *process) remember(d deletion, announced bool) {
	p.forgetDelete(d)
	d.announced = announced
	p.known[d.tenant] = append(p.known[d.tenant], d)
}

func (p *process) forgetDelete(d deletion) {
	p.known[d.tenant] = p.known[d.tenant].where(func(o deletion) bool { return o.id != d.id })
	p.toRemove = p.toRemove.where(func(o deletion) bool { return o.id != d.id })
}

// cancelDelete removes a delete that failed. If the removal fails, the only process of a store treats the delete as
// announced, and removes it later.
func (p *process) cancelDelete(a *actor, d deletion) {
	if p.removeDelete(a, d) || p.w.shared {
		return
	}
	if p.w.broken[rememberFailedDeletes] {
		p.exact = false
	}
	p.toRemove = append(p.toRemove, d)
}

// settleDeletes removes a tenant's failed deletes that cancelDelete couldn't remove.
func (p *process) settleDeletes(a *actor, tenant int) bool {
	if p.w.broken[removeFailedDeletes] {
		return true
	}
	for _, d := range slices.Clone(p.toRemove) {
		if d.tenant == tenant && !p.removeDelete(a, d) {
			return false
		}
	}
	return true
}

// removeDelete removes the row of a delete.
func (p *process) removeDelete(a *actor, d deletion) bool {
	timestamp := 2
	if p.w.broken[removeWithLastTimestamp] {
		timestamp = 1
	}
	ok := a.write("remove the delete", func() {
		p.w.store.deletes.remove(deleteKey{d.tenant, d.id}, timestamp, p.w.now)
	})
	if ok {
		p.forgetDelete(d)
	}
	return ok
}

// processDeletes recomputes the rollups that include deleted samples.
func (p *process) processDeletes(a *actor, tenant int) bool {
	all := a.namedDeletes(tenant).inForce()
	if len(all) == 0 {
		return true
	}
	if !p.rollWindow(a, tenant) {
		return false
	}
	for _, d := range all {
		if !p.trimEnds(a, d) {
			return false
		}
	}
	return true
}
