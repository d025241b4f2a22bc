package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/model"

	"github.com/cassia-db/cassia/cmd/internal/config"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/cassandra"
	"github.com/cassia-db/cassia/storage/format"
)

// addSchema declares the command that others of this file belong to.
func addSchema(app *kingpin.Application) *kingpin.CmdClause {
	return app.Command("schema", "What the tables look like, and how time and series are cut.")
}

func addSchemaPrint(parent *kingpin.CmdClause) subcommand {
	cmd := parent.Command("print", "Print the CQL that creates the keyspace and the tables in Cassandra, for an operator to look at and to run.").Default()
	e := config.RegisterEngine(cmd)
	retention := config.RetentionFlags(cmd)
	return subcommand{cmd.FullCommand(), func(context.Context) error {
		e.Kind = config.EngineCassandra
		if err := e.Validate(); err != nil {
			return err
		}
		kept, err := retention()
		if err != nil {
			return err
		}
		e.SetRetention(kept)
		if err := cassandra.WriteSchema(os.Stdout, e.Cassandra); err != nil {
			return fmt.Errorf("%s", oneLine(err))
		}
		return nil
	}}
}

func addSetPeriod(parent *kingpin.CmdClause) subcommand {
	cmd := parent.Command("set-period", "Cut time and series otherwise from a later instant on. What is stored stays as it is. "+
		"Processes over a cluster go on meanwhile; a directory's server must not be running.")
	o := offlineFlags(cmd)
	slot := cmd.Flag("slot", "Width of the unit of sealing. Default: as before.").Default("0s").String()
	window := cmd.Flag("window", "Width of a row of raw data: a multiple of 1d. Default: as before.").Default("0s").String()
	partitions := cmd.Flag("partitions", "Into how many partitions the work of sealing is divided: a multiple of what they are. Default: as before.").Default("0").Int()
	from := cmd.Flag("from", "When it shall begin, RFC 3339. It begins at the first end of a window that is not before, and more than a day ahead. Default: as soon as possible.").String()
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
				return fmt.Errorf("--from=%s: must be an instant such as 2027-01-01T00:00:00Z", *from)
			}
		}
		return o.withStore(ctx, func(s *storage.Store) error {
			added, err := s.SetPeriod(ctx, want, begin)
			if err != nil {
				return fmt.Errorf("%s", oneLine(err))
			}
			fmt.Printf("from %s on: %s\n", time.UnixMilli(added.FromMS).UTC().Format(time.RFC3339), added)
			return nil
		})
	}}
}
