package deletemodel

import (
	"slices"
	"testing"
)

// script plays a scripted history. There are no faults except those in the script.
type script struct {
	*world
	p0, p1, p2 *process
}

func newScript(v variant, broken map[rule]bool) *script {
	w := newWorld(v.shared, choices{recorded: [][]uint8{{0, 1}}}) // three processes if it is shared
	w.broken = broken
	s := &script{world: w, p0: w.processes[0]}
	if v.shared {
		s.p1, s.p2 = w.processes[1], w.processes[2]
	}
	return s
}

// until executes an operation up to the n-th step with a label.
func (a *actor) until(label string, n int) {
	for !a.done && (a.label != label || n > 1) {
		if a.label == label {
			n--
		}
		if !a.advance() {
			return // The operation waits for a lock, or has ended.
		}
	}
}

// run executes an operation to its end. It returns false if the operation failed.
func (a *actor) run() bool {
	for a.advance() {
	}
	return !a.failed
}

func (s *script) write(p *process, times samples) {
	s.start(p, "writes", func(a *actor) bool { return p.stageSamples(a, content{times}) }).run()
}

func (s *script) seals(p *process, slot int) *actor {
	return s.start(p, "seals", func(a *actor) bool { return p.seal(a, slot) })
}

func (s *script) imports(p *process, times samples) *actor {
	return s.start(p, "imports", func(a *actor) bool { return p.importSamples(a, 0, content{times}) })
}

func (s *script) deletes(p *process, tenant int, times samples) *actor {
	s.deletesBegun++
	d := deletion{id: s.deletesBegun, tenant: tenant, series: 1 << (2 * tenant), times: times}
	return s.start(p, "deletes", func(a *actor) bool { return p.deleteSeries(a, d) })
}

func (s *script) cleans(p *process) *actor {
	return s.start(p, "cleans", func(a *actor) bool { return p.cleanTombstones(a, 0) })
}

func (s *script) processes(p *process) *actor {
	return s.start(p, "processes", func(a *actor) bool { return p.processDeletes(a, 0) })
}

// queries runs a query of a process at each resolution.
func (s *script) queries(p *process) {
	for res := raw; res <= hourly; res++ {
		s.start(p, "queries", func(a *actor) bool { return p.query(a, 0, res) }).run()
	}
	s.observe()
}

func (s *script) ticks(n int) {
	for range n {
		s.tick()
	}
}

// expireRaw computes the missing rollups of raw rows, and then expires the raw rows.
func (s *script) expireRaw() {
	s.start(s.p0, "expires", s.p0.expire).run()
	s.setPhase(raw, expired)
}

// namedHistory is a scripted history. It succeeds with all rules, and fails if any one of the rules in without is
// removed.
type namedHistory struct {
	name string
	// alone is true if only one process uses the engine.
	alone bool
	// without contains the rules that the history needs.
	without []rule
	play    func(s *script)
}

