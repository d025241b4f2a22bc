package tidy

import ()

// unseenErrors contains the errors whose text users don't see. The keys are the reasons.
var unseenErrors = map[string][]string{
	"it only leads from one part of the program to another, which catches it": {
		"adapter.ErrDropped", "blocks.errEnough", "fetch.errEnough", "kairosdb.errEnough", "lines.errEnough",
		"victoria.errEnough", "objects.ErrNotFound", "inspect.errEnough", "paged.errEnough", "head.ErrUndefined",
		"retention.errBoundariesChanged", "query.errDamagedList", "storage.errNoQueries",
		"promql.errNeedsEvaluator", "promql.errRollupName", "promql.errLateNames", "promql.errSameLabels",
		"promql.errGaps", "ruler.errMustWait",
		"promql.errPanicked", "promql.errHasHistograms", "query.errIndexCheaper", "query.errSpansUnhelpful",
		"counts.ErrStateChanged", "counts.errNoCounts", "storage.errUnread", "query.errFull", "meter.ErrNoTurn",
		"format.ErrCountsMismatch",
	},
	"it says what of a row can't be read, behind \"skipped the corrupt\" or \"stored bytes are damaged\", which have their lines": {
		"chunk.ErrCorrupt", "page.errCorrupt", "rollup.ErrCorrupt", "format.ErrMalformedBlob", "head.errBadTail",
		"format.ErrMalformedLabels", "format.ErrMalformedExemplar", "ha.errMalformedElection",
		"format.errMalformedTombstone", "format.errMalformedMetadata", "format.ErrMalformedHeld",
		"head.ErrDependsOnCorrupt", "query.errOtherSeries",
		"format.ErrMalformedShards", "format.errMalformedCounts", "pebble.errBadKey", "pebble.errLedger",
		"pebble.ledgerProblem", "kairosdb.ErrCorrupt", "objects.errDecrypt",
	},
	"it stands before or around another error, whose line it is": {
		"pebble.ErrLockHeld",
		"adapter.RejectedError", "fetch.BusyError", "fetch.StatusError", "lines.lineError", "overhttp.serverError",
		"pebble.firstLine", "promql.apiError", "storage.plainError", "main.oneLineError", "kairosdb.DamageError",
		"badblocks.errorInFile", "jsonapi.ErrBusy", "resolution.ErrRawExpired", "pebble.errReadOnlyFS",
	},
	"it says of a flag or a request, together with its name, what it must be": {
		"config.errMatchesAll", "metadata.errSource", "s3.errSecret", "jsonapi.problem", "ui.badRequest",
		"main.errInterrupted",
	},
	"only a mistake in the program leads to it": {
		"storage.errBucketWidth",
		"adapter.errNotAppended", "jsonapi.errOptions", "remotewrite.errOptions", "otlp.errOptions", "engine.ErrBadKey",
		"engine.ErrBadWrite", "manual.errNoWebP", "ruler.errNoEvaluation", "cache.ErrLoadPanicked",
	},
	"what meets it makes rollups only, or leaves the rows out, and logs or counts that": {
		"engine.ErrExpired", "retention.ErrWindowOver",
	},
}

// saidOf contains, for errors whose text is composed at run time or is too short for a search, the text that is looked
// up in the troubleshooting page instead.
var saidOf = map[string]string{
	"auth.ErrUnknown":                  "not authenticated",
	"bench.errAckLog":                  "`invalid ack log`",
	"bench.errWorkload":                "`invalid workload`",
	"cli.UnknownTopic":                 "unknown command or topic",
	"downsample.errGaveUp":             "gave up after repeated failures",
	"engine.ErrClosed":                 "503 `closed`",
	"engine.ErrLocked":                 "in use by another process. Stop that process, or take a backup with cassia backup, which works while the server runs, and examine the backup", // Every command replaces the text by this one.
	"engine.ErrTooLarge":               "500 `too large`",
	"engine.ErrUnavailable":            "503 `unavailable`",
	"ha.NameError":                     "## Reasons for rejected samples",
	"retention.HoleError":              "have expired: they were written before the retention was raised",
	"jsonapi.ErrForbidden":             "403 `forbidden`",
	"jsonapi.ErrUnprocessable":         "422 `too much`",
	"badblocks.KnownBlockError":        "stored data is damaged", // the engine's prefix
	"damagedblock.BlockError":          "stored data is damaged",
	"pebble.damagedPart":               "is damaged: rows from",
	"lasting.Error":                    "certificate signed by unknown authority",
	"main.errDamaged":                  "the samples read back differ from the acknowledged samples",
	"main.errNoAnswer":                 "no response for",
	"main.inUseError":                  "in use by another process. Stop that process, or take a backup with cassia backup, which works while the server runs, and examine the backup",
	"main.oldSamplesError":             "of days (UTC) that ended more than 7 days earlier, only rollups are stored",
	"pebble.BackupVersionError":        "this release supports version",
	"pebble.MultipleStoresError":       "stores; choose one with --backup",
	"pebble.RetentionError":            "the backup is complete, but removing older backups failed",
	"pebble.fatalError":                "`CassiaStoreFailed`",
	"relabeling.errBadRules":           "`invalid rules`",
	"ruler.ErrAlertmanager":            "must be a URL such as http://alertmanager:9093",
	"ruler.errRuleFile":                "`rule file`",
	"resolution.MissingError":          "raw samples before",
	"s3.errNoCredentials":              "no credentials found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE with ~/.aws/credentials (",
	"server.ErrForbidden":              "403 `forbidden`",
	"server.errTenant":                 "400 `tenant`",
	"damage.CorruptRowError":           "skipped the corrupt",
	"damage.DamagedRowsError":          "skipped unreadable data of",
	"storage.InvalidExemplarError":     "invalid exemplar",
	"storage.InvalidHistogramError":    "invalid native histogram",
	"storage.LabelError":               "## Reasons for rejected samples",
	"tenant.errBadLimits":              "`invalid limits`",
	"tenant.ErrInvalid":                "`invalid name`",
	"lines.errLongLine":                "MiB; max_rows_per_line=10000 makes VictoriaMetrics write shorter lines",
	"remotewrite.errHistogramTooLarge": "bytes in one histogram",
	"remotewrite.errTooManyLabels":     "`too_many_labels`",
	"storage.ErrTooManyDeletes":        "deletes are waiting to be cleaned, which is the maximum; clean tombstones first",
	"tenant.LimitError":                "limit … `of tenant`",
	"storage.explainedError":           "503 `nothing was deleted`",
}

// unseenReasons returns the reasons in unseenErrors by the names of the errors.
func unseenReasons() map[string]string {
	out := map[string]string{}
	for reason, names := range unseenErrors {
		for _, name := range names {
			out[name] = reason
		}
	}
	return out
}
