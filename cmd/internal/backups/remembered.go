package backups

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cassia-db/cassia/storage/pebble"
)

// rememberedSuffix is the suffix of a JSON file next to the snapshots folder. The file maps the path of each backup
// folder to the name of the last backup made there. With it, an empty backup folder whose disk isn't mounted can be
// distinguished from a new one.
const rememberedSuffix = ".backups"

// LocationWarning returns the reason why the folder may not be the one that contains the earlier backups, or "".
// checkpoint is a checkpoint of the store, and snapshots is the store's folder of snapshots.
func (l *Location) LocationWarning(snapshots, checkpoint string) string {
	last := readRecorded(snapshots)[resolvePath(l.At)]
	if l.InBucket() || last == "" {
		return ""
	}
	lineage, err := pebble.LineageOf(checkpoint)
	if err != nil {
		return "" // The same error will occur when the backup is made.
	}
	if list, err := pebble.Backups(l.At, lineage.Store); err != nil || len(list) > 0 {
		return ""
	}
	return fmt.Sprintf(
		"%s has none of the earlier backups (the last one was %s); check that its disk is mounted. This backup "+
			"shares no files with them",
		l.At, last,
	)
}

// RecordBackup records that a backup with the given name was made at the location.
func (l *Location) RecordBackup(snapshots, name string) error {
	if l.InBucket() {
		return nil
	}
	all := readRecorded(snapshots)
	if all == nil {
		all = map[string]string{}
	}
	all[resolvePath(l.At)] = name
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	path := snapshots + rememberedSuffix
	temporary := fmt.Sprintf("%s.%d", path, os.Getpid())
	err = os.WriteFile(temporary, append(text, '\n'), 0o644)
	if err == nil {
		err = giveTo(filepath.Dir(snapshots), temporary)
	}
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return errors.Join(err, removeIfThere(temporary))
	}
	return nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// readRecorded returns the contents of the file. If the file can't be read, the result is empty, so that a warning may
// be missing.
func readRecorded(snapshots string) (last map[string]string) {
	text, err := os.ReadFile(snapshots + rememberedSuffix)
	if err != nil || json.Unmarshal(text, &last) != nil {
		return nil
	}
	return last
}
