package importer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"

	"github.com/prometheus/prometheus/tsdb/fileutil"

	"github.com/cassia-db/cassia/storage"
)

// checkpointVersion is that of the file's format.
const checkpointVersion = 1

// ErrOtherImport means that a checkpoint belongs to another import.
var ErrOtherImport = errors.New("importer: the checkpoint belongs to another import")

// Checkpoint is how far an import came.
type Checkpoint struct {
	Version int `json:"version"`
	// Source identifies what is imported by its kind, place and selection. Target and Tenant are the destination.
	Source string `json:"source"`
	Target string `json:"target"`
	Tenant string `json:"tenant"`
	// Store is the identity of the store.
	Store string `json:"store"`
	// Position is where to go on; Done how much is done, from 0 to 1.
	Position string  `json:"position"`
	Done     float64 `json:"done"`
	// NewestMS is the newest timestamp that was read, milliseconds; nil: no sample was.
	NewestMS *int64 `json:"newest_ms,omitempty"`
	// Complete: the source had no more.
	Complete bool `json:"complete"`
	// Stats are those of all runs, without their refusals.
	Stats storage.ImportStats `json:"stats"`
	// Skipped samples could not be taken from the source.
	Skipped int `json:"skipped"`
	// Damaged parts of the source could not be read.
	Damaged int `json:"damaged"`
}

// readCheckpoint reads the checkpoint of the import that is like want, which is what comes back where there is none, or one
// of another store at the same place: the samples that were imported into the other are missing there. anew is true then.
func readCheckpoint(path string, want Checkpoint) (at Checkpoint, anew bool, err error) {
	want.Version = checkpointVersion
	if path == "" {
		return want, false, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return want, false, nil
	}
	if err != nil {
		return want, false, fmt.Errorf("importer: reading the checkpoint: %w", err)
	}
	var have Checkpoint
	if err := json.Unmarshal(text, &have); err != nil || have.Version != checkpointVersion {
		return want, false, fmt.Errorf("importer: %s is not a checkpoint of this version; remove it to start again", path)
	}
	for _, f := range []struct{ what, have, want string }{
		{"source", have.Source, want.Source}, {"target", have.Target, want.Target}, {"tenant", have.Tenant, want.Tenant},
	} {
		if f.have != f.want {
			return want, false, fmt.Errorf("%w: %s has the %s %q, not %q; remove it, or choose another file", ErrOtherImport, path, f.what, f.have, f.want)
		}
	}
	if have.Store != want.Store {
		return want, true, nil
	}
	return have, false, nil
}

// note notes the newest timestamp of a batch.
func (c *Checkpoint) note(list []storage.ImportedSeries) {
	newest := int64(math.MinInt64)
	if c.NewestMS != nil {
		newest = *c.NewestMS
	}
	for i := range list {
		eachTime(list[i].Samples, func(t int64) { newest = max(newest, t) })
	}
	if newest != math.MinInt64 {
		c.NewestMS = &newest
	}
}

// write puts the checkpoint in place of the one before, durably: a crash leaves either.
func (c *Checkpoint) write(path string) (err error) {
	if path == "" {
		return nil
	}
	kept := *c
	kept.Stats.Refusals = nil
	text, err := json.MarshalIndent(&kept, "", "  ")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("importer: writing the checkpoint: %w", err)
		}
	}()
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(slices.Concat(text, []byte("\n")))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return fileutil.Rename(path+".new", path)
}
