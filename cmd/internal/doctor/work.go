package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cassia-db/cassia/downsample"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
)

// longWait is the time after which an import that waits is reported.
const longWait = 10 * time.Minute

// failedOften is the number of consecutive failures after which work other than sealing is reported.
const failedOften = 5

// CheckWork checks the work of a running server: sealing, rollups and imports.
func CheckWork(s *downsample.Status, o StoreOptions) (found []Finding) {
	if s.Halted != "" {
		found = append(found, Finding{Error, "nothing is sealed: " + s.Halted,
			"samples stay in memory and in the staging log", "search the log for the cause"})
	}
	found = append(found, checkSeals(s, o)...)
	found = append(found, checkFailingTasks(s, o)...)
	return append(found, checkImports(s, o)...)
}

// checkSeals reports the errors that prevent partitions from being sealed. Damage is reported after the first failed
// attempt. Other errors are reported once the status of the partition contains a remedy (Do), which is set after
// multiple failed attempts.
func checkSeals(s *downsample.Status, o StoreOptions) (found []Finding) {
	partitions := map[string][]string{}
	var errs []string
	for _, p := range s.Partitions {
		if p.Do == "" && (p.FailedRounds == 0 || !isDamage(p.LastError)) {
			continue
		}
		if partitions[p.LastError] == nil {
			errs = append(errs, p.LastError)
		}
		partitions[p.LastError] = append(partitions[p.LastError], fmt.Sprint(p.Partition))
	}
	for _, err := range errs {
		found = append(found, Finding{Error,
			fmt.Sprintf("sealing fails in %s (%s): %s", plural(len(partitions[err]), "partition"),
				joinNames(partitions[err]), storage.PlainText(err)),
			"the samples are stored and can be queried, but stay in memory and in the staging log, and expire there",
			remedy(err, o)})
	}
	return found
}

// checkFailingTasks reports rollups, compactions and other tasks that keep failing.
func checkFailingTasks(s *downsample.Status, o StoreOptions) (found []Finding) {
	var failing []downsample.TaskStatus
	add := func(task string, failures int, err string) {
		known := slices.ContainsFunc(failing, func(t downsample.TaskStatus) bool { return t.Task == task })
		if !known && (failures >= failedOften || failures > 0 && isDamage(err)) {
			failing = append(failing, downsample.TaskStatus{Task: task, Failures: failures, LastError: err})
		}
	}
	for _, w := range s.Rollups.First {
		add("computing rollups", w.Failures, w.LastError)
	}
	for _, w := range s.Compaction.First {
		add("compacting rollups", w.Failures, w.LastError)
	}
	for _, w := range s.Counting.First {
		add("counting series", w.Failures, w.LastError)
	}
	for _, t := range s.Tasks {
		add(t.Task, t.Failures, t.LastError)
	}
	for i, t := range failing {
		if i == maxListed {
			return append(found, Finding{Warning, fmt.Sprintf("%d more tasks fail", len(failing)-maxListed), "",
				"see /-/downsample"})
		}
		level := Warning
		if isDamage(t.LastError) {
			level = Error
		}
		found = append(found, Finding{level,
			fmt.Sprintf("%s fails, %s so far: %s", t.Task, plural(t.Failures, "time"),
				storage.PlainText(t.LastError)),
			"the server tries again; until the cause is fixed, this work isn't done", remedy(t.LastError, o)})
	}
	return found
}

// checkImports reports imports that have waited long for other work.
func checkImports(s *downsample.Status, o StoreOptions) (found []Finding) {
	for _, i := range s.Imports {
		if waits := o.Now.Sub(i.WaitsSince); i.WaitsFor != "" && waits > longWait {
			found = append(found, Finding{Warning,
				fmt.Sprintf("an import for tenant %q has waited %s for %s", i.Tenant, formatApprox(waits), i.WaitsFor),
				"its sender gets no response until the import has run, and may give up",
				"see /-/downsample for the work in progress; if it fails, fix its cause; otherwise send imports one " +
					"after another, or in larger requests"})
		}
	}
	return found
}

// isDamage reports whether stored data is damaged according to an error's text.
func isDamage(err string) bool { return strings.Contains(err, engine.ErrCorrupt.Error()) }

// remedy returns what to do about an error of work that keeps failing.
func remedy(err string, o StoreOptions) string {
	switch {
	case isDamage(err) && o.Shared:
		return "nodetool repair -full " + o.Keyspace + "   # if another node has an undamaged copy\ncassia check " +
			o.Flags + "   # lists all damage"
	case isDamage(err):
		return repairCommands(o)
	}
	return "fix the cause that the error names; the usual causes are a full or failing disk, and a cluster that " +
		"doesn't respond"
}

// repairCommands returns the commands that list damage in a directory and repair it.
func repairCommands(o StoreOptions) string {
	return "cassia check " + o.Flags +
		"   # lists the affected metrics and times; stop the server first\ncassia restore --damaged --from=BACKUPS " +
		o.Flags + "   # repairs from a backup; stop the server first\ncheck the disk itself: smartctl -a, dmesg"
}
