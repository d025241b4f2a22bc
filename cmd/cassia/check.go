package main

import (
	"context"
	"fmt"

	"github.com/alecthomas/kingpin/v2"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/inspect"
)

func addCheck(app *kingpin.Application) subcommand {
	cmd := app.Command("check", "Verify all stored data and report every problem. Changes nothing. On a data directory, stop the server first; on a "+
		"cluster, servers may be running.")
	o := offlineFlags(cmd)
	return subcommand{cmd.FullCommand(), func(ctx context.Context) error { return checkAll(ctx, o) }}
}

// checkAll looks at every row, and at every file of a directory.
func checkAll(ctx context.Context, o offline) error {
	o.readOnly = true
	return o.withStore(ctx, func(s *storage.Store) error { return check(ctx, o, s) })
}

// check prints problems, and a summary line.
func check(ctx context.Context, o offline, s *storage.Store) error {
	stats, err := s.Check(ctx, func(problem string) { fmt.Println(problem) })
	if err != nil {
		return err
	}
	fmt.Printf("%s not yet sealed; %s, %s, %s, %d series per window, %s of %d bytes with %s, %s of %d bytes, %s of %d bytes: %s\n",
		count(stats.Blobs, "blob"), count(stats.Tenants, "tenant"), count(stats.Windows, "window"), count(stats.Metrics, "metric"), stats.Series,
		count(stats.Chunks, "chunk"), stats.Bytes, count(int(stats.Samples), "sample"), count(stats.Rollups, "rollup chunk"), stats.RollupBytes,
		count(stats.Files, "file"), stats.FileBytes, count(stats.Problems, "problem"))
	if stats.Problems > 0 {
		return fmt.Errorf("%s: %s", o.Where(), count(stats.Problems, "problem"))
	}
	return nil
}

func addInspect(app *kingpin.Application) subcommand {
	cmd := app.Command("inspect", "Print stored rows in readable form. Without a table, print a summary of the store. Changes nothing. On a data "+
		"directory, stop the server first; on a cluster, servers may be running.")
	o := offlineFlags(cmd)
	table := cmd.Arg("table", "Table whose rows to print, such as raw or stage.").String()
	fields := cmd.Arg("field=value", "Partition key, optionally followed by the first fields of the row key, such as window=20578 class=0 tenant=default metric=up shard=0.").StringMap()
	o.readOnly = true
	return subcommand{cmd.FullCommand(), func(ctx context.Context) error {
		line := func(s string) { fmt.Println(s) }
		return o.withStore(ctx, func(s *storage.Store) error {
			if *table == "" {
				return inspect.Overview(ctx, s.View(), line)
			}
			return inspect.Rows(ctx, s.View().Engine(), *table, *fields, line)
		})
	}}
}
