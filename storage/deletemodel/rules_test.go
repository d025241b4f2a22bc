package deletemodel

// rule is a rule of the protocol that can be removed for a history.
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
	rememberFailedDeletes
	removeFailedDeletes
	rereadMixedGenerations
	rereadBesideNoSeal
	useNewIDs
	trimForStanding
	listBetweenDeletes
	markSamplesFirst
	countWaitFromRead
)

// rulesOfToday contains the rules of the current protocol that random histories need. The number behind each rule is
// the number of histories, with seeds from 0, until one failed without it. Scripted histories need other rules.
// design/numbered-deletes.md lists the rules that no history needs yet.
var rulesOfToday = []withoutRule{
	{sealBeforeDelete, "a delete seals the staged samples of its series first"},                       // 7
	{announceFirst, "a delete is announced before it is in force"},                                    // 35
	{removeWithLastTimestamp, "a delete is removed with the timestamp that it was written with last"}, // 1
	{gatherFromStage, "a seal reads the stage where a delete applies to its memory"},                  // 38
	{skipProcessedRows, "stage rows that were processed are neither read nor sealed"},                 // 123
	{sealWhenMeetingDeletes, "a query that meets a delete seals what the head has of its series"},     // 38
	{nameDeletes, "a chunk names the deletes that it is exempt from"},                                 // 7
	{nameDeletesOfStored, "a chunk names the deletes that stored chunks of its slot name"},            // 464
	{hashCoversDeletes, "the key of a chunk covers the deletes that it names"},                        // 50
	{subtractStored, "a seal subtracts the samples of stored chunks"},                                 // 208
	{deletesRest, "a delete stays for two days"},                                                      // 1279
	{cleanedChunksNameDeletes, "a cleaned chunk names the deletes that it was cleaned of"},            // 110
	{cleanedChunksWin, "a cleaned chunk has a later timestamp"},                                       // 110
	{countDeletesInVersions, "the version of a rollup counts deletes"},                                // 10
	{highestVersionWins, "the highest version of a rollup wins"},                                      // 48
	{ownChunksOnly, "rollups are made of all chunks of the slot"},                                     // 1
	{readDeletesAfterChunks, "deletes are read after the chunks are durable"},                         // 8
	{rollBeforeMarks, "a mark of a delete follows its rollups"},                                       // 2
	{extendOnlyAround, "a bucket only takes samples that are older or newer than its own"},            // 44
	{trimOnlyWithoutFiner, "buckets are trimmed only where nothing finer is stored"},                  // 86
	{trimBeforeFilling, "deletes are applied to rollups before samples come there"},                   // 63
	{trimRaisesVersion, "a trimmed rollup has a higher version"},                                      // 122
	{failWhenWindowExpires, "a seal fails whose window expires meanwhile"},                            // 116
}
