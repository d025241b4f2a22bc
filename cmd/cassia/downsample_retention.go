package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/cassia-db/cassia/cmd/internal/config"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/retention"
)

// addRetention declares the command that previews the effect of new retention flags before a server is started with
// them.
func addRetention(app *kingpin.Application) subcommand {
	cmd := app.Command("retention",
		"Show the effect of a retention: which samples it would hide or show again, which windows exist by "+
			"resolution and tenant, which would be deleted now, and when the next ones expire. Changes nothing. On a "+
			"data directory, stop the server first; on a cluster, servers may be running.")
	o := offlineFlags(cmd)
	o.isReadOnly = true
	parse := config.RetentionFlags(cmd)
	each := cmd.Flag("windows", "List each window, instead of a summary by resolution and tenant.").Bool()
	return subcommand{cmd.FullCommand(), func(ctx context.Context) error {
		var err error
		if o.retention, err = parse(); err != nil {
			return err
		}
		return o.withStore(ctx, func(s *storage.Store) error {
			kept, err := s.WindowInfos(ctx)
			if err != nil {
				return fmt.Errorf("%s: %s", o.Location(), oneLine(err))
			}
			changes, err := s.Retention().Changes(ctx)
			if err != nil {
				return fmt.Errorf("%s: %s", o.Location(), oneLine(err))
			}
			fmt.Fprintf(stdout, "with %s:\n", o.retention)
			writeChanges(stdout, changes)
			now := time.Now()
			if *each {
				err = writeWindows(stdout, kept, changes, now)
			} else {
				err = writeRetention(stdout, kept, changes, now)
			}
			if err == nil && o.Kind == config.EngineCassandra {
				fmt.Fprintln(stdout,
					"on Cassandra, rows keep the TTL they were written with: a new retention applies only to samples "+
						"sealed from now on")
			}
			return err
		})
	}}
}

// writeChanges writes which samples a server with this retention would hide and which it would show again. If there are
// no such samples, it writes nothing.
func writeChanges(w io.Writer, changes []retention.Change) {
	hides := false
	for _, c := range changes {
		hides = hides || !c.Shown
		fmt.Fprintln(w, changeLine(&c))
	}
	if hides {
		fmt.Fprintln(w,
			"hidden samples stay on disk until they are deleted; a server started with a longer retention before "+
				"then shows them again")
	}
}

func changeLine(c *retention.Change) string {
	of := fmt.Sprintf("%s of %q", c.Resolution, c.Tenant)
	if c.Class != "" {
		of += fmt.Sprintf(", class %q,", c.Class)
	}
	since := "all"
	if !c.From.IsZero() {
		since = "from " + formatDay(c.From)
	}
	if c.Shown {
		return fmt.Sprintf("  would show %s %s until %s again", of, since, formatDay(c.To))
	}
	about := ""
	if c.Samples >= 0 {
		about = fmt.Sprintf(" (about %s)", countNoun(int(c.Samples), "sample"))
	}
	return fmt.Sprintf("  would hide %s %s until %s%s, to be deleted from %s on", of, since,
		formatDay(c.To), about, formatDay(c.Goes))
}

// tally summarizes the windows of one tenant and resolution.
type tally struct {
	first, last   storage.WindowInfo
	windows       int
	hidden, gone  int
	waiting       int // number of windows without rollups
	nextGoes      time.Time
	nextGoesUntil time.Time // end of the window that expires next
}

// findHiding returns the change of retention that would hide window k, or nil. A server that is started with the new
// retention deletes a hidden window a week after its start.
func findHiding(changes []retention.Change, k *storage.WindowInfo) *retention.Change {
	for i := range changes {
		if c := &changes[i]; !c.Shown && c.Tenant == k.Tenant && c.Resolution == k.Resolution &&
			k.Start.Before(c.To) && k.End.After(c.From) {
			return c
		}
	}
	return nil
}

// writeRetention writes one line per resolution and tenant.
func writeRetention(w io.Writer, kept []storage.WindowInfo, changes []retention.Change, now time.Time) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(
		tab, "RESOLUTION\tTENANT\tWINDOWS\tFROM\tUNTIL\tHIDDEN\tTO DELETE NOW\tNEXT TO DELETE\tON\tWITHOUT ROLLUPS",
	)
	for i := 0; i < len(kept); {
		t := tally{first: kept[i]}
		for ; i < len(kept) && kept[i].Resolution == t.first.Resolution && kept[i].Tenant == t.first.Tenant; i++ {
			t.add(&kept[i], findHiding(changes, &kept[i]), now)
		}
		next, on := "-", "never"
		if !t.nextGoes.IsZero() {
			next, on = "until "+formatDay(t.nextGoesUntil), formatDay(t.nextGoes)
		} else if !t.last.Goes.IsZero() {
			on = "-"
		}
		fmt.Fprintf(tab, "%s\t%q\t%d\t%s\t%s\t%d\t%d\t%s\t%s\t%d\n", t.first.Resolution, t.first.Tenant, t.windows,
			formatDay(t.first.Start), formatDay(t.last.End), t.hidden, t.gone, next, on, t.waiting)
	}
	return tab.Flush()
}

// add adds a window to the tally. hidden is the change that hides it, or nil.
func (t *tally) add(k *storage.WindowInfo, hidden *retention.Change, now time.Time) {
	t.last = *k
	t.windows++
	goes := k.Goes
	if hidden != nil && !k.Hidden.After(now) {
		goes = hidden.Goes
	}
	switch {
	case goes.IsZero():
	case !goes.After(now):
		t.gone++
	default:
		if !k.Hidden.After(now) {
			t.hidden++
		}
		if t.nextGoes.IsZero() {
			t.nextGoes, t.nextGoesUntil = goes, k.End
		}
	}
	if k.Unrolled > 0 {
		t.waiting++
	}
}

// writeWindows writes one line per window.
func writeWindows(w io.Writer, kept []storage.WindowInfo, changes []retention.Change, now time.Time) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "RESOLUTION\tTENANT\tFROM\tUNTIL\tDELETED\t")
	for i := range kept {
		k := &kept[i]
		goes, hidden := "never", findHiding(changes, k)
		switch {
		case k.Goes.IsZero():
		case hidden != nil && !k.Hidden.After(now):
			goes = formatDay(hidden.Goes) + ", would be hidden"
		case !k.Goes.After(now):
			goes = "now"
		case !k.Hidden.After(now):
			goes = formatDay(k.Goes) + ", already hidden"
		default:
			goes = formatDay(k.Goes)
		}
		note := ""
		if k.Unrolled > 0 {
			note = fmt.Sprintf("%s without rollups, which are created first", countNoun(k.Unrolled, "seal"))
		}
		fmt.Fprintf(tab, "%s\t%q\t%s\t%s\t%s\t%s\n",
			k.Resolution, k.Tenant, formatDay(k.Start), formatDay(k.End), goes, note)
	}
	return tab.Flush()
}

func formatDay(t time.Time) string { return t.UTC().Format(time.DateOnly) }
