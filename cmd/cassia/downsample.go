package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/model"

	"github.com/cassia-db/cassia/cmd/internal/config"
	"github.com/cassia-db/cassia/downsample"
	"github.com/cassia-db/cassia/storage"
)

// addDownsample declares the command that runs sealing and rollups on demand. A server runs them in the background.
func addDownsample(app *kingpin.Application) subcommand {
	cmd := app.Command("downsample",
		"Seal staged samples and create missing rollups in a time range. Also compacts the rollups of past weeks and "+
			"months (data directory only), and counts the series of past days. Use it after an import, after an "+
			"upgrade, or when a server lags behind. It runs without pauses, and can be interrupted and run again. On "+
			"a data directory, stop the server first; on a cluster, servers may be running.")
	o := offlineFlags(cmd)
	kept := rowRetention(cmd)
	start := cmd.Flag(
		"start", "Start of the time range, RFC 3339 or Unix seconds. Default: the oldest sample.",
	).String()
	end := cmd.Flag("end", "End of the time range, RFC 3339 or Unix seconds. Default: the newest sample.").String()
	settle := cmd.Flag(
		"storage.settle", "Grace period: how long a slot waits for late samples after its end before it is sealed.",
	).Default("15m").String()
	dry := cmd.Flag("dry-run", "List the pending work without doing it. Changes nothing.").Bool()
	return subcommand{cmd.FullCommand(), func(ctx context.Context) error {
		r, err := parseRange(*start, *end, *settle)
		if err != nil {
			return err
		}
		if o.retention, err = kept(o.Kind); err != nil {
			return err
		}
		o.isReadOnly = *dry
		err = o.withStore(ctx, func(s *storage.Store) error {
			if err := o.checkClasses(s); err != nil {
				return err
			}
			plan, err := downsample.NewPlan(ctx, s, r)
			if err != nil {
				return fmt.Errorf("%s: %s", o.Location(), oneLine(err))
			}
			printExpired(stdout, plan, o.retention)
			if *dry {
				printPlan(stdout, plan)
				return nil
			}
			return runPlan(ctx, s, plan, newProgressBar(os.Stderr, time.Now))
		})
		if err != nil && ctx.Err() != nil && !errors.Is(err, errInterrupted) {
			return fmt.Errorf("%w before any work was done; run it again", errInterrupted)
		}
		return err
	}}
}

// errInterrupted means that the command was stopped by a signal.
var errInterrupted = errors.New("interrupted")

// rowRetention declares the retention flags of a command that writes rows. The returned function parses them. On
// Cassandra --retention.raw is required: rows keep the TTL with which they were written, so a wrong default would
// expire them early.
func rowRetention(cmd *kingpin.CmdClause) func(engine string) (config.Retention, error) {
	parse := config.RetentionFlags(cmd)
	said := false
	cmd.GetFlag("retention.raw").IsSetByUser(&said)
	return func(engine string) (config.Retention, error) {
		if engine == config.EngineCassandra && !said {
			return config.Retention{}, errors.New("--retention.raw is missing; set it, --retention.5m, " +
				"--retention.1h and --retention.file to the values that the servers use, because they become the TTL " +
				"of the rows written")
		}
		return parse()
	}
}

// parseRange parses the flags of a time range.
func parseRange(start, end, settle string) (downsample.Range, error) {
	d, err := model.ParseDuration(settle)
	if err != nil {
		return downsample.Range{}, fmt.Errorf("--storage.settle=%s: must be a duration such as 15m or 1h", settle)
	}
	r := downsample.Everything(time.Duration(d))
	for _, f := range []struct {
		name, text string
		into       *int64
	}{{"start", start, &r.MinMS}, {"end", end, &r.MaxMS}} {
		if f.text == "" {
			continue
		}
		at, err := parseInstant(f.text)
		if err != nil {
			return r, fmt.Errorf("--%s=%s: must be a time such as 2027-01-01T00:00:00Z or 1798761600", f.name, f.text)
		}
		*f.into = at.UnixMilli()
	}
	if r.MinMS > r.MaxMS {
		return r, fmt.Errorf("--start=%s --end=%s: the end must not be before the start", start, end)
	}
	return r, nil
}

