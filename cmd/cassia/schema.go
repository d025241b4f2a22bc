package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/model"

	"github.com/cassia-db/cassia/cmd/internal/config"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/cassandra"
	"github.com/cassia-db/cassia/storage/format"
)

// addSchema declares the schema command, without its subcommands.
func addSchema(app *kingpin.Application) *kingpin.CmdClause {
	return app.Command("schema", "Show or change the schema: the tables, and how time and series are partitioned.")
}

// tableFlags declares the flags that affect the options of tables. The returned function parses and validates them.
func tableFlags(cmd *kingpin.CmdClause) func() (cassandra.Options, error) {
	e := config.RegisterEngine(cmd)
	retention := config.RetentionFlags(cmd)
	return func() (o cassandra.Options, err error) {
		e.Kind = config.EngineCassandra
		if err := e.Validate(); err != nil {
			return o, err
		}
		kept, err := retention()
		if err != nil {
			return o, err
		}
		e.SetRetention(kept)
		return e.Cassandra, nil
	}
}

func addSchemaPrint(parent *kingpin.CmdClause) subcommand {
	cmd := parent.Command(
		"print", "Print the CQL that creates the keyspace and the tables in Cassandra, to review and run it by hand.",
	).Default()
	options := tableFlags(cmd)
	return subcommand{cmd.FullCommand(), func(context.Context) error {
		o, err := options()
		if err != nil {
			return err
		}
		if err := cassandra.WriteSchema(stdout, o); err != nil {
			return fmt.Errorf("%s", oneLine(err))
		}
		return nil
	}}
}

func addSchemaAlter(parent *kingpin.CmdClause) subcommand {
	cmd := parent.Command("alter", "Update the options of existing Cassandra tables, such as their compaction "+
		"windows, to match this version and the retention. Prints each statement. Stored data isn't changed, and "+
		"servers may be running.")
	options := tableFlags(cmd)
	dry := cmd.Flag("dry-run", "Only print the statements.").Bool()
	return subcommand{cmd.FullCommand(), func(ctx context.Context) error {
		o, err := options()
		if err != nil {
			return err
		}
		return alterSchema(ctx, o, *dry, stdout)
	}}
}

func alterSchema(ctx context.Context, o cassandra.Options, dry bool, w io.Writer) error {
	n := 0
	err := cassandra.AlterSchema(ctx, o, dry, func(statement string) error {
		n++
		_, err := fmt.Fprintln(w, statement+";")
		return err
	})
	if err != nil {
		return fmt.Errorf("%s", oneLine(err))
	}
	if n == 0 {
		_, err = fmt.Fprintln(w, "-- the tables match this version")
	}
	return err
}

func addSetPeriod(parent *kingpin.CmdClause) subcommand {
	cmd := parent.Command("set-period", "Change how time and series are partitioned, from a future time on. Stored "+
		"data keeps its partitioning. Servers of a cluster may be running; stop the server of a data directory first.")
	o := offlineFlags(cmd)
	slot := cmd.Flag("slot", "Width of a slot, the unit of sealing. Default: unchanged.").Default("0s").String()
	window := cmd.Flag(
		"window", "Width of a window of raw samples, the unit of deletion: a multiple of 1d. Default: unchanged.",
	).Default("0s").String()
	partitions := cmd.Flag(
		"partitions",
		"Number of staging partitions, which share the work of sealing: a multiple of the current number. Default: "+
			"unchanged.",
	).Default("0").Int()
	from := cmd.Flag(
		"from",
		"When the change takes effect, RFC 3339. It is rounded up to the end of a window, at least one day ahead. "+
			"Default: as soon as possible.",
	).String()
	return subcommand{cmd.FullCommand(), func(ctx context.Context) error {
		want := format.Period{Partitions: *partitions}
		for _, f := range []struct {
			name, text string
			into       *int64
		}{{"slot", *slot, &want.SlotMS}, {"window", *window, &want.RawWindowMS}} {
			d, err := model.ParseDuration(f.text)
			if err != nil {
				return fmt.Errorf("--%s=%s: must be a duration such as 1h, 2h or 1d", f.name, f.text)
			}
			*f.into = time.Duration(d).Milliseconds()
		}
		var begin time.Time
		if *from != "" {
			var err error
			if begin, err = time.Parse(time.RFC3339, *from); err != nil {
				return fmt.Errorf("--from=%s: must be a time such as 2027-01-01T00:00:00Z", *from)
			}
		}
		return o.withStore(ctx, func(s *storage.Store) error {
			added, err := s.SetPeriod(ctx, want, begin)
			if err != nil {
				return fmt.Errorf("%s", oneLine(err))
			}
			fmt.Fprintf(stdout, "from %s on: %s\n", time.UnixMilli(added.FromMS).UTC().Format(time.RFC3339), added)
			return nil
		})
	}}
}
