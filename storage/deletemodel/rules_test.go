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
)

// rulesOfToday are the rules that drawn histories need. Written histories need others; design/numbered-deletes.md lists those that none needs yet.
var rulesOfToday = []withoutRule{
	{sealBeforeDelete, "a delete seals the staged samples of its series first"},
	{announceFirst, "a delete is announced before it is in force"},
	{removeWithLastTimestamp, "a delete is removed with the timestamp that it was written with last"},
	{gatherFromStage, "a seal reads the stage where a delete applies to its memory"},
	{skipProcessedRows, "stage rows that were processed are neither read nor sealed"},
	{sealWhenMeetingDeletes, "a query that meets a delete seals what the head has of its series"},
	{nameDeletes, "a chunk names the deletes that it is exempt from"},
	{nameDeletesOfStored, "a chunk names the deletes that stored chunks of its slot name"},
	{hashCoversDeletes, "the key of a chunk covers the deletes that it names"},
	{subtractStored, "a seal subtracts the samples of stored chunks"},
	{deletesRest, "a delete stays for two days"},
	{cleanedChunksNameDeletes, "a cleaned chunk names the deletes that it was cleaned of"},
	{cleanedChunksWin, "a cleaned chunk has a later timestamp"},
	{countDeletesInVersions, "the version of a rollup counts deletes"},
	{highestVersionWins, "the highest version of a rollup wins"},
	{ownChunksOnly, "rollups are made of all chunks of the slot"},
	{readDeletesAfterChunks, "deletes are read after the chunks are durable"},
	{rollBeforeMarks, "a mark of a delete follows its rollups"},
	{extendOnlyAround, "a bucket only takes samples that are older or newer than its own"},
	{trimOnlyWithoutFiner, "buckets are trimmed only where nothing finer is stored"},
	{trimBeforeFilling, "deletes are applied to rollups before samples come there"},
	{trimRaisesVersion, "a trimmed rollup has a higher version"},
	{failWhenWindowExpires, "a seal fails whose window expires meanwhile"},
}
