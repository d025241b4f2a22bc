package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cassia-db/cassia/storage/inspect"
)

const (
	// settleTime is the default grace period between the end of a slot and its sealing.
	settleTime = 15 * time.Minute
	// lateSlots is the max number of due slots for which sealing isn't reported as slow. A lag of at least lagError is
	// reported as an error.
	lateSlots = 2
	lagError  = 24 * time.Hour
	// maxQuiet is the max time without a heartbeat for which a process is reported as hanging. After it, the process
	// is assumed to have stopped.
	maxQuiet = 10 * time.Minute
)

// StoreOptions holds the parameters of CheckStore.
type StoreOptions struct {
	// Shared is set if multiple processes may use the store. Its rows are then in Keyspace and can be read with CQL.
	Shared   bool
	Keyspace string
	// Flags contains the flags with which commands select the store.
	Flags string
	Now   time.Time
}

// CheckStore checks the processes, the pending work, expired windows and damage.
func CheckStore(c *inspect.Condition, o StoreOptions) (found []Finding) {
	found = append(found, checkPeriods(c, o))
	found = append(found, checkCopy(c)...)
	found = append(found, checkClock(c, o)...)
	found = append(found, checkHidden(c)...)
	if !c.ClassesFrom.IsZero() {
		found = append(found, ok("changed retention classes are in force from %s",
			c.ClassesFrom.UTC().Format(time.RFC3339)))
	}
	found = append(found, checkIncreased(c)...)
	found = append(found, checkDeltas(c)...)
	if o.Shared {
		found = append(found, checkProcesses(c)...)
		found = append(found, checkLeases(c)...)
	}
	found = append(found, checkWaiting(c, o)...)
	found = append(found, checkDamagedRows(c, o)...)
	found = append(found, checkDamagedFiles(c, o)...)
	return append(found, checkExpired(c)...)
}

func checkPeriods(c *inspect.Condition, o StoreOptions) Finding {
	last := c.Periods[len(c.Periods)-1]
	text := fmt.Sprintf("the store was created on %s and has %s with sealed data; layout: %s",
		c.Created.UTC().Format(time.DateOnly), plural(c.Tenants, "tenant"), last)
	if from := time.UnixMilli(last.FromMS); len(c.Periods) > 1 && from.After(o.Now) {
		text += " from " + from.UTC().Format(time.RFC3339) + " on, " + c.Periods[len(c.Periods)-2].String() + " before"
	}
	return ok("%s", text)
}

// checkCopy reports that the store is a copy of another store.
func checkCopy(c *inspect.Condition) []Finding {
	if c.RestoredFrom == "" {
		return nil
	}
	return []Finding{{Note, "the store was restored from the backup " + c.RestoredFrom,
		"in a backup destination, this store and the original count as one, so backups of one replace backups of " +
			"the other",
		"while the original is in use, back up this store to another destination: --backup.to, --to"}}
}

// checkClock checks whether the machine's clock agrees with the observed uptime, and whether the clock of any process
// is untrusted.
func checkClock(c *inspect.Condition, o StoreOptions) (found []Finding) {
	if c.ClockDoubted && !o.Shared {
		off, way := o.Now.Sub(c.ClockSeen), "after"
		if off < 0 {
			off, way = -off, "before"
		}
		found = append(found, Finding{Warning,
			fmt.Sprintf("this machine's clock is untrusted: it is %s %s the time last recorded in the store, %s",
				formatApprox(off), way, c.ClockSeen.UTC().Format(time.RFC3339)),
			"`cassia serve` does not trust the clock, and deletes nothing, until it has run for a while",
			"check the clock; if it is right, start once with --storage.today=" + o.Now.UTC().Format(time.DateOnly)})
	}
	if !c.DroppedAhead.IsZero() {
		found = append(found, Finding{Error, fmt.Sprintf("raw samples up to %s were deleted because a clock was fast",
			c.DroppedAhead.UTC().Format(time.RFC3339)),
			"samples before that time can't be stored again and are rejected with 503; samples after it are stored",
			"restore a backup from before the deletion, or start with an empty directory; otherwise wait until " +
				"that time"})
	}
	for _, p := range c.Processes {
		if p.Alive && p.Doubted {
			found = append(found, Finding{Error, fmt.Sprintf("the clock of %s (%s) is untrusted", p.Name, p.Target),
				"the process rejects samples, and doesn't seal or delete anything; other processes do its work",
				"synchronize the clock of that machine"})
		}
	}
	return found
}

