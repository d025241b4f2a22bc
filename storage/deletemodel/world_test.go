package deletemodel

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
)

// A tick is twelve hours. A delete rests for restTicks (see the package comment). A seal that takes longer than half of
// this time restarts.
const (
	restTicks = 4
	// doubtTicks is how long after its failure a write may still be applied.
	doubtTicks = 1
)

// choices are the decisions of a history: random and recorded, or replayed. Each step of the history has a group of
// choices, so that a group can be removed or shortened without changing the others.
type choices struct {
	random   *rand.Rand
	recorded [][]uint8
	// group is the number of started groups, and position the index of the next choice in the last started group.
	group, position int
}

// nextGroup starts the next group. It returns false at the end of a recorded history.
func (c *choices) nextGroup() bool {
	if c.random != nil {
		c.recorded = append(c.recorded, nil)
	}
	c.group, c.position = c.group+1, 0
	return c.group <= len(c.recorded)
}

// pick returns a number below n. 0 is the most harmless decision, which is also made after the end of a shortened
// group.
func (c *choices) pick(n int) int {
	if n <= 1 {
		return 0
	}
	if c.random != nil {
		v := c.random.IntN(n)
		last := &c.recorded[c.group-1]
		*last = append(*last, uint8(v))
		return v
	}
	if c.group > len(c.recorded) || c.position >= len(c.recorded[c.group-1]) {
		return 0
	}
	c.position++
	return int(c.recorded[c.group-1][c.position-1]) % n
}

func (c *choices) oneIn(n int) bool { return c.pick(n) == n-1 }

// phase is the progress of the expiry of a window.
type phase int

const (
	// 0 means that queries read the rows.
	_ phase = iota
	// hiddenSoon means that the rows will be hidden within a day. Deletes then update the rollups before they return.
	hiddenSoon
	// hidden means that queries read the rows only for slots with incomplete rollups.
	hidden
	// expired means that readers treat the rows as missing.
	expired
	// vanished means that the engine has removed the rows.
	vanished
)

// world is the state of one history: the engine, the processes, and the judge.
type world struct {
	choices
	broken map[rule]bool
	// shared is true if multiple processes use the engine, as with Cassandra.
	shared bool
	store  store
	// now is the time in ticks, and events counts steps.
	now, events int
	phases      [resolutionCount]phase
	// expiredAt is the time at which the rows of each resolution expired, in ticks.
	expiredAt [resolutionCount]int
	processes []*process
	actors    []*actor
	doubtful  []doubtfulWrite
	filling   *actor
	judge     *judge
	backup    *backup
	// faults is false while the history settles. Writes then don't fail, and processes don't crash.
	faults bool
	ids    int
	// deletesBegun is the number of requested deletes.
	deletesBegun int
	// outcome is the outcome that a scripted history forces for the next write.
	outcome int
	failure string
	trace   func(string)
}

// doubtfulWrite is a write with an unknown outcome. It may still be applied up to the tick in field until.
type doubtfulWrite struct {
	by    *actor
	name  string
	until int
	apply func()
}

// backup is a copy of the engine and of the judge's records.
type backup struct {
	store  store
	judge  *judge
	phases [resolutionCount]phase
	// deletesBegun is the number of deletes that were requested before the backup.
	deletesBegun int
}

func newWorld(shared bool, c choices) *world {
	w := &world{choices: c, shared: shared, faults: true, judge: newJudge()}
	w.nextGroup()
	w.store = newStore(w.oneIn(2))
	n := 1
	if shared {
		n = 2 + w.pick(2)
	}
	for i := range n {
		p := &process{w: w, name: fmt.Sprintf("p%d", i)}
		p.start()
		w.processes = append(w.processes, p)
	}
	return w
}

func (w *world) newID() int {
	w.ids++
	return w.ids
}

func (w *world) logf(format string, args ...any) {
	if w.trace != nil {
		w.trace(fmt.Sprintf("%3d ", w.now) + fmt.Sprintf(format, args...))
	}
}

