package deletemodel

// bringBack restores the removed row of a delete, like a replica that has missed the removal.
func (s *script) bringBack(id int) {
	for i := range s.store.deletes.rows {
		if s.store.deletes.rows[i].key.id == id {
			s.store.deletes.bringBack(i, s.now)
		}
	}
}

// deletedWhileAsleep pauses process 1 until a sample in its head was deleted and the delete was removed. Then process 1
// stores another sample of the slot, before it reads the writes of the other processes.
func (s *script) deletedWhileAsleep() {
	s.write(s.p0, 1)
	s.queries(s.p1)
	s.p1.frozenUntil = 10 * restTicks
	s.deletes(s.p0, 0, allTimes).run()
	s.ticks(restTicks)
	s.cleans(s.p0).run()
	s.p1.frozenUntil = s.now
	s.write(s.p1, 2)
}

// readerHistories are scripted histories that each fail without some of the readerRules, or without rules that random
// histories rarely need.
var readerHistories = []namedHistory{
	{
		name:    "a delete fails while it is announced, and later rollups without samples are trimmed",
		without: []rule{trimOnlyInForce},
		play: func(s *script) {
			d := s.deletes(s.p0, 0, allTimes)
			d.until("put the delete in force", 1)
			s.outcome = neverApplied
			d.run()
			s.write(s.p1, 1)
			s.seals(s.p1, 0).run()
			s.expireRaw()
			s.ticks(2)
			s.imports(s.p2, 4).run()
			s.queries(s.p2)
		},
	},
	{
		name:    "a process crashes while it removes a delete, whose row a replica restores",
		without: []rule{noteBeforeRemoving},
		play: func(s *script) {
			s.write(s.p0, 1)
			s.deletes(s.p0, 0, allTimes).run()
			s.ticks(restTicks)
			s.cleans(s.p0).until("note the removed deletes", 1)
			s.crash(s.p0)
			s.write(s.p1, 0x10)
			s.seals(s.p1, 1).run()
			s.ticks(2)
			s.bringBack(1)
			s.queries(s.p2)
		},
	},
	{
		name: "a replica restores the row of a removed delete", without: []rule{ignoreClearedDeletes},
		play: func(s *script) {
			s.write(s.p0, 1)
			s.deletes(s.p0, 0, allTimes).run()
			s.ticks(restTicks)
			s.cleans(s.p0).run()
			s.write(s.p1, 0x10)
			s.seals(s.p1, 1).run()
			s.ticks(2)
			s.bringBack(1)
			s.queries(s.p2)
		},
	},
	{
		name: "a delete is requested while another one is cleaned for days", without: []rule{clearanceNamesStanding},
		play: func(s *script) {
			s.imports(s.p0, 0x11).run()
			s.deletes(s.p0, 0, 0x0f).run()
			x := s.cleans(s.p0)
			x.until("read chunks to clean", 1)
			s.deletes(s.p1, 0, 0xf0).run()
			s.ticks(restTicks)
			x.run()
			s.queries(s.p2)
		},
	},
	{
		name: "a sleeper seals before it follows", without: []rule{followBeforeSealing, rereadAfterSleep},
		play: func(s *script) {
			s.deletedWhileAsleep()
			s.seals(s.p1, 0).run()
			s.queries(s.p2)
		},
	},
	{
		name: "a sleeper stores samples before it follows", without: []rule{rereadAfterSleep, releaseAfterSleep},
		play: func(s *script) {
			s.deletedWhileAsleep()
			s.queries(s.p1)
		},
	},
	{
		name: "a pass of the follower reads a sample that is then deleted", without: []rule{followAfterReading},
		play: func(s *script) {
			q := s.start(s.p1, "queries", func(a *actor) bool { return s.p1.query(a, 0, raw) })
			q.until("read deletes", 1)
			s.write(s.p0, 1)
			f := s.start(s.p1, "follows", s.p1.followPass)
			f.until("add the rows to the head", 1)
			s.deletes(s.p0, 0, allTimes).run()
			q.run()
			f.run()
			q.run()
			s.queries(s.p1)
		},
	},
	{
		name: "a seal and an import list chunks before both write", without: []rule{listAfterWriting},
		play: func(s *script) {
			x := s.imports(s.p0, 1)
			x.until("write a chunk", 1)
			s.write(s.p1, 2)
			y := s.seals(s.p1, 0)
			y.until("write a chunk", 1)
			x.run()
			y.run()
			s.queries(s.p2)
		},
	},
	{
		name:    "a process crashes while it deletes staged rows, of which one comes back",
		without: []rule{noteBeforeDeleting},
		play: func(s *script) {
			s.write(s.p0, 1)
			x := s.seals(s.p0, 0)
			x.until("note the processed rows", 1)
			s.crash(s.p0)
			s.deletes(s.p1, 0, allTimes).run()
			s.start(s.p0, "forgets", func(a *actor) bool { s.p0.forget(a, 0); return true }).run()
			s.ticks(restTicks)
			s.cleans(s.p1).run()
			s.ticks(1)
			s.store.stage.bringBack(0, s.now)
			s.queries(s.p2)
		},
	},
	{
		name: "a failed delete takes effect, which a seal found announced", without: []rule{nameAnnounced},
		play: func(s *script) {
			d := s.deletes(s.p0, 0, allTimes)
			d.until("put the delete in force", 1)
			s.outcome = appliedLater
			d.run()
			s.write(s.p1, 1)
			s.seals(s.p1, 0).run()
			s.applyDoubtful(0, true)
			s.queries(s.p2)
		},
	},
}