// checkProcesses checks which processes are running, and whether every role is covered.
func checkProcesses(c *inspect.Condition) (found []Finding) {
	var alive, quiet, versions []string
	does := map[string]bool{}
	for _, p := range c.Processes {
		if p.StartedMS == 0 {
			continue // Commands such as `cassia downsample` only advertise that they read.
		}
		name := fmt.Sprintf("%s (%s)", p.Name, p.Target)
		if p.Alive {
			alive, versions = append(alive, name), append(versions, p.Version)
			does[p.Target] = true
		} else if p.Quiet < maxQuiet && !p.Leaving {
			// A process that is stopped in an orderly way is marked as leaving.
			quiet = append(quiet, fmt.Sprintf("%s since %s", name, formatApprox(p.Quiet)))
		}
	}
	if len(quiet) > 0 {
		found = append(found, Finding{Note, "no heartbeat: " + joinNames(quiet),
			"these processes have stopped, hang, or can't reach the cluster", "check whether they should be running"})
	}
	if len(alive) == 0 {
		return append(found, Finding{Warning, "no running process was found",
			"no samples are accepted, no queries answered, and nothing is sealed", "start `cassia serve`"})
	}
	found = append(found, ok("%s: %s", plural(len(alive), "process"), joinNames(alive)))
	for target, misses := range map[string]string{"write": "accepts samples", "read": "answers queries",
		"downsample": "seals, so samples stay in memory and in the staging log"} {
		if !does["all"] && !does[target] {
			found = append(found, Finding{Warning, "no process with --target=" + target + " is running",
				"no process " + misses, "start `cassia serve --target=" + target + "`"})
		}
	}
	slices.SortFunc(found, func(a, b Finding) int { return strings.Compare(a.What, b.What) })
	slices.Sort(versions)
	if versions = slices.Compact(versions); len(versions) > 1 {
		found = append(found, Finding{Note, "the processes run different versions: " + joinNames(versions),
			"mixed versions are only supported during an upgrade", "upgrade the remaining processes"})
	}
	if len(c.Keeps) > 1 {
		found = append(found, Finding{Note, "processes use different retentions: " + strings.Join(c.Keeps, "; "),
			"the longest retention applies, until two hours after the last heartbeat of its process",
			"set the same --retention flags and file on all processes"})
	}
	return found
}

// checkLeases checks for partitions that aren't sealed by any process.
func checkLeases(c *inspect.Condition) []Finding {
	alive := map[string]bool{}
	workers := 0
	for _, p := range c.Processes {
		alive[p.Writer] = p.Alive
		if p.Alive && p.Downsamples() {
			workers++
		}
	}
	if workers == 0 {
		return nil // checkProcesses reports that no process seals.
	}
	var without []string
	for p, l := range c.Leases {
		if !alive[l.Owner] {
			without = append(without, fmt.Sprint(p))
		}
	}
	if len(without) == 0 {
		return []Finding{ok("%s, each owned by one of the processes that seal (%d)",
			plural(len(c.Leases), "partition"), workers)}
	}
	return []Finding{{Warning, fmt.Sprintf("%d of %s have no running owner: %s", len(without),
		plural(len(c.Leases), "partition"), joinNames(without)),
		"their slots aren't sealed; another process normally takes them over within seconds, so check again",
		"if this persists, search the logs of the processes that seal for the word leases"}}
}

