package deletemodel

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

const (
	// historySteps is the number of steps of a history before it settles, maxActors the max number of concurrent
	// operations, and maxDeletes the max number of requested deletes.
	historySteps = 80
	maxActors    = 4
	maxDeletes   = 12
	// maxSettleSteps is the max number of steps in which running operations must end when the history settles.
	maxSettleSteps = 20_000
)

// variant selects a store with multiple processes, or with one process.
type variant struct{ shared bool }

// play plays a history. It returns the failure, or "" if there is none, and the choices that were made.
func play(v variant, broken map[rule]bool, c choices, trace func(string)) (failure string, used [][]uint8) {
	w := newWorld(v.shared, c)
	w.broken, w.trace = broken, trace
	defer w.stopAll()
	for w.failure == "" && w.group <= w.steps() {
		w.nextGroup()
		w.decide()
	}
	w.nextGroup()
	if w.failure == "" {
		w.settle()
	}
	return w.failure, w.recorded
}

// steps returns the number of steps before the history settles.
func (w *world) steps() int {
	if w.random != nil {
		return historySteps
	}
	return len(w.recorded) - 2 // The first group creates the store, and the last one settles the history.
}

// decide makes one decision. In most cases an operation is started or continued.
func (w *world) decide() {
	switch v := w.pick(48); {
	case v < 30 && len(w.actors) > 0:
		a := w.actors[w.pick(len(w.actors))]
		for range 1 + w.pick(12) {
			if !a.advance() {
				break
			}
		}
		if a.done {
			w.observe()
		}
	case v < 40:
		if len(w.actors) < maxActors {
			w.startAny(w.processes[w.pick(len(w.processes))])
		}
	case v < 42:
		w.tick()
	case v < 43:
		if n := len(w.doubtful); n > 0 {
			w.applyDoubtful(w.pick(n), true)
		}
	case v < 45:
		w.age()
	default:
		w.disturb()
	}
}

// disturb crashes or pauses a process, restores a removed row, or makes or restores a backup. In some cases it does
// nothing.
func (w *world) disturb() {
	p := w.processes[w.pick(len(w.processes))]
	switch v := w.pick(10); {
	case v < 3:
	case v < 5:
		w.crash(p)
	case v < 7:
		if w.shared {
			p.frozenUntil = w.now + 1 + w.pick(restTicks+2)
			w.logf("%s is paused", p.name)
		}
	case v < 8:
		w.bringRowsBack()
	case v < 9:
		w.takeBackup()
	default:
		if w.backup != nil && w.backup.phases == w.phases {
			w.restore()
		}
	}
}

// bringRowsBack restores a removed row of the staging log or of a delete, as if one replica had missed the removal.
func (w *world) bringRowsBack() {
	if !w.shared {
		return
	}
	stage, deletes := &w.store.stage, &w.store.deletes
	if i := w.pick(len(stage.rows) + len(deletes.rows)); i < len(stage.rows) {
		if stage.bringBack(i, w.now) {
			w.logf("stage row %v is back", stage.rows[i].key)
		}
	} else if i -= len(stage.rows); i < len(deletes.rows) && w.now-deletes.rows[i].removedAt > doubtTicks &&
		deletes.bringBack(i, w.now) {
		w.logf("delete %d is back", deletes.rows[i].key.id)
	}
}

// age moves a window to its next phase, unless the limits in the package's description exclude this.
func (w *world) age() {
	res := raw
	if w.phases[raw] == vanished {
		res = fine
	}
	next := w.phases[res] + 1
	if res == fine {
		next = max(next, expired)
	}
	switch {
	case w.pick(3) == 0, next > vanished:
		return
	case res == raw && next == hidden: // Only Expire does this.
		return
	case next == expired && len(w.doubtful) > 0:
		return // The product has the same limits: see the package's description.
	case res == raw && next == expired && slices.ContainsFunc(w.actors, func(a *actor) bool { return a.rolling }):
		return
	case res == raw && next == expired && !w.hasRolledUp(): // Expire runs in the week in which raw rows are hidden.
		return
	case next == vanished && slices.ContainsFunc(w.actors, func(a *actor) bool { return a.begun <= w.expiredAt[res] }):
		return
	}
	w.setPhase(res, next)
}