var namedHistories = []namedHistory{
	{name: "a failed delete is undone late", alone: true, without: []rule{rememberFailedDeletes},
		play: func(s *script) {
			s.imports(s.p0, 1).run()
			d := s.deletes(s.p0, 0, allTimes)
			d.until("put the delete in force", 1)
			s.outcome = appliedInDoubt
			d.until("remove the delete", 1)
			s.outcome = appliedLater
			d.run()
			x := s.processes(s.p0)
			x.until("write a rollup", 1)
			s.applyDoubtful(0, true)
			x.run()
			s.imports(s.p0, 1).run()
			s.queries(s.p0)
		}},
	{name: "a delete is removed while rollups apply it", alone: true, without: []rule{listBetweenDeletes},
		play: func(s *script) {
			s.deletes(s.p0, 0, allTimes).run()
			s.write(s.p0, 1)
			c := s.cleans(s.p0)
			c.until("mark the slot", 2)
			x := s.processes(s.p0)
			x.until("list chunks", 1)
			c.run()
			s.seals(s.p0, 0).run()
			x.run()
			s.queries(s.p0)
		}},
	{name: "a delete is removed before rollups are trimmed", alone: true, without: []rule{trimForStanding},
		play: func(s *script) {
			s.setPhase(raw, hiddenSoon)
			s.deletes(s.p0, 0, allTimes).run()
			x := s.processes(s.p0)
			x.until("read marks of raw rows", 2)
			s.cleans(s.p0).run()
			s.expireRaw()
			s.imports(s.p0, 1).run()
			x.run()
			s.queries(s.p0)
		}},
	{name: "rollups are trimmed while a staged slot is marked", alone: true, without: []rule{markSamplesFirst},
		play: func(s *script) {
			s.setPhase(raw, hiddenSoon)
			s.deletes(s.p0, 0, allTimes).run()
			s.start(s.p0, "writes", func(a *actor) bool { return s.p0.stageSamples(a, content{1: 1}) }).run()
			c := s.cleans(s.p0)
			c.until("mark the slot", 3)
			x := s.processes(s.p0)
			x.until("read the stored rollup", 1)
			s.imports(s.p0, 2).run()
			x.run()
			c.run()
		}},
	{name: "an import pauses after it read that a delete is announced", without: []rule{countWaitFromRead},
		play: func(s *script) {
			s.imports(s.p1, 1).run()
			s.expireRaw()
			d := s.deletes(s.p0, 0, allTimes)
			d.until("put the delete in force", 1)
			x := s.imports(s.p2, 4)
			x.until("read deletes", 2)
			d.run()
			s.ticks(2)
			x.run()
			s.queries(s.p1)
		}},
	{name: "the same samples are imported again after a delete", without: []rule{hashCoversDeletes},
		play: func(s *script) {
			s.imports(s.p0, 3).run()
			s.deletes(s.p0, 0, allTimes).run()
			s.cleans(s.p0).run()
			s.imports(s.p1, 3).run()
		}},
	{name: "the same samples are imported again after a delete was removed",
		without: []rule{cleanedChunksWin, nameDeletesOfStored}, play: func(s *script) {
			s.imports(s.p0, 1).run()
			s.deletes(s.p0, 0, 1).run()
			s.cleans(s.p0).run()
			s.ticks(restTicks)
			s.cleans(s.p0).run()
			s.imports(s.p1, 1).run()
		}},
	{name: "a delete pauses before it is in force while another process holds the samples in memory",
		without: []rule{gatherFromStage}, play: func(s *script) {
			s.write(s.p0, 1)
			s.queries(s.p1)
			d := s.deletes(s.p0, 0, allTimes)
			d.until("put the delete in force", 1)
			s.write(s.p2, 2)
			s.seals(s.p1, 0).run()
			d.run()
			s.queries(s.p2)
		}},
	{name: "a delete fails, and takes effect after other samples were sealed",
		without: []rule{announceFirst, nameDeletes}, play: func(s *script) {
			d := s.deletes(s.p0, 0, allTimes)
			d.until("put the delete in force", 1)
			s.outcome = appliedLater
			d.run()
			s.write(s.p1, 1)
			s.seals(s.p1, 0).run()
			s.applyDoubtful(0, true)
			s.queries(s.p1)
		}},
	{name: "a delete pauses until rollups no longer wait for it", without: []rule{putInForceInTime},
		play: func(s *script) {
			s.imports(s.p0, 1).run()
			s.expireRaw()
			d := s.deletes(s.p0, 0, allTimes)
			d.until("put the delete in force", 1)
			s.ticks(2)
			s.imports(s.p1, 4).run()
			d.run()
			s.queries(s.p2)
		}},
	{name: "a delete comes between a seal's samples and its chunks", without: []rule{readDeletesTwice},
		play: func(s *script) {
			x := s.seals(s.p1, 0)
			x.until("list the stage", 1)
			s.deletes(s.p0, 0, allTimes).run()
			s.write(s.p1, 1)
			x.run()
			s.write(s.p2, 2)
			y := s.seals(s.p2, 0)
			y.until("list the stage", 1)
			s.deletes(s.p0, 0, allTimes).run()
			s.write(s.p0, 4)
			y.run()
			s.queries(s.p1)
		}},
	{name: "rollups are made while a delete comes", without: []rule{readDeletesAfterChunks}, play: func(s *script) {
		s.imports(s.p0, 1).run()
		s.write(s.p0, 2)
		x := s.seals(s.p0, 0)
		x.until("read marks of the slot", 1)
		s.deletes(s.p1, 0, 1).run()
		s.processes(s.p1).run()
		x.run()
		s.write(s.p0, 4)
		s.seals(s.p0, 0).run()
		s.queries(s.p2)
	}},
	{name: "hours are made of one slot that knows a delete and one that doesn't",
		without: []rule{countDeletesInVersions}, play: func(s *script) {
			s.imports(s.p0, 0x33).run()
			s.deletes(s.p0, 0, 0x11).run()
			x := s.processes(s.p1)
			x.until("write a rollup", 2)
			s.imports(s.p0, 0x40).run()
			x.run()
			s.queries(s.p2)
		}},
	{name: "a process crashes between the rollups of a delete and their marks", without: []rule{rollBeforeMarks},
		play: func(s *script) {
			s.imports(s.p0, 3).run()
			s.deletes(s.p0, 0, 1).run()
			x := s.processes(s.p0)
			x.until("mark the slot", 3)
			s.crash(s.p0)
			s.queries(s.p1)
		}},
	{name: "a fill and a trim of one row without samples", without: []rule{trimBeforeFilling}, play: func(s *script) {
		s.imports(s.p0, 1).run()
		s.deletes(s.p0, 0, 0x0f).run()
		s.expireRaw()
		s.imports(s.p1, 4).run()
		s.cleans(s.p0).run()
		s.queries(s.p2)
	}},
	{name: "two fills of one row without samples", without: []rule{oneFillsAtATime}, play: func(s *script) {
		s.imports(s.p0, 1).run()
		s.expireRaw()
		x := s.imports(s.p0, 4)
		x.until("write a rollup", 1)
		y := s.imports(s.p1, 8)
		y.until("write a rollup", 1)
		x.run()
		y.run()
		s.queries(s.p2)
	}},
	{name: "a backup from before a delete is restored", without: []rule{sealBeforeDelete}, play: func(s *script) {
		s.write(s.p0, 1)
		s.takeBackup()
		s.deletes(s.p0, 0, allTimes).run()
		s.queries(s.p1)
		s.restore()
		s.deletes(s.p1, 0, 2).run()
		s.imports(s.p0, 2).run()
		s.deletes(s.p1, 0, 1).run()
		s.queries(s.p2)
	}},
	{name: "raw rows expire before a failed delete is removed", alone: true, without: []rule{removeFailedDeletes},
		play: func(s *script) {
			d := s.deletes(s.p0, 0, allTimes)
			d.until("put the delete in force", 1)
			s.outcome = appliedInDoubt
			d.until("remove the delete", 1)
			s.outcome = neverApplied
			d.run()
			s.imports(s.p0, 1).run()
			s.setPhase(raw, hiddenSoon)
			s.expireRaw()
			s.crash(s.p0)
			s.queries(s.p0)
		}},
	{name: "the deletes alone are restored from a backup that is older than the chunks", without: []rule{useNewIDs},
		play: func(s *script) {
			s.takeBackup()
			s.deletes(s.p0, 0, allTimes).run()
			s.imports(s.p0, 1).run()
			s.restoreDeletes()
			s.deletes(s.p1, 0, allTimes).run()
			s.queries(s.p2)
		}},
	{name: "a process sleeps until a delete is cleaned and removed", without: []rule{releaseAfterSleep},
		play: func(s *script) {
			s.write(s.p0, 1)
			s.queries(s.p1)
			s.p1.frozenUntil = restTicks + 1
			s.deletes(s.p0, 0, allTimes).run()
			s.ticks(restTicks)
			s.cleans(s.p0).run()
			s.ticks(1)
			s.write(s.p1, 2)
			s.queries(s.p1)
		}},
	{name: "a process only follows until a delete is cleaned and removed", without: []rule{releaseAfterSleep},
		play: func(s *script) {
			s.write(s.p0, 1)
			s.queries(s.p1)
			s.deletes(s.p0, 0, allTimes).run()
			s.ticks(restTicks) // All processes follow the others.
			s.cleans(s.p0).run()
			s.queries(s.p1)
		}},
	{name: "a process sleeps until a delete is cleaned and removed, and seals before it follows",
		without: []rule{releaseAfterSleep, rereadMixedGenerations}, play: func(s *script) {
			s.write(s.p1, 1)
			s.p1.frozenUntil = restTicks + 1
			s.deletes(s.p0, 0, allTimes).run()
			s.ticks(restTicks)
			s.cleans(s.p0).run()
			s.p1.frozenUntil = s.now
			s.write(s.p1, 2)
			s.seals(s.p1, 0).run()
			s.queries(s.p2)
		}},
	{name: "the follower reads staged rows again while a seal runs", without: []rule{rereadBesideNoSeal},
		play: func(s *script) {
			s.ticks(restTicks / 2)
			s.write(s.p0, 1)
			s.queries(s.p1)
			s.write(s.p0, 2)
			d := s.deletes(s.p1, 0, allTimes)
			d.until("read deletes", 2)
			s.ticks(1)
			d.run()
			s.queries(s.p1)
		}},
	{name: "the timestamps of two cleanings of one chunk collide", without: []rule{cleanedChunksWin},
		play: func(s *script) {
			s.imports(s.p0, 3).run()
			s.deletes(s.p0, 0, 1).run()
			x := s.cleans(s.p0)
			x.until("rewrite a chunk", 1)
			s.deletes(s.p1, 0, 2).run()
			s.cleans(s.p1).run()
			x.run()
			s.ticks(restTicks)
			s.cleans(s.p2).run()
			s.queries(s.p2)
		}},
	{name: "the timestamps of two rollups collide", without: []rule{countDeletesInVersions}, play: func(s *script) {
		s.imports(s.p0, 3).run()
		s.write(s.p0, 4)
		x := s.seals(s.p0, 0)
		x.until("write a rollup", 1)
		s.deletes(s.p1, 0, 1).run()
		s.processes(s.p1).run()
		x.run()
		s.queries(s.p2)
	}},
	{name: "two processes meet a delete", without: []rule{releaseRowsOfOthers}, play: func(s *script) {
		s.write(s.p1, 1)
		s.queries(s.p0)
		s.deletes(s.p0, 0, allTimes).run()
		s.write(s.p1, 2)
		q := s.start(s.p1, "queries", func(a *actor) bool { return s.p1.query(a, 0, raw) })
		q.until("read the stage", 1)
		s.seals(s.p2, 0).run()
		q.run()
	}},
	{name: "a seal pauses until a delete is cleaned and removed", without: []rule{restartSlowSeals},
		play: func(s *script) {
			s.write(s.p0, 1)
			x := s.seals(s.p0, 0)
			x.until("write a chunk", 1)
			s.write(s.p0, 2)
			s.deletes(s.p1, 0, allTimes).run()
			for range 2 {
				s.ticks(restTicks)
				s.cleans(s.p1).run()
			}
			x.run()
			s.queries(s.p2)
		}},
}

