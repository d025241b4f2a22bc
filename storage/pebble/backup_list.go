package pebble

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// readableOfStore returns the backups of a store whose lists can be read, and a text for each backup whose list can't be: of which store
// that is isn't known, so it isn't used, doesn't count and isn't removed.
func readableOfStore(folder string, names []string, store string) (own, unreadable []string) {
	for _, name := range names {
		list, err := readList(filepath.Join(folder, name))
		switch {
		case err != nil:
			unreadable = append(unreadable, fmt.Sprintf("backup %s was skipped: %s; if it isn't needed, remove its directory", name, err))
		case list.Store == store:
			own = append(own, name)
		}
	}
	return own, unreadable
}

// orOlderThanUnreadable adds to why the list of a backup can't be read which readable one was made before it.
func orOlderThanUnreadable(err error, folder, name string) error {
	names, _, listErr := backups(folder)
	if listErr != nil {
		return err
	}
	names = names[:max(0, slices.Index(names, name))]
	names = slices.DeleteFunc(names, func(name string) bool { return !isWhole(folder, name) })
	if len(names) == 0 {
		return fmt.Errorf("%w; there is no older backup", err)
	}
	if several := oneStore(folder, names); several != nil {
		return fmt.Errorf("%w; %w", err, several)
	}
	return fmt.Errorf("%w; the previous backup is --backup=%s", err, names[len(names)-1])
}

// Lineage identifies the store that a backup is made of, and the copy of it.
type Lineage struct {
	Store string
	// Copy differs between a store and each directory that was restored from one of its backups.
	Copy string
	// RestoredFrom is the name of the backup from which the copy was restored; "": it is the original.
	RestoredFrom string
	// Host is the name of the machine, and Tenants are those of the store, separated by commas; "": not known. They are shown to people.
	Host, Tenants string
}

// TenantList returns Tenants.
func (l *Lineage) TenantList() []string {
	if l.Tenants == "" {
		return nil
	}
	return strings.Split(l.Tenants, ",")
}

// ErrOtherCopy means that the newest backup in a destination was made of another copy of the store, and isn't part of this one's history.
var ErrOtherCopy = errors.New("pebble: another copy of this store is backed up there")

// CheckNewest returns ErrOtherCopy unless the newest backup of the store in a destination is part of this copy's history: made of this copy, or no
// later than the backup from which it was restored.
func (l Lineage) CheckNewest(backup, copy string) error {
	if copy == l.Copy || backup <= l.RestoredFrom { // Names begin with times.
		return nil
	}
	return fmt.Errorf("%w: backup %s isn't part of this directory's history, and would be replaced over time. Use another destination for this "+
		"copy, or, if the other copy is no longer used, run cassia backup --take-over once", ErrOtherCopy, backup)
}

// NameLineage notes in a checkpoint of what it is, for its backup. An empty store is noted nowhere.
func NameLineage(checkpoint string, l Lineage) error {
	if l.Store == "" {
		return nil
	}
	text := strings.Join([]string{l.Store, l.Copy, l.RestoredFrom, l.Host, l.Tenants}, "\n") + "\n"
	return writeSynced(vfs.Default, filepath.Join(checkpoint, StoreFile), strings.NewReader(text))
}

// LineageOf returns what NameLineage noted.
func LineageOf(checkpoint string) (l Lineage, err error) {
	text, err := os.ReadFile(filepath.Join(checkpoint, StoreFile))
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return l, fmt.Errorf("pebble: checkpoint: %w", err)
	}
	for _, into := range []*string{&l.Store, &l.Copy, &l.RestoredFrom, &l.Host, &l.Tenants} {
		var line []byte
		line, text, _ = bytes.Cut(text, []byte("\n"))
		*into = string(line)
	}
	return l, nil
}

// CheckCopy returns ErrOtherCopy if a backup of a checkpoint into a folder would follow those of another copy of the store.
func CheckCopy(checkpoint, folder string) error {
	l, err := LineageOf(checkpoint)
	if err != nil {
		return err
	}
	names, _, err := backups(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	own, _ := readableOfStore(folder, names, l.Store)
	if own = inOrder(folder, own); len(own) == 0 {
		return nil
	}
	newest := own[len(own)-1]
	list, err := readList(filepath.Join(folder, newest))
	if err != nil {
		return err
	}
	return l.CheckNewest(newest, list.Copy)
}