func (w *world) setPhase(res resolution, to phase) {
	w.logf("the window of resolution %d: %s",
		res, []string{"stands", "is hidden soon", "is hidden", "is expired", "has vanished"}[to])
	w.phases[res] = to
	if to == expired {
		w.expiredAt[res] = w.now
	}
	if to == vanished {
		w.store.vanish(res)
	}
}

// hasRolledUp reports whether the rollups of all raw rows are complete, so that expire has no rollups to compute.
func (w *world) hasRolledUp() bool {
	p := w.processes[0]
	if len(p.toRemove) > 0 && !w.broken[removeFailedDeletes] {
		return false
	}
	a := w.alone(p, "looks")
	for tenant := range tenantCount {
		if len(a.missingMarks(tenant, a.namedDeletes(tenant).inForce())) > 0 {
			return false
		}
	}
	return true
}

// expire computes the missing rollups of raw rows that are hidden or will be hidden soon, and then hides the raw rows.
func (p *process) expire(a *actor) bool {
	w := p.w
	if w.phases[raw] != hiddenSoon && w.phases[raw] != hidden {
		return true
	}
	for tenant := range tenantCount {
		if !p.settleDeletes(a, tenant) || !w.broken[rollBeforeHiding] && !p.rollWindow(a, tenant) {
			return false
		}
	}
	a.step("hide raw rows")
	if w.phases[raw] == hiddenSoon {
		w.setPhase(raw, hidden)
	}
	return true
}

// startAny starts a random operation of a process.
func (w *world) startAny(p *process) {
	if p.frozenUntil > w.now {
		return
	}
	tenant, slot := 0, w.pick(slotCount)
	if w.oneIn(5) {
		tenant = 1
	}
	switch v := w.pick(30); {
	case v < 8:
		samples := w.anySamples(tenant).inSlot(slot)
		w.start(p, "writes", func(a *actor) bool { return p.stageSamples(a, samples) })
	case v < 12:
		w.start(p, "seals", func(a *actor) bool { return p.seal(a, slot) })
	case v < 16:
		if d := w.anyDeletion(tenant); d.id <= maxDeletes {
			w.start(p, fmt.Sprintf("deletes %08b of %03b by %d", d.times, d.series, d.id), func(a *actor) bool {
				return p.deleteSeries(a, d)
			})
		}
	case v < 19:
		w.start(p, "cleans", func(a *actor) bool { return p.cleanTombstones(a, tenant) })
	case v < 20:
		w.start(p, "processes deletes", func(a *actor) bool {
			return p.rollWindow(a, tenant) && p.processDeletes(a, tenant)
		})
	case v < 24:
		res := resolution(w.pick(int(resolutionCount)))
		w.start(p, fmt.Sprintf("queries %d", res), func(a *actor) bool { return p.query(a, tenant, res) })
	case v < 27:
		samples := w.anySamples(tenant)
		w.start(p, "imports", func(a *actor) bool { return p.importSamples(a, tenant, samples) })
	case v < 29:
		w.start(p, "expires", p.expire)
	default:
		w.start(p, "forgets", func(a *actor) bool { p.forget(a, slot); return true })
	}
}

// anySamples returns random samples of a tenant's series.
func (w *world) anySamples(tenant int) (c content) {
	for series := range c {
		if tenantOf(series) != tenant || series == 1 && w.oneIn(2) {
			continue
		}
		c[series] = 1 << w.pick(timeCount)
		if w.oneIn(2) {
			c[series] |= 1 << w.pick(timeCount)
		}
	}
	return c
}