// playNamed plays and settles a scripted history.
func playNamed(h namedHistory, v variant, broken map[rule]bool, trace func(string)) string {
	s := newScript(v, broken)
	s.trace = trace
	defer s.stopAll()
	s.faults = false
	if h.play(s); s.failure == "" {
		s.settle()
	}
	return s.failure
}

// TestNamedHistories plays each scripted history with all rules, and without each of the rules that it needs.
func TestNamedHistories(t *testing.T) {
	for _, h := range slices.Concat(namedHistories, readerHistories) {
		t.Run(h.name, func(t *testing.T) {
			var lines []string
			if failure := playNamed(h, variant{!h.alone}, nil,
				func(line string) { lines = append(lines, line) }); failure != "" {
				for _, line := range lines {
					t.Log(line)
				}
				t.Fatal(failure)
			}
			for _, r := range h.without {
				if playNamed(h, variant{!h.alone}, map[rule]bool{r: true}, nil) == "" {
					t.Errorf("nothing fails without rule %d", r)
				}
			}
		})
	}
}

// TestTenantThatDeletesAllTheTime checks a known limit of the current protocol: a slot isn't sealed for any tenant
// while one tenant requests a delete each time a seal has gathered its samples. Once this tenant stops, sealing must
// succeed.
func TestTenantThatDeletesAllTheTime(t *testing.T) {
	s := newScript(variant{shared: true}, nil)
	defer s.stopAll()
	s.faults = false
	s.write(s.p0, 1)
	x := s.seals(s.p0, 0)
	for i := 0; x.advance(); i++ {
		if x.label == "list the stage" {
			s.deletesBegun %= 30
			s.deletes(s.p1, 1, allTimes).run()
		}
	}
	if !x.failed {
		t.Fatal("the seal ended: the page's limit no longer holds")
	}
	s.settle()
	if s.failure != "" {
		t.Fatal(s.failure)
	}
}