func (w *world) fail(format string, args ...any) {
	if w.failure == "" {
		w.failure = fmt.Sprintf(format, args...)
		w.logf("FAILED: %s", w.failure)
	}
}

// actor is a running operation of a process. Each call of advance executes it up to its next step.
type actor struct {
	w     *world
	p     *process
	name  string
	begun int
	// label names the next step.
	label string
	yield func(struct{}) bool
	next  func() (struct{}, bool)
	stop  func()
	done  bool
	// ready is false while the operation waits for a lock.
	ready func() bool
	// rolling is true while the operation computes the missing rollups of a window.
	rolling bool
	// failed is true if the operation returned an error.
	failed bool
}

type crashed struct{}

// start starts an operation f of a process, and executes it up to its first step. f returns false if it fails.
func (w *world) start(p *process, name string, f func(*actor) bool) *actor {
	a := &actor{w: w, p: p, name: p.name + " " + name, begun: w.now}
	a.next, a.stop = iter.Pull(func(yield func(struct{}) bool) {
		a.yield = yield
		defer func() {
			if r := recover(); r != nil {
				if _, ok := r.(crashed); !ok {
					panic(r)
				}
			}
		}()
		a.failed = !f(a)
	})
	w.actors = append(w.actors, a)
	w.logf("%s starts", a.name)
	a.advance()
	return a
}

// advance executes an operation up to its next step. It returns false once the operation has ended.
func (a *actor) advance() bool {
	if a.done || a.isBlocked() {
		return false
	}
	a.w.events++
	if _, more := a.next(); more {
		return true
	}
	a.end()
	if a.failed {
		a.w.logf("%s fails", a.name)
	} else {
		a.w.logf("%s ends", a.name)
	}
	return false
}

func (a *actor) isBlocked() bool { return a.p.frozenUntil > a.w.now || a.ready != nil && !a.ready() }

func (a *actor) end() {
	a.done = true
	if a.p.sealing == a {
		a.p.sealing = nil
	}
	if a.p.deleting == a {
		a.p.deleting = nil
	}
	if a.p.cleaning == a {
		a.p.cleaning = nil
	}
	if a.p.following == a {
		a.p.following = nil
	}
	if a.w.filling == a {
		a.w.filling = nil
	}
	a.w.actors = slices.DeleteFunc(a.w.actors, func(o *actor) bool { return o == a })
}

// step lets other operations run before the next access to the engine. label names that access.
func (a *actor) step(label string) {
	a.label = label
	if !a.yield(struct{}{}) {
		panic(crashed{})
	}
	if a.w.trace != nil {
		a.w.logf("  %s: %s", a.name, label)
	}
}

// wait waits until a lock is free.
func (a *actor) wait(label string, free func() bool) {
	for !free() {
		a.ready = free
		a.step("wait: " + label)
		a.ready = nil
	}
}

// lock acquires a lock of the process. If the operation doesn't release it, it is released when the operation ends.
func (a *actor) lock(label string, holder **actor) {
	if *holder == a {
		return
	}
	a.wait(label, func() bool { return *holder == nil })
	*holder = a
}

// Outcomes of a write.
const (
	applied = iota
	appliedInDoubt
	appliedLater
	neverApplied
)

// write applies a mutation. It returns false if the write fails. The mutation may then be applied now, later or never.
func (a *actor) write(label string, mutate func()) bool {
	return a.writeIf(label, func() bool { return true }, mutate)
}

