package main

import (
	"context"
	"fmt"
	"os"

	"github.com/alecthomas/kingpin/v2"

	"github.com/cassia-db/cassia/cmd/internal/config"
	"github.com/cassia-db/cassia/storage/cassandra"
)

func addSchema(app *kingpin.Application) subcommand {
	cmd := app.Command("schema", "Print the CQL that creates the keyspace and the tables in Cassandra, for an operator to look at and to run.")
	e := config.RegisterEngine(cmd)
	retention := config.RetentionFlag(cmd)
	return subcommand{cmd.FullCommand(), func(context.Context) error {
		e.Kind = config.EngineCassandra
		if err := e.Validate(); err != nil {
			return err
		}
		var err error
		if e.Cassandra.Retention, err = retention(); err != nil {
			return err
		}
		if err := cassandra.WriteSchema(os.Stdout, e.Cassandra); err != nil {
			return fmt.Errorf("%s", oneLine(err))
		}
		return nil
	}}
}