// checkWaiting checks for slots that should have been sealed.
func checkWaiting(c *inspect.Condition, o StoreOptions) []Finding {
	due, slots := 0, map[int64]bool{}
	var lag time.Duration
	slot := time.Duration(c.Periods[len(c.Periods)-1].SlotMS) * time.Millisecond
	for _, w := range c.Waiting {
		if behind := o.Now.Sub(w.Since) - settleTime; behind > 0 && o.Now.Sub(w.End) > settleTime && !w.OnlyDamaged() {
			due++
			slots[w.Slot] = true
			lag = max(lag, behind)
		}
	}
	all := fmt.Sprintf("%s with unsealed samples, counted once per partition", plural(len(c.Waiting), "slot"))
	if due == 0 {
		return []Finding{ok("%s; 0 are due", all)}
	}
	f := Finding{OK, fmt.Sprintf("%s; %d (%s) overdue, the oldest by %s", all, due,
		plural(len(slots), "slot"), formatApprox(lag)),
		"every process that answers queries keeps unsealed samples in memory, and reads them again at every start",
		`check the processes that seal: search their logs for "sealing failed", and look at cassia_downsample_lag_seconds and ` +
			"cassia_downsample_failures_total on /metrics;\nto add capacity, start more of them: cassia serve " +
			"--target=downsample"}
	if !o.Shared {
		f.Do = "`cassia serve` seals them within minutes of its start; otherwise search its log for \"sealing " +
			"failed\", and look at cassia_downsample_lag_seconds on /metrics"
	}
	switch {
	case lag > lagError:
		f.Level = Error
	case lag > lateSlots*slot:
		f.Level = Warning
	default:
		return []Finding{ok("%s", f.What)}
	}
	return []Finding{f}
}

// checkDamagedRows reports damaged rows.
func checkDamagedRows(c *inspect.Condition, o StoreOptions) []Finding {
	if c.DamagedRows == 0 {
		text := fmt.Sprintf("%s of past slots verified, without damage", plural(c.Verified, "staged blob"))
		if c.Unverified {
			text += "; not all were verified"
		}
		return []Finding{ok("%s; `cassia check` verifies all data", text)}
	}
	var names []string
	for i := range c.Damaged {
		names = append(names, c.Damaged[i].String())
	}
	do := "cassia check " + o.Flags + "   # lists all damage"
	if d := c.Damaged[0]; o.Shared {
		do += fmt.Sprintf("\nnodetool repair -full %s stage   # if another node has an undamaged copy\nto discard the "+
			"samples: DELETE FROM %s.stage WHERE slot = %d AND partition = %d AND writer = 0x%s AND seq = %d;",
			o.Keyspace, o.Keyspace, d.Slot, d.Partition, d.Writer, d.Seq)
	}
	return []Finding{
		{Error, fmt.Sprintf("%s can't be read: %s", plural(c.DamagedRows, "staged blob"), joinNames(names)),
			"their samples are missing from query results, which have a warning; the rows are kept but never sealed",
			do},
	}
}

// checkDamagedFiles reports damaged files of a directory.
func checkDamagedFiles(c *inspect.Condition, o StoreOptions) []Finding {
	if c.Unreadable == 0 && c.Files == 0 {
		return nil
	}
	if c.Unreadable == 0 {
		return []Finding{ok("%s, %d bytes: every block matches its checksum", plural(c.Files, "file"), c.FileBytes)}
	}
	return []Finding{{Error, fmt.Sprintf("%s: %s", plural(c.Unreadable, "damaged part"), joinNames(c.Problems)),
		"data on disk doesn't match its checksum: query results are missing these samples and have a warning; a " +
			"failing disk may cause more damage",
		repairCommands(o)}}
}