// parseInstant parses an RFC 3339 time, or seconds since 1970.
func parseInstant(text string) (time.Time, error) {
	if seconds, err := strconv.ParseInt(text, 10, 40); err == nil {
		return time.Unix(seconds, 0), nil
	}
	return time.Parse(time.RFC3339, text)
}

// runPlan runs the plan and prints the result.
func runPlan(ctx context.Context, s *storage.Store, plan *downsample.Plan, bar *progressBar) error {
	began := bar.now()
	if plan.Steps() == 0 {
		fmt.Fprintln(stdout, "nothing to do")
		return nil
	}
	done, err := plan.Run(ctx, s, bar.update)
	bar.clearLine()
	fmt.Fprintf(stdout, "sealed %s with %s (%d of them resealed for late samples); created the rollups of %s, %s; "+
		"compacted %s of rollups; counted the series of %s; took %s\n",
		countNoun(done.Slots, "slot"), countNoun(done.Samples, "sample"), done.Repaired,
		countNoun(done.Windows, "window"), countNoun(done.Series, "series"), countNoun(done.Compacted, "window"),
		countNoun(done.Counted, "window"), bar.now().Sub(began).Round(time.Millisecond))
	if done.Left > 0 {
		fmt.Fprintf(stdout, "%s with unreadable rows, which were kept; run cassia check to list them\n",
			countNoun(done.Left, "slot"))
	}
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%w after %d of %d steps; completed steps are kept. Run it again to continue",
			errInterrupted, done.Steps, done.All)
	case err != nil:
		return fmt.Errorf("%s; run it again to continue", oneLine(err))
	}
	return nil
}

// printPlan lists the steps of the plan, one line per slot or window.
func printPlan(w io.Writer, plan *downsample.Plan) {
	for i := 0; i < len(plan.Slots); {
		slot, n := plan.Slots[i], 0
		for ; i < len(plan.Slots) && plan.Slots[i].Slot == slot.Slot; i++ {
			n++
		}
		fmt.Fprintf(w, "seal    %s – %s: staged in %s\n", shortInstant(slot.StartMS), shortInstant(slot.EndMS),
			countNoun(n, "partition"))
	}
	for _, u := range plan.Windows {
		fmt.Fprintf(w, "roll up %s – %s: tenant %q, %s without rollups\n", shortInstant(u.StartMS),
			shortInstant(u.EndMS), u.Tenant, countNoun(u.Seals, "seal"))
	}
	for _, c := range plan.Compact {
		fmt.Fprintf(w, "compact %s – %s: tenant %q, rollups of %s\n", shortInstant(c.StartMS), shortInstant(c.EndMS),
			c.Tenant, c.Resolution)
	}
	for _, c := range plan.Count {
		fmt.Fprintf(w, "count   %s – %s: tenant %q, series\n", shortInstant(c.StartMS), shortInstant(c.EndMS), c.Tenant)
	}
	fmt.Fprintf(w, "%s to seal, counted once per partition; %s to roll up; %s to compact; %s to count: %s\n",
		countNoun(len(plan.Slots), "slot"), countNoun(len(plan.Windows), "window"),
		countNoun(len(plan.Compact), "window"), countNoun(len(plan.Count), "window"), countNoun(plan.Steps(), "step"))
}

// printExpired prints the slots and windows that the plan skips because they are past the retention.
func printExpired(w io.Writer, plan *downsample.Plan, kept config.Retention) {
	if n := len(plan.Expired); n > 0 {
		fmt.Fprintf(w, "%s skipped: they are past the retention (%s), so rollups of them would expire immediately; if "+
			"a server has a longer retention, set the same here\n",
			countNoun(n, "staged slot"), kept)
	}
}

func shortInstant(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04") }

// countNoun returns a number followed by its noun, such as "1 slot" or "2 slots".
func countNoun(n int, what string) string {
	if n != 1 && what != "series" {
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}
