package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cassia-db/cassia/storage/inspect"
)

const (
	// settle is how long a slot waits for stragglers before it is sealed, unless a server is configured otherwise.
	settle = 15 * time.Minute
	// lateSlots is how many slots the sealing may be behind; from lagError on something is wrong.
	lateSlots = 2
	lagError  = 24 * time.Hour
	// hangs is how long a process may not have been heard of that is worth naming; afterwards it has ended.
	hangs = 10 * time.Minute
)

// StoreOptions are the conditions under which a store is examined.
type StoreOptions struct {
	// Shared: any number of processes use it, and that CQL reaches its rows in Keyspace.
	Shared   bool
	Keyspace string
	// Flags lead commands to it.
	Flags string
	Now   time.Time
}

// Store looks at processes, waiting work, expired windows and damage.
func Store(c *inspect.Condition, o StoreOptions) (found []Finding) {
	found = append(found, periods(c, o))
	found = append(found, copied(c)...)
	found = append(found, clock(c, o)...)
	found = append(found, hidden(c)...)
	if o.Shared {
		found = append(found, pages(c, o))
		found = append(found, processes(c)...)
		found = append(found, leases(c)...)
	}
	found = append(found, waiting(c, o)...)
	found = append(found, damaged(c, o)...)
	found = append(found, unreadable(c, o)...)
	return append(found, expired(c)...)
}

func periods(c *inspect.Condition, o StoreOptions) Finding {
	last := c.Periods[len(c.Periods)-1]
	text := fmt.Sprintf("the store was created %s, %s with sealed data: %s", c.Created.UTC().Format(time.DateOnly), plural(c.Tenants, "tenant"), last)
	if from := time.UnixMilli(last.FromMS); len(c.Periods) > 1 && from.After(o.Now) {
		text += " from " + from.UTC().Format(time.RFC3339) + " on, " + c.Periods[len(c.Periods)-2].String() + " before"
	}
	return ok("%s", text)
}

// copied notes that the store is a copy of another one.
func copied(c *inspect.Condition) []Finding {
	if c.RestoredFrom == "" {
		return nil
	}
	return []Finding{{Note, "the store was restored from the backup " + c.RestoredFrom,
		"it and the store that was backed up count as one store in a destination of backups: each pushes out the other's",
		"while the other one is used, back this one up to another destination: --backup.to, --to"}}
}

// pages looks at whether a keyspace of an earlier release has pages.
func pages(c *inspect.Condition, o StoreOptions) Finding {
	if c.Pages {
		return ok("rows of new series are written in pages")
	}
	return Finding{Warning, "rows of new series aren't written in pages, for an earlier release made the keyspace",
		"short-lived series take twice the work of sealing, and more disk",
		"once every process and command is of this release: cassia schema use-pages " + o.Flags}
}

// clock looks at whether what the store has seen of time explains the machine's clock, or a process isn't believed.
func clock(c *inspect.Condition, o StoreOptions) (found []Finding) {
	if c.ClockDoubted && !o.Shared {
		off, way := o.Now.Sub(c.ClockSeen), "ahead of"
		if off < 0 {
			off, way = -off, "behind"
		}
		found = append(found, Finding{Warning, fmt.Sprintf("this machine's clock is %s %s what the store saw last, %s", about(off), way, c.ClockSeen.UTC().Format(time.RFC3339)),
			"`cassia serve` doesn't believe it, and removes nothing, until it has run for a while",
			"look whether the clock is right; if it is, start once with --storage.today=" + o.Now.UTC().Format(time.DateOnly)})
	}
	if !c.DroppedAhead.IsZero() {
		found = append(found, Finding{Error, fmt.Sprintf("raw samples up to %s were dropped by a clock that was ahead", c.DroppedAhead.UTC().Format(time.RFC3339)),
			"they can't be written again: samples that are sent of the times before are answered with 503, and samples after them are stored",
			"restore a backup from before that, or start with an empty directory; else wait until then"})
	}
	for _, p := range c.Processes {
		if p.Alive && p.Doubted {
			found = append(found, Finding{Error, fmt.Sprintf("the clock of %s (%s) isn't believed", p.Name, p.Target),
				"it takes no samples, seals nothing and removes nothing; others do its work", "set that machine's clock"})
		}
	}
	return found
}