// writeIf is like write, but doesn't write if allowed returns false. allowed is called in the same step as the write.
// It must depend only on the clock and the memory of the process, not on the engine.
func (a *actor) writeIf(label string, allowed func() bool, mutate func()) bool {
	a.step(label)
	w := a.w
	if !allowed() {
		return false
	}
	outcome := w.outcome
	w.outcome = applied
	if w.faults && outcome == applied {
		if v := w.pick(20); v > 16 {
			outcome = v - 16
		}
	}
	if w.filling == a && outcome == appliedLater { // See the limits in the package's description.
		outcome = neverApplied
	}
	if !w.shared && outcome != appliedLater {
		w.applyAll(func() bool { return true })
	}
	switch outcome {
	case applied, appliedInDoubt:
		mutate()
	case appliedLater:
		w.doubtful = append(w.doubtful, doubtfulWrite{a, a.name + ": " + label, w.now + doubtTicks, mutate})
	}
	if outcome != applied {
		w.logf("  %s: the write failed: %s", a.name, []string{"", "applied", "applied later", "never applied"}[outcome])
	}
	return outcome == applied
}

// applyDoubtful applies a write with an unknown outcome, or drops it.
func (w *world) applyDoubtful(i int, apply bool) {
	d := w.doubtful[i]
	w.doubtful = slices.Delete(w.doubtful, i, i+1)
	if apply {
		w.logf("a write in doubt is applied: %s", d.name)
		d.apply()
		w.judge.appliedLate(d.by)
	}
}

// applyAll applies the writes with unknown outcomes in their order. It drops a write if happens returns false.
func (w *world) applyAll(happens func() bool) {
	for len(w.doubtful) > 0 {
		w.applyDoubtful(0, happens())
	}
}

// tick advances the time by twelve hours.
func (w *world) tick() {
	w.now++
	w.logf("twelve hours pass")
	w.doubtful = slices.DeleteFunc(w.doubtful, func(d doubtfulWrite) bool { return d.until < w.now })
	for _, p := range w.processes {
		waits := p.sealing != nil && p.isForgetDue() && !w.broken[rereadBesideNoSeal]
		if w.shared && p.frozenUntil <= w.now && !waits {
			w.do(p, "follows", func(a *actor) bool { p.catchUp(a); return true })
		}
	}
}

// crash stops a process and restarts it. If it is the only process, its engine stops with it, so no write is applied
// later.
func (w *world) crash(p *process) {
	w.logf("%s crashes", p.name)
	if !w.shared {
		lost := false
		w.applyAll(func() bool { lost = lost || w.oneIn(2); return !lost })
	}
	for _, a := range slices.Clone(w.actors) {
		if a.p == p {
			a.stop()
			a.end()
			w.judge.ended(a)
		}
	}
	p.start()
}

// stopAll stops all operations, so that a history leaves no goroutines.
func (w *world) stopAll() {
	for _, a := range slices.Clone(w.actors) {
		a.stop()
		a.end()
	}
}

func (w *world) takeBackup() {
	w.logf("a backup is taken")
	w.backup = &backup{w.store.copyOf(), w.judge.copyOf(), w.phases, w.deletesBegun}
}

// restoreDeletes replaces the table of deletes by its backup, while the processes run. Deletes that were requested
// after the backup are lost.
func (w *world) restoreDeletes() {
	w.logf("the deletes are restored")
	from := w.backup.store.copyOf()
	w.store.deletes, w.store.clearance = from.deletes, from.clearance
	for _, d := range w.judge.deletes {
		if d.id > w.backup.deletesBegun {
			d.state = failed
		}
	}
	if w.broken[useNewIDs] {
		w.deletesBegun = w.backup.deletesBegun
	}
}

// restore stops all processes, replaces the engine by the backup, and restarts the processes.
func (w *world) restore() {
	w.logf("the backup is restored")
	for _, a := range slices.Clone(w.actors) {
		a.stop()
		a.end()
	}
	w.doubtful = nil
	w.store, w.judge = w.backup.store.copyOf(), w.backup.judge.copyOf()
	for res := raw; res < resolutionCount; res++ { // Rows that have expired since the backup aren't restored.
		if w.phases[res] == vanished {
			w.store.vanish(res)
		}
	}
	for res := raw; res < resolutionCount; res++ {
		w.phases[res] = max(w.phases[res], w.backup.phases[res])
	}
	for _, p := range w.processes {
		p.start()
	}
}
