package deletemodel

import "slices"

// These rules were found by reading the product's code, independently of the model. Each comment names the function of
// package storage that implements the rule.
const (
	followBeforeDelete  rule = iota + 100 // carryOut: catchUp before sealOf
	nameAnnounced                         // gatherUndeleted: allDeletes has announced deletes
	deleteOnlyReadRows                    // sealPass.deleteStaged: the rows of gather
	deleteStagedLast                      // sealPass.run: seal before deleteStaged
	subtractOnlyVisible                   // slotSealer.readSealed: visibleSamples with the deletes of the series
	listAfterWriting                      // roller.writeAll: ahead is false on a shared engine
	closeBeforeListing                    // ReleaseSealed: listStaged after closeGenerations
	readHeadFirst                         // package query, Select: the head, the commit records, the rows
	headExcludesRollups                   // package query, windowFinder: no buckets for slots of the head
	fillRaisesVersion                     // roller.extend5m: version+1
	writeEmptyRollups                     // roller.make5m: rollup.AppendEmpty
	keepEmptyChunks                       // cleaner.row: a row without samples is written
	coarsestMarksFirst                    // trim.mark: from OneHour down
	trimOnlyInForce                       // trim.slot: an announced delete gets a mark only
	noteBeforeDeleting                    // sealPass.deleteStaged: recordSealedRows first
	removeDeletesLast                     // CleanTombstones: dropDeletes is last
	ownMarkPerImport                      // importDay.writeSeries: newCommitKeys
	coarseMarksLast                       // importDay.writeSeries: the coarser commit records after seal
	noteBeforeRemoving                    // dropDeletes: removing before removeDelete
	applyAfterSealing                     // loadTombstones: apply after sealOf
	followAfterReading                    // loadTombstones: catchUp after deletesOf
	followBeforeSealing                   // sealTogether: releaseSealed
	rereadAfterSleep                      // follower.releaseSealed: HasSealedRow and reread
)

// readerRules contains the rules above that random histories need: without one of them, a random history fails (see
// rulesOfToday). Three other rules are tested by readerHistories, because random histories need thousands of tries for
// them: nameAnnounced (2842), listAfterWriting (4138) and noteBeforeDeleting (5894).
//
// Two more rules of the product aren't needed for safety. 10,000 histories without each of them found no failure,
// because in both cases the wrong order is repaired before anything depends on it:
//
//   - A seal writes its commit record of raw rows last (tenantPass.writeCommitRecords). In the other order, a slot that
//     only has a raw record is answered from its samples, which are durable. After a crash its staged rows still exist,
//     and the next seal and rollWindow write the missing records.
//   - Cleaning recomputes rollups before it rewrites chunks (CleanTombstones). A cleaned chunk has the same samples and
//     the same weight in versions as before, and the delete isn't removed before both are done. The order matters only
//     for unreadable chunks, which the model doesn't have (roller.keepUnread5m).
var readerRules = []withoutRule{
	{followBeforeDelete, "a delete reads the writes of other processes before it seals"},      // 18
	{deleteOnlyReadRows, "a seal deletes only the staged rows that it read"},                  // 7
	{deleteStagedLast, "staged rows are deleted after the commit records"},                    // 2
	{subtractOnlyVisible, "a seal subtracts only stored samples that aren't deleted"},         // 7
	{closeBeforeListing, "generations are closed before the stage is listed to release them"}, // 1046
	{readHeadFirst, "a query reads the head before the rows"},                                 // 4970
	{headExcludesRollups, "rollups answer only where the head has no samples"},                // 7
	{fillRaisesVersion, "a filled rollup has a higher version"},                               // 175
	{writeEmptyRollups, "a rollup of deleted samples is replaced by an empty one"},            // 2
	{keepEmptyChunks, "a cleaned chunk stays when it is empty"},                               // 50
	{coarsestMarksFirst, "a trim marks the coarsest rollups first"},                           // 1301
	{removeDeletesLast, "deletes are removed last"},                                           // 28
	{ownMarkPerImport, "an import has commit records of its own"},                             // 114
	{coarseMarksLast, "commit records of an import's rollups follow the rollups"},             // 66
	{applyAfterSealing, "a delete counts as applied to the head after its slots were sealed"}, // 2455
}

// importMark is the number of the commit record that all imports share when rule ownMarkPerImport is removed.
const importMark = 1

// stagedIn returns the keys of the staged rows of a slot.
func (s *store) stagedIn(slot int) (keys []stageKey) {
	s.stage.each(func(key stageKey, _ blob) {
		if key.slot == slot {
			keys = append(keys, key)
		}
	})
	return keys
}

// onlyAhead returns the chunks that were listed before the task wrote its chunks, and the task's chunks.
func (t *rollupTask) onlyAhead(found []rawChunk, keys []rawKey) (some []rawChunk, of []rawKey) {
	for i, key := range keys {
		if slices.Contains(t.ahead, key) || slices.Contains(t.own, key) {
			some, of = append(some, found[i]), append(of, key)
		}
	}
	return some, of
}

// merge adds the head's samples of a tenant to the answer, except samples that it already contains.
func (x *answer) merge(head content, tenant int) {
	for series := range x.counts {
		if tenantOf(series) == tenant {
			x.counts[series] += tallyOf(head[series] &^ x.counts[series].times())
		}
	}
}

// followPass is a pass of the follower: it reads staged rows, and adds them to the head in a later step.
func (p *process) followPass(a *actor) bool {
	a.lock("following", &p.following)
	a.step("read the stage to follow")
	var read []stageKey
	var blobs []blob
	p.w.store.stage.each(func(key stageKey, b blob) {
		if _, noted := p.w.store.processed.get(key); !noted && !p.followed[key] && key.writer != p.writer {
			read, blobs = append(read, key), append(blobs, b)
		}
	})
	a.step("add the rows to the head")
	for i, key := range read {
		p.followed[key] = true
		p.addToHead(key, blobs[i].samples)
	}
	p.following = nil
	return true
}

// checkRollups checks that rollups equal the stored samples. Samples of failed imports may be missing from the rollups,
// because their chunks may have been stored after another operation computed the rollups.
func (w *world) checkRollups() {
	if w.failure != "" || w.phases[raw] >= hidden || w.phases[fine] >= hidden {
		return
	}
	missable := w.judge.missable()
	for series := range seriesCount {
		certain := ^missable[series]
		day := samples(0)
		for slot := range slotCount {
			all := samples(0)
			w.store.raw.each(func(key rawKey, c rawChunk) {
				if key.series == series && key.slot == slot {
					all |= c.samples
				}
			})
			day |= all
			c, _ := w.store.rollups[fine].get(rollupKey{series, slot})
			if c.counts.keep(certain) != tallyOf(all&certain) {
				w.fail("unequal: 5m rollups of series %d, slot %d: %08x instead of %08x",
					series, slot, c.counts, tallyOf(all))
			}
		}
		c, _ := w.store.rollups[hourly].get(rollupKey{series, 0})
		if c.counts.keep(certain) != tallyOf(day&certain) {
			w.fail("unequal: 1h rollups of series %d: %08x instead of %08x", series, c.counts, tallyOf(day))
		}
	}
}
