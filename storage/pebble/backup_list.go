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

// readableOfStore returns the store's backups whose lists can be read, and a text for each backup whose list can't. It
// is unknown to which store such a backup belongs, so it isn't used, counted or removed.
func readableOfStore(folder string, names []string, store string) (own, unreadable []string) {
	for _, name := range names {
		list, err := readList(filepath.Join(folder, name))
		switch {
		case err != nil:
			unreadable = append(unreadable,
				fmt.Sprintf("backup %s was skipped: %s; if it isn't needed, remove its directory", name, err))
		case list.Store == store:
			own = append(own, name)
		}
	}
	return own, unreadable
}

// orOlderThanUnreadable adds the name of the previous readable backup to the error for a backup whose list can't be
// read.
func orOlderThanUnreadable(err error, folder, name string) error {
	names, _, listErr := backups(folder)
	if listErr != nil {
		return err
	}
	names = names[:max(0, slices.Index(names, name))]
	names = slices.DeleteFunc(names, func(name string) bool { return !isUndamaged(folder, name) })
	if len(names) == 0 {
		return fmt.Errorf("%w; there is no older backup", err)
	}
	if several := oneStore(folder, names); several != nil {
		return fmt.Errorf("%w; %w", err, several)
	}
	return fmt.Errorf("%w; the previous backup is --backup=%s", err, names[len(names)-1])
}

// Lineage identifies the store from which a backup is made, and the copy of the store.
type Lineage struct {
	Store string
	// Copy differs between a store and each directory that was restored from one of its backups.
	Copy string
	// RestoredFrom is the name of the backup from which the copy was restored, or "" for the original.
	RestoredFrom string
	// Host is the name of the machine. Tenants are the tenants of the store, separated by commas; "" if they are
	// unknown. Both are only displayed.
	Host, Tenants string
}

// TenantList returns Tenants as a slice.
func (l *Lineage) TenantList() []string {
	if l.Tenants == "" {
		return nil
	}
	return strings.Split(l.Tenants, ",")
}

// ErrOtherCopy means that the newest backup at a destination was made from another copy of the store, and isn't part of
// this copy's history.
var ErrOtherCopy = errors.New("pebble: another copy of this store is backed up there")

// CheckNewest returns ErrOtherCopy unless the store's newest backup at a destination is part of this copy's history: it
// was made from this copy, or not after the backup from which the copy was restored.
func (l Lineage) CheckNewest(backup, copy string) error {
	if copy == l.Copy || backup <= l.RestoredFrom { // Names start with times.
		return nil
	}
	return fmt.Errorf("%w: backup %s isn't part of this directory's history, and would be replaced over time. Use "+
		"another destination for this copy, or, if the other copy is no longer used, run cassia backup "+
		"--take-over once", ErrOtherCopy, backup)
}

// NameLineage writes the lineage into a checkpoint for its backup. It does nothing if the lineage has no store.
func NameLineage(checkpoint string, l Lineage) error {
	if l.Store == "" {
		return nil
	}
	text := strings.Join([]string{l.Store, l.Copy, l.RestoredFrom, l.Host, l.Tenants}, "\n") + "\n"
	return writeSynced(vfs.Default, filepath.Join(checkpoint, StoreFile), strings.NewReader(text))
}

// LineageOf returns the lineage written by NameLineage.
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

// CheckCopy returns ErrOtherCopy if a backup of a checkpoint into a folder would follow backups of another copy of the
// store.
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
	if own = sortBackups(folder, own); len(own) == 0 {
		return nil
	}
	newest := own[len(own)-1]
	list, err := readList(filepath.Join(folder, newest))
	if err != nil {
		return err
	}
	return l.CheckNewest(newest, list.Copy)
}
