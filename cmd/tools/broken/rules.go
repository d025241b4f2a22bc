package main

// rule is an invariant of the storage code, with a change that breaks it.
type rule struct {
	name string
	// file is the file with the code of the rule. To break the rule, from, which occurs once in the file, is replaced
	// with to.
	file, from, to string
	// tests is a regular expression that matches the full names of the tests that must detect the change.
	tests string
}

const histories = "TestProtocolRegressions|TestWaysOut|TestProtocol"

// rules covers the code that hides, drops, deletes, cleans, expires, imports and returns samples, including code in
// adapters.
var rules = []rule{
	{
		"a delete asks whether the clock is believed", "storage/deletes.go",
		"	if err := s.clock.MayRemove(); err != nil {\n		return fmt.Errorf(\"storage: nothing was deleted: %w\", err)\n	}\n	if err := s.Ready()", "	if err := s.Ready()",
		histories + "|TestClock.*|TestWrongClock.*",
	},
	{
		"what expires asks whether the clock is believed", "storage/expire.go",
		"	if err := s.clock.MayRemove(); err != nil {\n		return 0, err\n	}\n	tenants", "	tenants", histories + "|TestClock.*|TestWrongClock.*",
	},
	{
		"slots are unlisted by a believed clock only", "storage/waiting.go",
		"	if err := s.clock.MayRemove(); err != nil || !s.opts.Shared {\n		return err\n	}\n	units, err := s.listed.readUnits(ctx, partition)", "	if !s.opts.Shared {\n		return nil\n	}\n	units, err := s.listed.readUnits(ctx, partition)", histories + "|TestClock.*|TestWrongClock.*",
	},
	{
		"what comes back is swept by a believed clock only", "storage/waiting.go",
		"	if err := s.clock.MayRemove(); err != nil {\n		return 0, err\n	}\n	work", "	work", histories + "|TestClock.*|TestWrongClock.*",
	},
	{
		"a doubted clock has to run evenly", "storage/membership/clock.go",
		"func (d *doubt) trustDelay() time.Duration { return max(minDoubt,",
		"func (d *doubt) trustDelay() time.Duration { return min(time.Minute,",
		histories + "|TestClock.*",
	},
	{
		"samples are rejected only if both clocks reject them", "storage/batch.go",
		"	earlier, now := s.clock.Bounds()\n", "	earlier, now := s.clock.Times()\n", "TestClock.*",
	},
	{
		"the cluster's clock is read again before a sample is rejected as ahead", "storage/batch.go",
		"	wait, err := b.s.clock.ConfirmAhead()\n", "	wait, err := time.Duration(0), error(nil)\n", "TestClock.*",
	},
	{
		"samples ahead of the only clock are retried first", "storage/membership/clock_intake.go",
		"	if wait = c.o.AheadPatience - (c.seen - a.since); wait > 0 {", "	if wait = 0; wait > 0 {", "TestSlowClock.*",
	},
	{
		"answers show what is accepted by the later clock", "storage/retention/hidden.go",
		"	now, later = k.env.Clock.Bounds()\n", "	now, later = k.env.Clock.Times()\n", "TestClock.*|TestSlowClock.*|TestWaysOut",
	},
	{
		"spans of pages leave rows as they are", "storage/paged/spans.go",
		"	return s.yieldPlain(from, to)\n", "	return nil\n", "TestSpans.*",
	},
	{
		"all chunks of a series count for its spans", "storage/query/chunk_spans.go",
		"c.list[i].at == position && !meets; i++ {", "c.list[i].at == position && i == c.next; i++ {", "TestSpans.*",
	},
	{
		"spans are those of one index", "storage/query/chunk_spans.go",
		"r.env.Cache.Get(ctx, key, m.serial, func", "r.env.Cache.Get(ctx, key, 1, func", "TestSpans.*",
	},
	{
		"a query shows samples that are ahead of a clock that was set back", "storage/query/request.go",
		"maxT: min(query.MaxT, format.MaxTime),", "maxT: min(query.MaxT, shown.Later.Add(q.env.MaxAhead).UnixMilli(), format.MaxTime),", "TestPauses",
	},
	{
		"late samples are listed", "storage/commit.go",
		"		old = append(old, g.SlotPartition())\n", "		_ = old\n", "TestStagedListAtEachStep|TestSharedProtocol|TestFollow.*|TestLate.*",
	},
	{
		"units of staged slots are listed", "storage/staged_list.go",
		"	return l.listMissing(ctx, slices.Collect(maps.Keys(units)))", "	return nil", "TestStagedListAtEachStep",
	},
	{
		"a closing row doesn't list for writers", "storage/staged_list.go",
		"func(r listedRow) bool { return !r.isClosing }", "func(r listedRow) bool { return true }", "TestStagedListAtEachStep",
	},
	{
		"a listed slot is closed before it is found empty", "storage/destroy.go",
		"Clustering: format.StagedKey(n, r.generation, format.StagedClosing), Timestamp", "Clustering: format.StagedKey(n, newID(), format.StagedClosing), Timestamp",
		"TestStagedListAtEachStep",
	},
	{
		"a slot stays listed for two days", "storage/waiting.go",
		"s.period.SlotEnd(slot) > format.YoungMS", "s.period.SlotEnd(slot) > 0", "TestYoungSlotsAreListedOnce",
	},
	{
		"hidden for a week before it is dropped", "storage/retention/boundary.go",
		"if seenMS-s.SeenMS >= Grace.Milliseconds() {\n			to = max", "if seenMS-s.SeenMS >= 0 {\n			to = max", histories,
	},
	{
		"rows that a fast clock has hidden are shown by a right one", "storage/retention/hidden.go",
		"	return min(h.HiddenMS, max(h.LackingMS, k.target(", "	return max(h.HiddenMS, min(h.LackingMS, k.target(", "TestAcceptedAfterAClockAheadIsShown",
	},
	{
		"buckets include unsealed samples of hidden slots", "storage/query/select.go",
		"			r.showUnexpired(sel.open)\n", "", "TestUnsealedSamplesPassTheRetention",
	},
	{
		"a new store records its observed uptime at once", "storage/membership/clock_row.go",
		"	if c.alone && !stored && !c.o.ReadOnly {", "	if false {", "TestShortRunsSeeNoMoreThanTheyRan",
	},
	{
		"samples of a time that a fast clock has dropped are retried", "storage/batch.go",
		"	return fmt.Errorf(\"%w, up to %s\", ErrDroppedAhead, until)\n", "	return ErrTooOld\n", "TestDroppedByAClockAhead",
	},
	{
		"a clock that was set back rejects no samples of the measured time", "storage/membership/clock_intake.go",
		"slowBy: max(0, -off), back: max(0, -off)}", "}", "TestClockThatWasSetBack",
	},
	{
		"an import marks raw rows before it writes them", "storage/import_day.go",
		"	if err := d.s.writeCommitRecords(d.ctx, d.tenant.Name(), d.finest, format.CommitImport, begun); err != nil {\n		return err\n	}\n", "", histories + "|TestImportThatFailsAnywhere",
	},
	{
		"a repeated import makes rollups anew of what is there", "storage/sealer.go",
		"	x.tasks = append(x.tasks, r)\n	return nil\n", "	if !known {\n		x.tasks = append(x.tasks, r)\n	}\n	return nil\n", histories + "|TestImportThatFailsAnywhere",
	},
	{
		"a chunk names the deletes that it is exempt from", "storage/sealer.go",
		"	s, known := c.series, false\n	named := x.deletesOf(c.series).IDs()", "	s, known := c.series, false\n	var named format.TombstoneIDs", histories,
	},
	{
		"a cleaned chunk names the deletes that it was cleaned of", "storage/clean.go",
		"Exempt: raw.Exempt.Union(ds.IDs()), Cleaned: true", "Exempt: raw.Exempt, Cleaned: true", histories + "|Test.*Clean.*",
	},
	{
		"a delete seals what is staged", "storage/deletes.go",
		"	for _, at := range found {", "	for _, at := range found[:0] {", histories + "|Test.*Delete.*",
	},
	{
		"a delete doesn't take what a canceled match has found for all", "storage/head/read.go",
		"SlotPartition.Compare), ctx.Err()", "SlotPartition.Compare), nil", "TestReadsEndAmongSlowMatches",
	},
	{
		"a delete reaches buckets ahead of a clock that is behind", "storage/deletes.go",
		"			newest = max(newest, s.period.SlotEnd(row.Clustering[0].Int))\n", "			_ = row\n", histories,
	},
	{
		"a delete reaches buckets of a class whose samples are gone", "storage/roll_series.go",
		"	if x.s.retention.DropsTogether() {", "	if true {", "TestDeleteOf.*",
	},
	{
		"a delete reaches buckets of slots without samples", "storage/clean_trim.go",
		"		if listed {\n			var err error", "		if false {\n			var err error", "TestDeleteOf.*",
	},
	{
		"a trimmed rollup has a higher version", "storage/roll_make.go",
		"	r.chunk, r.version = nil, version+1", "	r.chunk, r.version = nil, version", histories + "|TestDeleteOf.*|Test.*Class.*",
	},
	{
		"samples are hidden when their rollups are there", "storage/roll_hidden.go",
		"	return x.RollUntil(ctx, tenant, from, next)\n", "	return next, nil\n", "TestHiddenWhenRollupsKnow|TestHiddenOnlyWithRollups",
	},
	{
		"no raw samples are hidden before their rollups are there", "storage/retention/hidden.go",
		"	if h.NextRolled || res != rollup.Raw {", "	if true {", "TestHiddenOnlyWithRollups",
	},
	{
		"rollups that could not be made are made by the next pass", "storage/roll_hidden.go",
		"		if h.NextRolled && hides == h.HiddenMS {", "		if hides == h.HiddenMS {", "TestHiddenOnlyWithRollups",
	},
	{
		"samples go when their rollups are there", "storage/roll_hidden.go",
		"	if x.rolled[at] {", "	if true {", histories + "|TestWhatGoesHasItsRollups",
	},
	{
		"late samples only fill up rollups where raw rows are lacking", "storage/retention/placement.go",
		"	case !withoutRaw:\n", "	case !withoutRaw || true:\n", "TestLateSamplesDontOverwriteHistory|TestRollupsOnly.*",
	},
	{
		"one process at a time changes rollups without samples", "storage/membership/turn.go",
		"	if t.m.IsAlone() {", "	if true {", "TestImportsOfTwoProcessesIntoOneSlot",
	},
	{
		"a seal that waited for its turn looks at the deletes once more", "storage/seal_pass.go",
		"if err := t.sameDeletesNow(t.roller.tenant); err != nil { // Another process", "if err := error(nil); err != nil { // Another process", "TestDeletedWhileASealWaitsForItsTurn",
	},
	{
		"late samples that were written only fill up, too", "storage/retention/placement.go",
		"	case !k.MayBeMissing(rollup.Raw, slot, tenant, class):\n", "	case slot == slot || class < 0:\n", histories + "|TestSealedTooLate",
	},
	{
		"a window is listed when its mark is written", "storage/listing.go",
		"	if until, ok := s.windows.Get(at); ok && until > now {", "	if now > 0 {", "TestListingRaces",
	},
	{
		"a delete reaches the windows of samples ahead of a clock that is behind", "storage/deletes.go",
		"		newest = max(newest, s.period.WindowEnd(w))\n", "		_ = w\n", "TestDeleteOfAnImportAheadThatFailed",
	},
	{
		"rollups that don't know all that was sealed don't answer", "storage/query/windows.go",
		"ok && sum != w.sums[i] {", "ok && sum != w.sums[i] && false {", "TestImportThatFailsAnywhere",
	},
	{
		"what deletes are about is taken out before rollups come without samples", "storage/import_day.go",
		"		if err := d.trimDeleted(list, cells); err != nil {\n			return err\n		}\n", "", histories,
	},
	{
		"what deletes are about is taken out before a seal comes without samples", "storage/seal_pass.go",
		"		slots[slot] = true\n", "		slots[slot] = false\n		delete(slots, slot)\n", "TestRollupsOnlyAfterADelete",
	},
	{
		"buckets of an hour go with a delete where others have finer ones", "storage/clean_trim.go",
		"	if t.res == rollup.FiveMinutes && !t.s.retention.DropsTogether() {", "	if false {", "TestDeleteOf.*|TestDeleteAfter.*|TestClassesModel",
	},
	{
		"buckets of an hour that are kept lose what is deleted", "storage/clean_trim.go",
		"	x.due, x.unread = due, t.unread", "	x.due, x.unread = map[int64]format.Tombstones{}, t.unread", "TestClassesModel",
	},
	{
		"what is sealed into a hidden window is shown beside a delete", "storage/roll_hidden.go",
		"		if err := x.rollMissing(ctx, tenant, class, missing, from, ds); err", "		if err := error(nil); err", "TestHiddenWindowsAreRolledUpOnce",
	},
	{
		"an import applies deletes while its raw rows exist", "storage/import_day.go",
		"	if d.onlyExtendsRollups() || len(d.matchingDeletes(list)) == 0 {", "	if true {", "TestProtocolRegressions|TestRawRowsExpireDuringAnImport",
	},
	{
		"an import whose raw rows expired before deletes were applied fails", "storage/import_day.go",
		"		return errRawExpired\n", "		return nil\n", "TestRawRowsExpireDuringAnImport",
	},
	{
		"an import moves no horizon over older samples that wait", "storage/retention/placement.go",
		" || k.env.Holds(k.env.Period.SlotOf(shown), slot) {", " {", histories + "|TestImport.*",
	},
	{
		"the marks of a pass are written after all of its rows", "storage/seal_pass.go",
		"	if err := t.seal(); err != nil {\n		return err\n	}\n	for w, samples := range before {\n		if t.late[w.slotPartition()] && w.stats.Samples > samples {\n			w.stats.Repaired++\n		}\n	}\n	return t.writeCommitRecords()",
		"	if err := t.writeCommitRecords(); err != nil {\n		return err\n	}\n	return t.seal()", "TestPassBreaksOffAnywhere|TestConcurrent|TestSharedConcurrent",
	},
	{
		"a pass makes buckets of an hour when all slots' finer ones are durable", "storage/roller.go",
		"	if err := x.write(); err != nil {\n		return err\n	}\n	return x.makeAll1h()", "	return x.makeAll1h()", histories,
	},
	{
		"rollups of a pass know of chunks that others wrote", "storage/chunk_list.go",
		"listedChunks{append(found[key].versions, strings.Clone(row.Clustering[3].Text)), ", "listedChunks{[]string{strings.Clone(row.Clustering[3].Text)}, ", "TestRollupsOfLateSamplesBesideOthers",
	},
	{
		"rollups keep what was made of samples that can't be read", "storage/roll_make.go",
		"r.unread = corrupt != nil || sealed[at].unread || x.listedChunksOf(in, r).unread",
		"r.unread = sealed[at].unread || x.listedChunksOf(in, r).unread", "TestLateSamplesBesideAnUnreadableChunk",
	},
	{
		"rollups made anew for a delete heed chunks that came meanwhile", "storage/roll_make.go",
		"err != nil || r.chunk == nil || !nothing {", "err == nil || !nothing {", "TestSealBesideRollupsOfADelete",
	},
	{
		"buckets of an hour keep what was made of finer ones that can't be read", "storage/roll_missing.go",
		"if !r.unread && !x.mayBeMissing(rollup.FiveMinutes, r.class) {",
		"if !x.mayBeMissing(rollup.FiveMinutes, r.class) {", "TestLateSamplesBesideAnUnreadableChunk",
	},
	{
		"a delete stays that is about samples which can't be read", "storage/clean.go",
		"all.Filter(func(d *format.Tombstone) bool { return unread[d.ID] == nil })",
		"all", "TestDeletesBesideAnUnreadableChunk",
	},
	{
		"a compaction leaves series alone of which a chunk can't be read", "storage/paged/compact.go",
		"	if x.isBroken() {\n		x.leave()", "	if x.isBroken() && false {\n		x.leave()", "TestCompactionBesideAnUnreadableChunk|TestLateSamplesBesideADamagedLongChunk",
	},
	{
		"a pass that failed deletes nothing of the stage", "storage/seal_pass.go",
		"	if err := p.seal(); err != nil {\n		return err\n	}\n	err := p.deleteStaged()", "	_ = p.seal()\n	err := p.deleteStaged()", histories,
	},
	{
		"an expiry is the longest that the boundary keeps", "storage/retention/expiry.go",
		"		keptMS = h.longestRetention(keptMS, k.env.Clock.StoredUptimeMS())\n", "		_ = h\n", "TestMistypedAtTheTurnOfAWindow|TestRetentionLoweredForADay",
	},
	{
		"a boundary keeps the retention before a lowered one for a week", "storage/retention/boundary.go",
		"seenMS-h.SinceMS < Grace.Milliseconds()", "seenMS-h.SinceMS < 0", "TestMistypedAtTheTurnOfAWindow",
	},
	{
		"boundaries are there before the first expiry is fixed", "storage/retention/expiry.go",
		"t, err := k.completeBoundaries(ctx, at.tenant)",
		"t, err := k.Boundaries(ctx, at.tenant)", "TestRetentionLoweredForADay",
	},
	{
		"an expiry isn't shorter than its floor", "storage/retention/expiry.go",
		"max(keptMS+Grace.Milliseconds(), expiryFloors[res].Milliseconds())", "keptMS+Grace.Milliseconds()", "TestMistypedAtTheTurnOfAWindow",
	},
	{
		"rows of a class expire at the latest with those that classes share", "storage/retention/expiry.go",
		"expires := earlierExpiry(own.Expires, shared.Expires)",
		"expires := own.Expires + 0*shared.Expires", "TestExpiryOfANewClass",
	},
	{
		"a window takes no rows in the last day before its expiry", "storage/retention/expiry.go",
		"	if err == nil && k.isPast(expires) {", "	if err == nil && false {", "TestRaisedThenImported",
	},
	{
		"samples are stored in the class of their day", "storage/retention/expiry.go",
		"	row, ok, err := k.fixedExpiry(ctx, at)\n	if ok || err != nil {\n		return row, err",
		"	row, ok, err := k.fixedExpiry(ctx, at)\n	if ok && row.Classes != \"\" {\n		row.Classes = k.listFor(at.window)\n	}\n	if ok || err != nil {\n		return row, err",
		"TestClassOfASeriesChanges|TestClassesModel",
	},
	{
		"late samples are accepted by the class of their day", "storage/retention/hidden.go",
		"o.days.ListAt(ctx, t)", "o.days.ListAt(ctx, o.k.env.Now().UnixMilli())", "TestLateSamplesGoByTheirDay",
	},
	{
		"unsealed samples are shown by the class of their day", "storage/query/unsealed.go",
		"r.days.ListAt(ctx, first)", "r.days.ListAt(ctx, max(first, format.MaxTime/2))", "TestLateSamplesGoByTheirDay",
	},
	{
		"a list of classes is in force when all processes have read it", "storage/retention/lists.go",
		"now.Add(classLead)", "now.Add(-classLead)", "TestClassesOfASharedStoreBeginLater",
	},
	{
		"processes go by the store's list of classes", "storage/retention/lists.go",
		"	for _, l := range h.Lists {\n		if l.FromMS > t {",
		"	for _, l := range h.Lists {\n		if l.FromMS > t && false {",
		"TestClassesOfASharedStoreBeginLater|TestClassesOfTwoFiles",
	},
	{
		"an import that stores nothing fixes no list of classes", "storage/retention/lists.go",
		"	if !takesAny {", "	if false {", "TestImportRefusedFixesNoClasses",
	},
	{
		"rows of a class expire before those that classes share", "storage/retention/expiry.go",
		"	return earlierExpiry(last, shared.Expires)\n",
		"	return cmp.Or(shared.Expires, last)\n", "TestProtocolRegressions",
	},
	{
		"a delete of samples that are about to be hidden is applied to rollups at once", "storage/retention/hidden.go",
		"now.Add(hidesSoonMargin)", "now.Add(-hidesSoonMargin)", "TestDeleteBeforeRawIsHidden",
	},
	{
		"unsealed samples that the retention hides are shown in buckets", "storage/retention/hidden.go",
		"max(k.expiredRaw(b, class, h.At[rollup.Raw]), holes[rollup.Raw])", "max(h.At[rollup.Raw], holes[rollup.Raw])", "TestUnsealedSamplesPassTheRetention",
	},
	{
		"rows that count as expired aren't rolled up", "storage/retention/expiry.go",
		"		if !k.hasExpired(b, tenant, class, window) {", "		if true || !k.hasExpired(b, tenant, class, window) {", "TestProtocolRegressions",
	},
	{
		"expiries are fixed ahead for tenants that were written to", "storage/retention/expiry.go",
		"next == window || !k.env.Written(tenant, window) {", "next == window {", "TestExpiriesAhead",
	},
	{
		"short-lived rows expire by the engine's clock", "storage/commit.go",
		"c.env.engineTime().Add(", "c.env.now().Add(", "TestShortLivedRowsOfASlowClock",
	},
	{
		"a clock that isn't trusted doesn't show rows that may have expired", "storage/retention/hidden.go",
		"doubted && k.env.Expires {", "doubted && k.env.Expires && false {", "TestProtocolRegressions",
	},
	{
		"a query is told of holes", "storage/retention/holes.go",
		"f.expires == 0 || f.expires > past {", "f.expires == 0 || f.expires > past || true {", "TestRaisedThenImported",
	},
	{
		"holes of 1h rollups hide nothing else", "storage/retention/hidden.go",
		"holes[rollup.OneHour] = Never; overGaps {", "overGaps {", "TestRaisedThenImportedWithRollups",
	},
	{
		"a query is told of holes of 1h rollups", "storage/retention/holes.go",
		"g.res == rollup.OneHour && classes", "false && classes", "TestRaisedThenImportedWithRollups",
	},
	{
		"an import restores no window that has rollups", "storage/retention/placement.go",
		"err != nil || rolled {\n			return nil, err\n		}\n		next := before", "err != nil || false && rolled {\n			return nil, err\n		}\n		next := before", "TestImportedAgainAfterRaising",
	},
	{
		"an import restores no window of rollups of which there are coarser ones", "storage/retention/placement.go",
		"	for ; res <= rollup.OneHour; res++ {\n		for window", "	for ; res <= rollup.FiveMinutes; res++ {\n		for window", "TestRaisedThenImportedBesideCoarserRollups",
	},
	{
		"names of a window are written again after it was dropped", "storage/destroy.go",
		"		defer s.forgetWindow(d.window)\n", "", "TestRestoredAfterAFastClock",
	},
	{
		"expiries that others fixed are read within an hour", "storage/retention/expiry_memory.go",
		"	if !ok || membership.Elapsed(read, now) < expiriesFresh {", "	if !ok || membership.Elapsed(read, now) >= 0 {", "TestExpiriesFixedByOthersAreRead",
	},
	{
		"an engine refuses rows that have expired", "storage/engine/memory/memory.go",
		"batches[i].Expires <= e.now().Unix() {", "batches[i].Expires <= 0 {", "TestExpiringRows",
	},
	{
		"hours that came after a delete stay when 5m rollups of others are trimmed", "storage/clean_trim.go",
		"return !marks[d.CommitKey(slot)]", "return true || !marks[d.CommitKey(slot)]", "TestHoursAfterADelete.*",
	},
	{
		"where no class has 5m rollups, deletes are applied to hours", "storage/clean_before.go",
		"		if !stand || s.retention.DropsTogether() {", "		if _ = stand; false {", "TestDeletesOfHours.*",
	},
	{
		"an import notes that 5m rollups are missing", "storage/retention/placement.go",
		"	next.ensureBoundary(class, res).recordMissing(end)\n", "	next.ensureBoundary(class, res)\n", "TestImportOfHistoryThatOnlyHoursCover",
	},
	{
		"whoever trims looks at the marks again before it writes", "storage/clean_trim.go",
		"		if marks[at] {\n			return errTrimmed", "		if marks[at] && false {\n			return errTrimmed", "TestImportWhileAnotherProcessCleans",
	},
	{
		"changes wait until a checkpoint has the list of its tables", "storage/pebble/checkpoint.go",
		"	e.changes.Lock()\n	release := sync.OnceFunc(e.changes.Unlock)\n", "	release := sync.OnceFunc(func() {})\n", "TestChangesWaitForTheListOfTables",
	},
	{
		"a checkpoint has its logs as they were when it had the list of its tables", "storage/pebble/checkpoint.go",
		"; ok && isLog(name) {", "; ok && isLog(name) && false {", "TestCheckpointIsOneMoment",
	},
	{
		"a directory with any file of a store is never opened as a new one", "storage/pebble/existing.go",
		"	x.isStore = slices.ContainsFunc(names, isEngineFile)\n", "	x.isStore = slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, \"marker.manifest\") })\n",
		"TestEachFileOfAStore|TestEvidenceOfAStore",
	},
	{
		"a format that isn't known is refused before the first write", "storage/pebble/existing.go",
		"	if err := l.checkFormat(opts); err != nil {\n", "	if err := l.checkFormat(opts); err != nil && opts == nil {\n", "TestRefusalsChangeNothing",
	},
	{
		"a directory that a start refuses for its format or content isn't repaired", "storage/pebble/repair.go",
		"	if err := checkRepair(vfs.Default, dir); err != nil {\n", "	if _, err := listUsable(vfs.Default, dir, true); err != nil {\n", "TestRefusedRepairsChangeNothing",
	},
	{
		"a repair reads each log as a start does", "storage/pebble/repair_log.go",
		"	for _, name := range unreadableLogs(logs) {\n", "	for _, name := range unreadableLogs(logs)[:0] {\n", "TestMendLogBeyondSynced",
	},
	{
		"a manifest is noted before a marker names it", "storage/pebble/vitalfs.go",
		"	if manifest != \"\" { // After", "	if false { // After", "TestPowerCut.*|TestNoPowerCutIsTakenForDamage",
	},
	{
		"a manifest before the current one proves nothing", "storage/pebble/ledger.go",
		"manifestNumber(name) < manifestNumber(l.header.Manifest)", "manifestNumber(name) > manifestNumber(name)", "TestEachFileOfAStore|TestStoreOfTwoMoments",
	},
	{
		"a store that is being made is told from one that has lost files", "storage/pebble/create.go",
		"	if !x.has(creatingName) {\n", "	if false {\n", "TestPowerCutWhileCreating",
	},
	{
		"a backup's files are listed again after its manifest was stored", "storage/pebble/objects/backup.go",
		"		if b.allThere(m.Files) {\n			b.countFiles(m)", "		if true {\n			b.countFiles(m)", "TestSuspendedInTheManifest|TestConcurrentBackups",
	},
	{
		"a backup's files are listed right before its manifest is stored", "storage/pebble/objects/backup.go",
		"		if b.allThere(m.Files) {\n			m.Damaged", "		if true {\n			m.Damaged", "TestFileRemovedWhileOthersAreCopied",
	},
	{
		"a manifest is read back", "storage/pebble/objects/backup.go",
		"	got, err := readManifest(ctx, b.bucket, all[i], b.Key)\n", "	got, err := *m, error(nil)\n", "TestWrongAnswers",
	},
	{
		"a manifest that was stored is listed", "storage/pebble/objects/backup.go",
		"		return lost(\"it isn't listed\")", "		b.manifests[object] = *m\n		return nil", "TestWrongAnswers",
	},
	{
		"a manifest that is listed and missing stops the sweep", "storage/pebble/objects/garbage.go",
		"		if missing[l.object] {", "		if false {", "TestWrongAnswers",
	},
	{
		"a manifest that isn't listed any more is requested by name", "storage/pebble/objects/garbage.go",
		"	for object := range unlisted {\n", "	for object := range map[string]bool{} {\n", "TestHiddenManifest",
	},
	{
		"the backup that uploaded an unused file is requested by name", "storage/pebble/objects/garbage.go",
		"if !ok || !old || verified[backup] {", "if true || !ok || !old || verified[backup] {", "TestWrongAnswers",
	},
	{
		"what a damaged list of garbage may name isn't used", "storage/pebble/objects/backup.go",
		"condemned[name] || !newest.IsZero() &&", "condemned[name] || false &&", "TestDamagedLists|TestWrongAnswers|TestConcurrentBackups",
	},
	{
		"a backup with missing files doesn't count", "storage/pebble/objects/garbage.go",
		"if missing := b.missingFile(l); missing != \"\" {", "if missing := b.missingFile(l); false {", "TestBackupsWithMissingFiles",
	},
}
