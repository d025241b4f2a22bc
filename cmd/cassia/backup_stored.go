package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/cassia-db/cassia/cmd/internal/backups"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/pebble"
	"github.com/cassia-db/cassia/storage/pebble/objects"
)

// storedCommand holds the flags and arguments of a command that works on existing backups at a location.
type storedCommand struct {
	at     backups.Location
	names  []string
	asJSON bool
	force  bool
}

func newStoredCommand(cmd *kingpin.CmdClause) *storedCommand {
	c := &storedCommand{}
	placeFlag(cmd, &c.at, "Folder or bucket of the backups, as in cassia backup --to.")
	c.at.KeyFlag(cmd, "")
	return c
}

// list returns the backups at the location.
func (c *storedCommand) list(ctx context.Context) ([]pebble.StoredBackup, error) {
	if err := c.at.Validate(); err != nil {
		return nil, fmt.Errorf("--to, --key-file: %w", err)
	}
	if !c.at.InBucket() {
		if _, err := os.Stat(c.at.At); err != nil {
			return nil, fmt.Errorf("--to: %w", err)
		}
	}
	list, err := c.at.StoredBackups(ctx)
	if err != nil {
		return nil, withOperation("--to="+c.at.String(), &c.at, err)
	}
	return list, nil
}

// namedBackups returns the backups named by the arguments, in the order of the arguments, or all backups if there are
// no arguments.
func (c *storedCommand) namedBackups(list []pebble.StoredBackup) (out []pebble.StoredBackup, err error) {
	if len(c.names) == 0 {
		return list, nil
	}
	for _, name := range c.names {
		i := slices.IndexFunc(list, func(b pebble.StoredBackup) bool { return b.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("%s: no backup named %s; cassia backup list --to=%s lists all", &c.at, name, &c.at)
		}
		out = append(out, list[i])
	}
	return out, nil
}

func addBackupList(backup *kingpin.CmdClause) subcommand {
	cmd := backup.Command("list",
		"List the backups of a folder or a bucket, the oldest first: time, size, store, host, tenants, and whether "+
			"they are undamaged.")
	c := newStoredCommand(cmd)
	cmd.Flag("json", "Print the list as JSON.").BoolVar(&c.asJSON)
	return subcommand{cmd.FullCommand(), func(ctx context.Context) error {
		list, err := c.list(ctx)
		if err != nil {
			return err
		}
		if c.asJSON {
			e := json.NewEncoder(stdout)
			e.SetIndent("", "  ")
			return e.Encode(append([]pebble.StoredBackup{}, list...))
		}
		return printStored(stdout, c.at.String(), list)
	}}
}

func printStored(w io.Writer, at string, list []pebble.StoredBackup) error {
	if len(list) == 0 {
		_, err := fmt.Fprintf(w, "no backups in %s\n", at)
		return err
	}
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "NAME\tTIME\tFILES\tSIZE\tSTORE\tHOST\tTENANTS\tVERIFIED")
	for i := range list {
		b := &list[i]
		if b.Unreadable != "" {
			fmt.Fprintf(tab, "%s\t%s\t-\t-\t-\t-\t-\tunreadable: %s\n", b.Name, b.Taken.Format(time.RFC3339),
				oneLine(errors.New(b.Unreadable)))
			continue
		}
		verified := "yes"
		switch {
		case len(b.Incomplete) > 0:
			verified = "incomplete: " + countNoun(len(b.Incomplete), "file")
		case len(b.Damaged) > 0:
			verified = "damaged: " + countNoun(len(b.Damaged), "part")
		}
		fmt.Fprintf(tab, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", b.Name, b.Taken.Format(time.RFC3339), b.Files,
			dayBytes(float64(b.Bytes)),
			cmp.Or(b.Store, "-"), cmp.Or(b.Host, "-"), cmp.Or(strings.Join(b.Tenants, ","), "-"), verified)
	}
	return tab.Flush()
}

func addBackupVerify(backup *kingpin.CmdClause) subcommand {
	cmd := backup.Command("verify", "Read all files of backups and compare them with their recorded checksums. "+
		"Changes nothing. Without names, all backups are verified; files that backups share are read once.")
	c := newStoredCommand(cmd)
	cmd.Arg("name", "Name of a backup. Repeatable. Default: all backups.").StringsVar(&c.names)
	return subcommand{cmd.FullCommand(), c.verify}
}