// anyDeletion returns a random delete.
func (w *world) anyDeletion(tenant int) deletion {
	w.deletesBegun++
	d := deletion{id: w.deletesBegun, tenant: tenant, series: 1 << (2 * tenant), times: allTimes}
	if tenant == 0 && w.oneIn(3) {
		d.series = 3
	}
	switch w.pick(4) {
	case 1:
		d.times = slotMask(w.pick(slotCount))
	case 2:
		d.times = fine.buckets()[w.pick(4)]
	case 3:
		first := w.pick(timeCount)
		d.times = allTimes << first & (allTimes >> w.pick(timeCount-first))
	}
	return d
}

// settle completes all operations without faults, seals and cleans everything, and checks the final state.
func (w *world) settle() {
	w.faults = false
	w.logf("from here on nothing fails")
	for _, p := range w.processes {
		p.frozenUntil = w.now
	}
	w.finish()
	w.applyAll(func() bool { return w.oneIn(2) })
	for _, p := range w.processes {
		w.settleProcess(p)
	}
	for range restTicks + 1 {
		w.tick()
	}
	last := w.processes[len(w.processes)-1]
	for tenant := range tenantCount {
		w.do(last, "cleans", func(a *actor) bool { return last.cleanTombstones(a, tenant) })
	}
	w.observe()
	w.checkSettled()
}

// finish executes all running operations to their ends.
func (w *world) finish() {
	for range maxSettleSteps {
		if len(w.actors) == 0 || w.failure != "" {
			return
		}
		a := w.actors[w.pick(len(w.actors))]
		if a.isBlocked() {
			if i := slices.IndexFunc(w.actors, func(a *actor) bool { return !a.isBlocked() }); i < 0 {
				break
			} else {
				a = w.actors[i]
			}
		}
		a.advance()
	}
	var stuck []string
	for _, a := range w.actors {
		stuck = append(stuck, a.name+": "+a.label)
	}
	if len(stuck) > 0 {
		w.fail("stuck: %s", strings.Join(stuck, ", "))
	}
}

// settleProcess seals, cleans and queries everything.
func (w *world) settleProcess(p *process) {
	for slot := range slotCount {
		w.do(p, "seals", func(a *actor) bool { return p.seal(a, slot) })
		w.do(p, "forgets", func(a *actor) bool { p.forget(a, slot); return true })
	}
	w.do(p, "expires", p.expire)
	for tenant := range tenantCount {
		w.do(p, "rolls up", func(a *actor) bool { return p.rollWindow(a, tenant) })
		w.do(p, "cleans", func(a *actor) bool { return p.cleanTombstones(a, tenant) })
		for res := raw; res <= hourly; res++ {
			w.do(p, "queries", func(a *actor) bool { return p.query(a, tenant, res) })
		}
	}
}

// do executes an operation to its end. No other operation runs in between.
func (w *world) do(p *process, name string, f func(a *actor) bool) {
	if w.failure != "" {
		return
	}
	for range settleTries {
		a := w.alone(p, name)
		w.logf("%s", a.name)
		ok := f(a)
		a.end()
		if ok {
			return
		}
		w.tick()
	}
	w.fail("unsettled: %s %s fails", p.name, name)
}

// settleTries is the max number of tries of an operation while the history settles. An operation fails while an
// announced delete may still come into force.
const settleTries = 4

// alone returns an operation whose steps let no other operation run.
func (w *world) alone(p *process, name string) *actor {
	return &actor{w: w, p: p, name: p.name + " " + name, begun: w.now, yield: func(struct{}) bool { return true }}
}

// checkSettled checks that no staged row and no delete is left, and that the rollups are complete.
func (w *world) checkSettled() {
	if w.failure != "" {
		return
	}
	if w.store.stage.has(func(stageKey) bool { return true }) {
		w.fail("unsettled: stage rows are left")
	}
	for tenant := range tenantCount {
		if found, back := w.scanDeletes(tenant); len(found)+len(back) > 0 {
			w.fail("unsettled: deletes are left")
		}
	}
	if !w.hasRolledUp() {
		w.fail("unsettled: rollups lack marks")
	}
	w.checkRollups()
}

// seeded returns random choices from a seed.
func seeded(seed uint64) choices {
	return choices{random: rand.New(rand.NewPCG(seed, 46))}
}
