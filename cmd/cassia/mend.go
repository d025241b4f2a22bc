package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/cassia-db/cassia/cmd/internal/backups"
	"github.com/cassia-db/cassia/cmd/internal/config"
	"github.com/cassia-db/cassia/storage/pebble"
)

// mending is a restore of damaged files only.
type mending struct{ damaged, giveUpLog bool }

func addMending(cmd *kingpin.CmdClause) *mending {
	m := &mending{}
	cmd.Flag("damaged", "Replace only the files of a directory that are damaged, by the same files of the newest backup that has them whole. "+
		"What is newer than the backups stays. No server may be running.").BoolVar(&m.damaged)
	cmd.Flag("give-up-log", "With --damaged: where a log is damaged, go on without what it had after the damage, which was acknowledged and is lost.").BoolVar(&m.giveUpLog)
	return m
}

// run mends a directory, prints the result, and reads every row.
func (m *mending) run(ctx context.Context, from *backups.Place, backup, dir string, verify bool) error {
	if backup != "" {
		return errors.New("--backup doesn't go with --damaged: each file is that of the newest backup that has it whole")
	}
	begun := time.Now()
	spares, err := from.Spares(ctx)
	if err != nil {
		return fmt.Errorf("--from=%s: %s", from, oneLine(err))
	}
	stats, err := pebble.Mend(ctx, spares, dir, m.giveUpLog)
	if err != nil {
		return fmt.Errorf("mending %s: %s", dir, oneLine(err))
	}
	for _, text := range stats.Mended {
		fmt.Println("mended: " + text)
	}
	for _, text := range stats.Lost {
		fmt.Println("given up: " + text)
	}
	for _, text := range stats.Left {
		fmt.Println("still damaged: " + text)
	}
	fmt.Printf("%s: %d files of %d bytes were looked at, %d mended, %d parts are still damaged, in %s\n", dir, stats.Files, stats.Bytes,
		len(stats.Mended), len(stats.Left), time.Since(begun).Round(time.Millisecond))
	if len(stats.Left) > 0 {
		return fmt.Errorf("%s: no backup in %s has these files; cassia check names what is missing, which cassia export from a whole backup and cassia import bring back", dir, from)
	}
	if len(stats.Lost) > 0 {
		if err := markRestored(ctx, dir, ""); err != nil {
			return err
		}
	}
	if !verify {
		return nil
	}
	o := offline{Engine: &config.Engine{Kind: config.EnginePebble, Path: dir}}
	return checkAll(ctx, o)
}
