package main

import (
	"context"
	"fmt"

	"github.com/alecthomas/kingpin/v2"

	"github.com/cassia-db/cassia/storage"
)

func addUsePages(parent *kingpin.CmdClause) subcommand {
	cmd := parent.Command("use-pages", "On Cassandra, store new series in pages, in a keyspace created by an earlier release: this halves the work of sealing "+
		"short-lived series and saves disk space. Upgrade all servers first; earlier releases can't open the keyspace "+
		"afterwards. New keyspaces and data directories always use pages.")
	o := offlineFlags(cmd)
	return subcommand{cmd.FullCommand(), func(ctx context.Context) error {
		return o.withStore(ctx, func(s *storage.Store) error {
			if s.WritesPages() {
				fmt.Println("pages are already enabled; nothing was changed")
				return nil
			}
			if err := s.UsePages(ctx); err != nil {
				return fmt.Errorf("%s", oneLine(err))
			}
			fmt.Println("new series are stored in pages from now on; earlier releases can no longer open this store")
			return nil
		})
	}}
}