// processes looks at who is there, and whether all that must be done is done by someone.
func processes(c *inspect.Condition) (found []Finding) {
	var alive, quiet, versions []string
	does := map[string]bool{}
	for _, p := range c.Processes {
		if p.StartedMS == 0 {
			continue // a command, such as `cassia downsample`: it announces to the others that it reads
		}
		name := fmt.Sprintf("%s (%s)", p.Name, p.Target)
		if p.Alive {
			alive, versions = append(alive, name), append(versions, p.Version)
			does[p.Target] = true
		} else if p.Quiet < hangs && !p.Leaving { // One that was stopped is marked as leaving.
			quiet = append(quiet, fmt.Sprintf("%s since %s", name, about(p.Quiet)))
		}
	}
	if len(quiet) > 0 {
		found = append(found, Finding{Note, "not heard of any more: " + listed(quiet), "they ended, hang, or can't reach the cluster", "look whether they should be running"})
	}
	if len(alive) == 0 {
		return append(found, Finding{Warning, "no process is heard of", "nothing is taken, answered or sealed", "start `cassia serve`"})
	}
	found = append(found, ok("%s: %s", plural(len(alive), "process"), listed(alive)))
	for target, misses := range map[string]string{"write": "takes samples", "read": "answers queries", "downsample": "seals: what is written stays in memory and in the stage"} {
		if !does["all"] && !does[target] {
			found = append(found, Finding{Warning, "no process with --target=" + target + " is heard of", "nobody " + misses, "start `cassia serve --target=" + target + "`"})
		}
	}
	slices.SortFunc(found, func(a, b Finding) int { return strings.Compare(a.What, b.What) })
	slices.Sort(versions)
	if versions = slices.Compact(versions); len(versions) > 1 {
		found = append(found, Finding{Note, "the processes run different versions: " + listed(versions), "that is for the time of an upgrade only", "upgrade the rest"})
	}
	if len(c.Keeps) > 1 {
		found = append(found, Finding{Note, "processes are started with different retentions: " + strings.Join(c.Keeps, "; "),
			"what any of them keeps is kept, until two hours after it was heard last", "give all of them the same --retention flags and file"})
	}
	return found
}

// leases looks for partitions that nobody works off.
func leases(c *inspect.Condition) []Finding {
	alive := map[string]bool{}
	workers := 0
	for _, p := range c.Processes {
		alive[p.Writer] = p.Alive
		if p.Alive && p.Downsamples() {
			workers++
		}
	}
	if workers == 0 {
		return nil // That is a finding of its own.
	}
	var without []string
	for p, l := range c.Leases {
		if !alive[l.Owner] {
			without = append(without, fmt.Sprint(p))
		}
	}
	if len(without) == 0 {
		return []Finding{ok("%s of the work, each owned by one of the processes that seal (%d)", plural(len(c.Leases), "partition"), workers)}
	}
	return []Finding{{Warning, fmt.Sprintf("%d of %s have no living owner: %s", len(without), plural(len(c.Leases), "partition"), listed(without)),
		"their slots aren't sealed; another process takes them within seconds, so look again",
		"if it stays so: the logs of the processes that seal, for the word leases"}}
}

