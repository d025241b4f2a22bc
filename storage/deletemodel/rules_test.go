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
	releaseRowsOfOthers
	ruleCount
)
