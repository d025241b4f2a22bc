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

// rememberedSuffix is the suffix of a JSON file next to the snapshots folder. It maps the path of each backup folder to
// the name of the last backup made there. If a backup folder is empty, the file shows whether the folder is new or its
// disk isn't mounted.
const rememberedSuffix = ".backups"

// Warning returns why the folder may not be the one with the earlier backups of a store, or "". checkpoint is a
// checkpoint of the store, and snapshots its folder of snapshots.
func (p *Place) Warning(snapshots, checkpoint string) string {
	last := remembered(snapshots)[resolve(p.At)]
	if p.InBucket() || last == "" {
		return ""
	}
	lineage, err := pebble.LineageOf(checkpoint)
	if err != nil {
		return "" // The same error will occur when the backup is made.
	}
	if list, err := pebble.Backups(p.At, lineage.Store); err != nil || len(list) > 0 {
		return ""
	}
	return fmt.Sprintf(
		"%s has none of the earlier backups (the last one was %s); check that its disk is mounted. This backup "+
			"shares no files with them",
		p.At, last,
	)
}

// Remember records that a backup was made at the location.
func (p *Place) Remember(snapshots, name string) error {
	if p.InBucket() {
		return nil
	}
	all := remembered(snapshots)
	if all == nil {
		all = map[string]string{}
	}
	all[resolve(p.At)] = name
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

// remembered returns the content of the file. If it can't be read, the result is empty, which at most loses a warning.
func remembered(snapshots string) (last map[string]string) {
	text, err := os.ReadFile(snapshots + rememberedSuffix)
	if err != nil || json.Unmarshal(text, &last) != nil {
		return nil
	}
	return last
}