// waiting looks at what should have been sealed by now.
func waiting(c *inspect.Condition, o StoreOptions) []Finding {
	due, slots := 0, map[int64]bool{}
	var lag time.Duration
	slot := time.Duration(c.Periods[len(c.Periods)-1].SlotMS) * time.Millisecond
	for _, w := range c.Waiting {
		if behind := o.Now.Sub(w.Since) - settle; behind > 0 && o.Now.Sub(w.End) > settle && !w.OnlyDamaged() {
			due++
			slots[w.Slot] = true
			lag = max(lag, behind)
		}
	}
	all := fmt.Sprintf("%s, counted once a partition, hold samples that aren't sealed", plural(len(c.Waiting), "slot"))
	if due == 0 {
		return []Finding{ok("%s; none of them is due", all)}
	}
	f := Finding{OK, fmt.Sprintf("%s; %d of them (%s) are due, the oldest for %s", all, due, plural(len(slots), "slot"), about(lag)),
		"unsealed samples are in the memory of every process that answers queries, and are read again at every start",
		"look at the processes that seal: their logs for \"sealing failed\", cassia_downsample_lag_seconds and cassia_downsample_failures_total on /metrics;\nmore of them divide the work: cassia serve --target=downsample"}
	if !o.Shared {
		f.Do = "`cassia serve` seals it within minutes of its start; then look at its log for \"sealing failed\", and at cassia_downsample_lag_seconds on /metrics"
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

// damaged names what can't be read.
func damaged(c *inspect.Condition, o StoreOptions) []Finding {
	if c.DamagedRows == 0 {
		text := fmt.Sprintf("%s of slots that are over: none is damaged", plural(c.Verified, "staged blob"))
		if c.Unverified {
			text += ", there are more"
		}
		return []Finding{ok("%s; `cassia check` verifies everything", text)}
	}
	var names []string
	for i := range c.Damaged {
		names = append(names, c.Damaged[i].String())
	}
	do := "cassia check " + o.Flags + "   # names all that is damaged"
	if d := c.Damaged[0]; o.Shared {
		do += fmt.Sprintf("\nnodetool repair -full %s stage   # if a copy on another node is whole\nto give its samples up: DELETE FROM %s.stage WHERE slot = %d AND partition = %d AND writer = 0x%s AND seq = %d;",
			o.Keyspace, o.Keyspace, d.Slot, d.Partition, d.Writer, d.Seq)
	}
	return []Finding{{Error, fmt.Sprintf("%s can't be read: %s", plural(c.DamagedRows, "staged blob"), listed(names)),
		"their samples are missing from answers, which say so; the rows stay and are never sealed", do}}
}

// unreadable names what of the files is damaged, where a directory is looked at.
func unreadable(c *inspect.Condition, o StoreOptions) []Finding {
	if c.Unreadable == 0 && c.Files == 0 {
		return nil
	}
	if c.Unreadable == 0 {
		return []Finding{ok("%s, %d bytes: every block is as it was written", plural(c.Files, "file"), c.FileBytes)}
	}
	return []Finding{{Error, fmt.Sprintf("%s: %s", plural(c.Unreadable, "damaged part"), listed(c.Problems)),
		"the bytes on the disk aren't those that were written: answers lack what was there, and say so; the disk may damage more",
		"cassia check " + o.Flags + "   # names the metrics and times\n" +
			"cassia restore --damaged --from=BACKUPS " + o.Flags + "   # mends it from a backup, while no server runs\n" +
			"look at the disk itself: smartctl -a, dmesg"}}
}

// hidden reports windows that a lowered retention has hidden, as long as it can be taken back.
func hidden(c *inspect.Condition) (found []Finding) {
	const most = 10
	for i, h := range c.Hidden {
		if i == most {
			return append(found, Finding{Warning, fmt.Sprintf("%d more such", len(c.Hidden)-most), "", "cassia retention lists what there is"})
		}
		of := fmt.Sprintf("%s of %q", h.Resolution, h.Tenant)
		if h.Class != "" {
			of += fmt.Sprintf(", class %q,", h.Class)
		}
		was := "for ever"
		if h.Was > 0 {
			was = "for " + about(h.Was)
		}
		found = append(found, Finding{Warning, fmt.Sprintf("a lowered retention hides %s from %s until %s", of, h.From.UTC().Format(time.DateOnly), h.To.UTC().Format(time.DateOnly)),
			fmt.Sprintf("it was kept %s; it goes for good from %s on", was, h.Goes.UTC().Format(time.DateOnly)),
			"nothing, if that is meant; else start the server with the longer retention before then: all of it is shown again"})
	}
	return found
}

// expired looks for windows that should have gone.
func expired(c *inspect.Condition) (found []Finding) {
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
		found = append(found, Finding{Warning, fmt.Sprintf("%s past their retention are not dropped, the oldest since %s", plural(len(undropped), "window"), since.UTC().Format(time.DateOnly)),
			"queries don't show them, but they take room on the disk and time to list",
			"the process that seals partition 0 drops them: see that one runs, and that its --retention.raw is what was given here"})
	}
	if len(leftover) > 0 {
		found = append(found, Finding{Note, fmt.Sprintf("%s past their retention still have rows", plural(len(leftover), "window")),
			"each row keeps the time to live that it was written with, by a longer retention then; queries don't show them",
			"nothing: they go when that is over. Written with --retention.raw=0 they never do"})
	}
	if len(found) == 0 {
		found = append(found, ok("no window is past its retention and still there"))
	}
	return found
}
