package main

import (
	"context"
	"fmt"

	"github.com/alecthomas/kingpin/v2"

	"github.com/cassia-db/cassia/storage"
)

func addUsePages(parent *kingpin.CmdClause) subcommand {
	cmd := parent.Command("use-pages", "Over Cassandra, write the rows of new series in pages from now on, in a keyspace that an earlier release made: short-lived series take half of the work "+
		"of sealing, and less disk. Upgrade all processes before; earlier releases refuse the keyspace afterwards. New keyspaces, and directories, have pages without it.")
	o := offlineFlags(cmd)
	return subcommand{cmd.FullCommand(), func(ctx context.Context) error {
		return o.withStore(ctx, func(s *storage.Store) error {
			if s.WritesPages() {
				fmt.Println("pages are written already; nothing was changed")
				return nil
			}
			if err := s.UsePages(ctx); err != nil {
				return fmt.Errorf("%s", oneLine(err))
			}
			fmt.Println("rows of new series are written in pages from now on; earlier releases refuse this store")
			return nil
		})
	}}
}