func (c *storedCommand) verify(ctx context.Context) error {
	list, err := c.list(ctx)
	if err != nil {
		return err
	}
	if list, err = c.namedBackups(list); err != nil {
		return err
	}
	if len(list) == 0 {
		return fmt.Errorf("%s: no backups", &c.at)
	}
	var all int64
	for i := range list {
		all += list[i].Bytes
	}
	mctx, bar := withMeterBar(ctx, "verifying")
	engine.MeterOf(mctx).AddExpected(all)
	verify, err := c.at.NewVerifier(mctx)
	if err != nil {
		return err
	}
	damaged := 0
	for i := range list {
		b := &list[i]
		found, err := verify(mctx, b.Name)
		bar.clearBar()
		if ctx.Err() != nil {
			return errInterrupted
		}
		if err != nil && c.affectsAll(err) {
			return withOperation("verifying "+b.Name+" in "+c.at.String(), &c.at, err)
		}
		if len(found) > 0 || err != nil {
			damaged++
		}
		for _, text := range found {
			fmt.Fprintln(stdout, text)
		}
		for _, text := range b.Damaged {
			fmt.Fprintf(stdout, "already damaged in the store when it was backed up: %s\n", text)
		}
		if err != nil {
			fmt.Fprintf(stdout, "%s: can't be verified: %s\n", b.Name, oneLine(err))
			continue
		}
		fmt.Fprintf(stdout, "%s: %s, %s, %s damaged\n", b.Name, countNoun(b.Files, "file"), dayBytes(float64(b.Bytes)),
			countNoun(len(found), "file"))
	}
	if damaged > 0 {
		return fmt.Errorf("%s: %s damaged; make a new backup, and cassia backup delete these", &c.at,
			countNoun(damaged, "backup"))
	}
	return nil
}

// affectsAll reports whether err, which occurred while one backup was verified, would also occur for every other
// backup.
func (c *storedCommand) affectsAll(err error) bool {
	return c.at.InBucket() && !errors.Is(err, pebble.ErrBackup) && !errors.Is(err, pebble.ErrNoBackup) &&
		!errors.Is(err, objects.ErrKey) &&
		!errors.Is(err, objects.ErrNotFound)
}

func addBackupDelete(backup *kingpin.CmdClause) subcommand {
	cmd := backup.Command("delete", "Delete backups. Files that other backups share are kept. In a bucket, the space "+
		"of the others is freed a day later at the earliest, by a backup with --keep.")
	c := newStoredCommand(cmd)
	cmd.Flag("force", "Also delete the newest undamaged backup of a store.").BoolVar(&c.force)
	cmd.Arg("name", "Name of a backup. Repeatable.").Required().StringsVar(&c.names)
	return subcommand{cmd.FullCommand(), c.delete}
}

func (c *storedCommand) delete(ctx context.Context) error {
	list, err := c.list(ctx)
	if err != nil {
		return err
	}
	slices.Sort(c.names)
	c.names = slices.Compact(c.names)
	if _, err := c.namedBackups(list); err != nil {
		return err
	}
	newest := map[string]string{}
	for i := range list {
		if b := &list[i]; b.IsWhole() {
			newest[b.Store] = b.Name
		}
	}
	for store, name := range newest {
		if slices.Contains(c.names, name) && !c.force {
			return fmt.Errorf("%s is the newest undamaged backup of store %s; set --force to delete it",
				name, cmp.Or(store, "-"))
		}
	}
	if err := c.at.Delete(ctx, c.names); err != nil {
		return withOperation("deleting from "+c.at.String(), &c.at, err)
	}
	fmt.Fprintf(stdout, "deleted %s\n", countNoun(len(c.names), "backup"))
	return nil
}

// withOperation prefixes an error with the operation that failed. The operation's text ends with the location of the
// backups; if the error begins with the location too, the location is printed only once.
func withOperation(operation string, at *backups.Location, err error) error {
	text := storage.PlainText(oneLine(err))
	if rest, ok := strings.CutPrefix(text, at.String()); ok &&
		(strings.HasPrefix(rest, ": ") || strings.HasPrefix(rest, " at ")) {
		return errors.New(operation + rest)
	}
	return fmt.Errorf("%s: %s", operation, text)
}
