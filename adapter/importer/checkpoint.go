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

// checkpointVersion is the version of the file format.
const checkpointVersion = 1

// ErrOtherImport means that a checkpoint belongs to another import.
var ErrOtherImport = errors.New("importer: the checkpoint belongs to another import")

// Checkpoint is the progress of an import.
type Checkpoint struct {
	Version int `json:"version"`
	// Source identifies the imported data by kind, location and selection. Target and Tenant identify the destination.
	Source string `json:"source"`
	Target string `json:"target"`
	Tenant string `json:"tenant"`
	// Store is the identity of the store.
	Store string `json:"store"`
	// Position is where the next run resumes. Done is the imported fraction of the source, from 0 to 1.
	Position string  `json:"position"`
	Done     float64 `json:"done"`
	// NewestMS is the newest timestamp read, in milliseconds. It is nil if no sample was read.
	NewestMS *int64 `json:"newest_ms,omitempty"`
	// Complete is true if the import reached the end of the source.
	Complete bool `json:"complete"`
	// Stats are the totals of all runs, without Refusals.
	Stats storage.ImportStats `json:"stats"`
	// Skipped is the number of samples of the source that couldn't be imported.
	Skipped int `json:"skipped"`
	// Damaged is the number of parts of the source that couldn't be read.
	Damaged int `json:"damaged"`
}

// readCheckpoint reads the checkpoint at path. Source, target and tenant must equal those in want; otherwise it returns
// ErrOtherImport. If there is no checkpoint, it returns want. If the checkpoint belongs to another store, it returns
// want and sets anew, because the samples that earlier runs imported are missing from this store.
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
		return want, false, fmt.Errorf("importer: %s is not a checkpoint of this version; remove it to start again",
			path)
	}
	for _, f := range []struct{ what, have, want string }{
		{"source", have.Source, want.Source}, {"target", have.Target, want.Target},
		{"tenant", have.Tenant, want.Tenant},
	} {
		if f.have != f.want {
			return want, false, fmt.Errorf("%w: %s has the %s %q, not %q; remove it, or choose another file",
				ErrOtherImport, path, f.what, f.have, f.want)
		}
	}
	if have.Store != want.Store {
		return want, true, nil
	}
	return have, false, nil
}

// updateNewest updates NewestMS from the samples of a batch.
func (c *Checkpoint) updateNewest(list []storage.ImportedSeries) {
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

// write replaces the checkpoint file atomically and durably. After a crash the file holds the old or the new
// checkpoint.
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