// checkHidden reports windows that are hidden because the retention was reduced. They aren't deleted yet, so a longer
// retention would show them again.
func checkHidden(c *inspect.Condition) (found []Finding) {
	const most = 10
	for i, h := range c.Hidden {
		if i == most {
			return append(found, Finding{Warning, fmt.Sprintf("%d more hidden ranges", len(c.Hidden)-most), "",
				"list all with cassia retention"})
		}
		of := fmt.Sprintf("%s of %q", h.Resolution, h.Tenant)
		if h.Class != "" {
			of += fmt.Sprintf(", class %q,", h.Class)
		}
		was := "forever"
		if h.Was > 0 {
			was = "for " + formatApprox(h.Was)
		}
		found = append(found, Finding{Warning,
			fmt.Sprintf("a lowered retention hides %s from %s until %s", of, h.From.UTC().Format(time.DateOnly),
				h.To.UTC().Format(time.DateOnly)),
			fmt.Sprintf("it was kept %s before; it will be deleted from %s on", was,
				h.Goes.UTC().Format(time.DateOnly)),
			"if this is intended, nothing; otherwise start the server with the longer retention before then, and all " +
				"samples are shown again"})
	}
	return found
}

// checkIncreased reports when an increased retention, or the retention of a new class, takes full effect.
func checkIncreased(c *inspect.Condition) (found []Finding) {
	const most = 10
	for i, l := range c.Later {
		if i == most {
			return append(found, ok("%d more retentions apply in full later", len(c.Later)-most))
		}
		of := fmt.Sprintf("%s of %q", l.Resolution, l.Tenant)
		if l.Class != "" {
			of += fmt.Sprintf(", class %q,", l.Class)
		}
		found = append(found, ok(
			"the retention of %s applies in full from %s; earlier rows expire as fixed when their window was first "+
				"written. The rows of the present window expire on %s",
			of, l.From.UTC().Format(time.RFC3339), l.Expire.UTC().Format(time.DateOnly),
		))
	}
	return found
}

// checkDeltas lists the tenants that have sent deltas. Their rates are computed with start timestamps.
func checkDeltas(c *inspect.Condition) (found []Finding) {
	const most = 10
	for i, t := range c.Deltas {
		switch {
		case i == most:
			return append(found, ok("%d more tenants have sent deltas", len(c.Deltas)-most))
		case t.Since.IsZero(): // The row can't be read. Another check reports the damage.
			found = append(found, ok("tenant %q has sent deltas: its rates are computed with start timestamps", t.Name))
		default:
			found = append(found, ok(
				"tenant %q has sent deltas since %s: its rates are computed with start timestamps for samples after %s",
				t.Name, t.Since.UTC().Format(time.DateOnly), time.UnixMilli(t.From).UTC().Format(time.RFC3339),
			))
		}
	}
	return found
}

// checkExpired checks for windows that should have been deleted.
func checkExpired(c *inspect.Condition) (found []Finding) {
	undropped, leftover := map[int64]bool{}, map[int64]bool{}
	var since time.Time
	for _, e := range c.Expired {
		if !e.Listed {
			leftover[e.Window] = true
			continue
		}
		undropped[e.Window] = true
		if since.IsZero() || e.Until.Before(since) {
			since = e.Until
		}
	}
	if len(undropped) > 0 {
		found = append(found, Finding{Warning,
			fmt.Sprintf("%s past the retention not deleted, the oldest since %s", plural(len(undropped), "window"),
				since.UTC().Format(time.DateOnly)),
			"queries don't return them, but they use disk space and slow down listings",
			"the process that seals partition 0 deletes them: check that it is running and that its --retention.raw " +
				"matches the one set here"})
	}
	if len(leftover) > 0 {
		found = append(found, Finding{Note, fmt.Sprintf("%s past the retention still have rows",
			plural(len(leftover), "window")),
			"rows keep the TTL they were written with, which was longer; queries don't return them",
			"nothing: the rows expire when their TTL ends; rows written with --retention.raw=0 never do"})
	}
	if len(found) == 0 {
		found = append(found, ok("all windows past the retention are deleted"))
	}
	return found
}
