package deletemodel

// rule is a rule of the protocol. A history may be played without it.
type rule int

const (
	sealBeforeDelete rule = iota
	announceFirst
	putInForceInTime
	neverCancelInForce
	removeWithLastTimestamp
	gatherFromStage
	readDeletesTwice
	skipProcessedRows
	releaseAfterSleep
	releaseRowsOfOthers
	sealWhenMeetingDeletes
	nameDeletes
	nameDeletesOfStored
	hashCoversDeletes
	subtractStored
	restartSlowSeals
	deletesRest
	keepDeletesOfStaged
	ignoreClearedDeletes
	clearanceNamesStanding
	cleanedChunksNameDeletes
	cleanedChunksWin
	markStagedSlots
	countDeletesInVersions
	highestVersionWins
	ownChunksOnly
	listAgain
	readDeletesAfterChunks
	rollBeforeMarks
	rollBeforeHiding
	samplesWhereRollupsLack
	keepHours
	extendOnlyAround
	trimOnlyWithoutFiner
	trimBeforeFilling
	trimRaisesVersion
	trimEndsAtOnce
	waitForAnnounced
	checkMarksBeforeTrim
	sameDeletesBeforeFilling
	oneFillsAtATime
	markBeforeImport
	importAppliesDeletes
	failWhenWindowExpires
	newestRowFirst
	counterHoldsNewest
	floorHidesRemoved
	rankByNumber
	readSerially
)

// rulesOfToday are the rules that drawn histories must need.
var rulesOfToday = []withoutRule{
	{sealBeforeDelete, "a delete seals the staged samples of its series first"},
	{announceFirst, "a delete is announced before it is in force"},
	{putInForceInTime, "a delete that takes too long doesn't come in force"},
	{neverCancelInForce, "a delete that others may have seen in force isn't canceled"},
	{removeWithLastTimestamp, "a delete is removed with the timestamp that it was written with last"},
	{gatherFromStage, "a seal reads the stage where a delete applies to its memory"},
	{readDeletesTwice, "a seal reads the deletes before and after its samples, until both are the same"},
	{skipProcessedRows, "stage rows that were processed are neither read nor sealed"},
	{releaseAfterSleep, "a process that slept releases sealed samples first"},
	{releaseRowsOfOthers, "a seal releases generations whose rows another process sealed meanwhile"},
	{sealWhenMeetingDeletes, "a query that meets a delete seals what the head has of its series"},
	{nameDeletes, "a chunk names the deletes that it is exempt from"},
	{nameDeletesOfStored, "a chunk names the deletes that stored chunks of its slot name"},
	{hashCoversDeletes, "the key of a chunk covers the deletes that it names"},
	{subtractStored, "a seal subtracts the samples of stored chunks"},
	{restartSlowSeals, "a seal that takes more than a day starts again"},
	{deletesRest, "a delete stays for two days"},
	{keepDeletesOfStaged, "a delete stays while anything of its slots is staged"},
	{ignoreClearedDeletes, "a removed delete that comes back has no effect"},
	{clearanceNamesStanding, "the note of removed deletes names those that stand"},
	{cleanedChunksNameDeletes, "a cleaned chunk names the deletes that it was cleaned of"},
	{cleanedChunksWin, "a cleaned chunk has a later timestamp"},
	{markStagedSlots, "one process marks staged slots before it cleans"},
	{countDeletesInVersions, "the version of a rollup counts deletes"},
	{highestVersionWins, "the highest version of a rollup wins"},
	{ownChunksOnly, "rollups are made of all chunks of the slot"},
	{listAgain, "rollups without chunks are filled after chunks were listed again"},
	{readDeletesAfterChunks, "deletes are read after the chunks are durable"},
	{rollBeforeMarks, "a mark of a delete follows its rollups"},
	{rollBeforeHiding, "raw rows are hidden when rollups know of all deletes"},
	{samplesWhereRollupsLack, "samples answer where rollups lack a mark"},
	{keepHours, "hours whose 5m rollups are missing are kept"},
	{extendOnlyAround, "a bucket only takes samples that are older or newer than its own"},
	{trimOnlyWithoutFiner, "buckets are trimmed only where nothing finer is stored"},
	{trimBeforeFilling, "deletes are applied to rollups before samples come there"},
	{trimRaisesVersion, "a trimmed rollup has a higher version"},
	{trimEndsAtOnce, "hours that a delete cuts are trimmed before it returns"},
	{waitForAnnounced, "rollups without samples wait for announced deletes"},
	{checkMarksBeforeTrim, "a trim reads the marks again before it writes"},
	{sameDeletesBeforeFilling, "a seal that fills rollups reads the deletes again when it is its turn"},
	{oneFillsAtATime, "one process at a time changes rollups without samples"},
	{markBeforeImport, "an import marks raw rows before it writes them"},
	{importAppliesDeletes, "an import applies deletes while its raw rows exist"},
	{failWhenWindowExpires, "a seal fails whose window expires meanwhile"},
}

// rulesOfNumbers are the rules of numbered deletes.
var rulesOfNumbers = []withoutRule{
	{newestRowFirst, "the row of the newest delete is durable before the next takes a number"},
	{counterHoldsNewest, "the counter's row holds the newest delete whole"},
	{floorHidesRemoved, "deletes up to the floor have no effect"},
	{rankByNumber, "the rank of a rollup begins with the number of the newest delete"},
	{readSerially, "the counter is read serially"},
}
