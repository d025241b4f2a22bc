package blocks

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/cassia-db/cassia/storage/rollup"
)

var (
	// errNoBlocks means that a folder contains no blocks.
	errNoBlocks = errors.New("blocks: no TSDB block found; a block is a folder with meta.json, index and chunks")
	// errDownsampled means that a block has aggregates of an unsupported resolution.
	errDownsampled = errors.New("blocks: unsupported resolution of a downsampled block; only 5m and 1h are supported")
	// errUndeclared means that a block has aggregates, but meta.json describes a block of samples.
	errUndeclared = errors.New(
		"blocks: meta.json doesn't declare a downsampled block, but the chunks are aggregates; set thanos.downsample.resolution in it to 300000 (5m) or 3600000 (1h), or move the block away to import the other blocks",
	)
	// errDeclared means that a block has samples, but meta.json describes a block of aggregates.
	errDeclared = errors.New(
		"blocks: meta.json declares a downsampled block, but the chunks are raw samples; remove thanos.downsample " +
			"from it, or move the block away to import the other blocks",
	)
	// errOutside means that a chunk has samples outside of the block's time range, on days on which it isn't read.
	errOutside = errors.New("samples are outside of the time range in meta.json; correct minTime and maxTime")
	// errDamaged means that a block can't be read.
	errDamaged = errors.New("blocks: damaged block")
)

// found is a block as described by its meta.json.
type found struct {
	dir  string
	meta tsdb.BlockMeta
	// external are the block's labels that Thanos or Mimir store in meta.json.
	external labels.Labels
	// resolution is the resolution of Thanos' aggregates, Raw if the block has samples.
	resolution rollup.Resolution
}

// until returns the exclusive end of the block's data, in milliseconds, at least 1 ms after its start. For aggregates
// it is the end of a whole window, because a window becomes a bucket that ends after its samples.
func (f *found) until() int64 {
	end := max(f.meta.MaxTime, f.meta.MinTime+1)
	if width := f.resolution.Width(); width > 0 {
		return (end+width-1)/width*width + 1
	}
	return end
}

// daysRead returns the range of times (first, last] that an import reads: all days that the block's time range
// overlaps. Windows must start in [first, last).
func (f *found) daysRead() (first, last int64) {
	return dayOf(f.meta.MinTime), dayOf(f.until()-1) + dayMS
}

// metaFile is the part of meta.json that is read.
type metaFile struct {
	tsdb.BlockMeta
	Thanos struct {
		Labels     map[string]string `json:"labels"`
		Downsample struct {
			Resolution int64 `json:"resolution"`
		} `json:"downsample"`
	} `json:"thanos"`
}

// find lists the blocks of folders by time. Each folder is a block or contains blocks.
func find(dirs []string) ([]found, error) {
	var list []found
	seen := map[string]bool{}
	for _, dir := range dirs {
		here, err := findIn(dir)
		if err != nil {
			return nil, err
		}
		for _, f := range here {
			if !seen[f.meta.ULID.String()] { // Skip copies of a block.
				seen[f.meta.ULID.String()] = true
				list = append(list, f)
			}
		}
	}
	slices.SortFunc(list, func(a, b found) int {
		return cmp.Or(cmp.Compare(a.meta.MinTime, b.meta.MinTime), a.meta.ULID.Compare(b.meta.ULID))
	})
	return list, nil
}

func findIn(dir string) ([]found, error) {
	f, err := readMeta(dir)
	if err == nil {
		return []found{f}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("blocks: %w", err)
	}
	var list []found
	for _, e := range entries {
		if _, err := ulid.ParseStrict(e.Name()); err != nil || !e.IsDir() {
			continue // wal, chunks_head, and blocks that are being written or deleted
		}
		f, err := readMeta(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w %s: meta.json is missing; move it away to import the other blocks",
				errDamaged, filepath.Join(dir, e.Name()))
		}
		if err != nil {
			return nil, err
		}
		list = append(list, f)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: %s", errNoBlocks, dir)
	}
	return list, nil
}

func readMeta(dir string) (found, error) {
	text, err := os.ReadFile(filepath.Join(dir, "meta.json"))
	if err != nil {
		return found{}, err
	}
	var m metaFile
	if err := json.Unmarshal(text, &m); err != nil {
		return found{}, fmt.Errorf("%w %s: meta.json: %w; move it away to import the other blocks",
			errDamaged, dir, err)
	}
	if m.MinTime > m.MaxTime {
		return found{}, fmt.Errorf(
			"%w %s: minTime is after maxTime in meta.json; move it away to import the other blocks", errDamaged, dir,
		)
	}
	resolution := slices.IndexFunc(
		[]rollup.Resolution{rollup.Raw, rollup.FiveMinutes, rollup.OneHour}, func(res rollup.Resolution) bool {
			return res.Width() == m.Thanos.Downsample.Resolution
		},
	)
	if resolution < 0 {
		return found{}, fmt.Errorf("%w: %s has %d ms", errDownsampled, dir, m.Thanos.Downsample.Resolution)
	}
	external := map[string]string{}
	for name, value := range m.Thanos.Labels {
		if !strings.HasPrefix(name, "__") { // Mimir's internal labels, such as the tenant and the shard
			external[name] = value
		}
	}
	return found{dir, m.BlockMeta, labels.FromMap(external), rollup.Resolution(resolution)}, nil
}
