package deletemodel

// counter is the row that numbers the deletes of a tenant. It holds the newest delete whole until the row of that delete is durable, and changes by
// compare-and-set. floor is the number up to which deletes were removed.
type counter struct {
	last, floor int
	newest      deletion
}

// upTo returns all numbers up to one: a chunk that was made with deletes up to a number is exempt from these.
func upTo(number int) ids { return 1<<(number+1) - 1 }

// takeNumber makes a delete durable under the next number of its tenant.
func (p *process) takeNumber(a *actor, d deletion) bool {
	w, tenant := p.w, d.tenant
	for {
		a.step("read the counter")
		c, _ := w.store.counters.get(tenant)
		if c.last > c.floor && !w.broken[newestRowFirst] && !a.write("write the row of the newest delete", func() {
			w.store.deletes.put(deleteKey{tenant, c.newest.id}, 1, c.newest)
		}) {
			return false
		}
		d.id, d.when = c.last+1, w.now
		taken := false
		a.serial = true
		ok := a.write("take a number", func() {
			now, _ := w.store.counters.get(tenant)
			if taken = now.last == c.last; taken {
				w.store.changeCounter(tenant, counter{d.id, now.floor, d})
			}
		})
		a.serial = false
		if !ok {
			return false
		}
		if taken {
			p.applied[d.tenant] |= 1 << d.id
			return true
		}
	}
}

func (s *store) changeCounter(tenant int, c counter) {
	timestamp := 1
	if r := s.counters.find(tenant); r != nil {
		timestamp = r.timestamp + 1
	}
	s.counters.put(tenant, timestamp, c)
}

// scanNumbered reads the deletes of a tenant that stand, and its counter, which are in one partition.
func (w *world) scanNumbered(tenant int) (found, back deletions) {
	for i := 0; i < len(w.doubtful) && !w.broken[readSerially]; {
		if !w.doubtful[i].serial {
			i++
			continue
		}
		w.applyDoubtful(i, w.oneIn(2))
	}
	c, _ := w.store.counters.get(tenant)
	newest := c.last > c.floor && !w.broken[counterHoldsNewest]
	w.store.deletes.each(func(key deleteKey, d deletion) {
		switch {
		case key.tenant != tenant:
		case d.id <= c.floor && !w.broken[floorHidesRemoved]:
			back = append(back, d)
		default:
			found = append(found, d)
			newest = newest && d.id != c.newest.id
		}
	})
	if newest {
		found = append(found, c.newest)
	}
	return found, back
}

// lastNumber is the number of the newest delete of a tenant.
func (w *world) lastNumber(tenant int) int {
	c, _ := w.store.counters.get(tenant)
	return c.last
}

// raiseFloor notes that deletes are about to be removed: all up to a number, if all of them are.
func (p *process) raiseFloor(a *actor, tenant int, gone, rows deletions) (removed deletions, ok bool) {
	w := p.w
	c, _ := w.store.counters.get(tenant)
	floor := c.floor
	for n := floor + 1; n <= c.last && (gone.ids().has(n) || !rows.ids().has(n) && n < c.last); n++ {
		floor = n
	}
	if floor > c.floor && !a.write("raise the floor", func() {
		now, _ := w.store.counters.get(tenant)
		if now.floor < floor {
			now.floor = floor
			w.store.changeCounter(tenant, now)
		}
	}) {
		return nil, false
	}
	return gone.where(func(d deletion) bool { return d.id <= floor }), true
}
