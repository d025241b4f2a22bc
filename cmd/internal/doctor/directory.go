package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/pebble"
)

// DirectoryFacts holds what the operating system reports about a directory.
type DirectoryFacts struct {
	Path string
	// Bytes is the disk usage of the directory, as measured by du. Free and Total are sizes of its file system; 0 if
	// unknown.
	Bytes, Free, Total int64
}

// ReadDirectory reads the facts from the operating system. The directory must exist. Files that are deleted
// concurrently aren't counted.
func ReadDirectory(path string) (DirectoryFacts, error) {
	d := DirectoryFacts{Path: path}
	if _, err := os.ReadDir(path); err != nil {
		return d, err
	}
	bytes, err := pebble.Bytes(path)
	d.Bytes = int64(bytes)
	d.Free, d.Total = freeSpace(path)
	return d, err
}

// spaceOf contains the description of each part of an engine's disk usage. The parts without an entry are summed up
// under names.
var spaceOf = map[string]string{
	engine.Raw.Name: "samples", engine.R5m.Name: "buckets of 5 minutes", engine.R1h.Name: "buckets of an hour",
	engine.RawPages.Name: "samples", engine.R5mPages.Name: "buckets of 5 minutes",
	engine.R1hPages.Name: "buckets of an hour",
	engine.Stage.Name:    unsealedKind, engine.Staged.Name: unsealedKind, engine.Defined.Name: unsealedKind,
	engine.Held.Name: unsealedKind,
	pebble.SpaceLog:  "log", pebble.SpaceFree: "to be released soon", pebble.SpaceOther: "other files",
}

const (
	unsealedKind = "unsealed samples"
	namesKind    = "names, seal records and settings"
)

// SpaceFinding lists the parts of a directory's disk usage, the largest first.
func SpaceFinding(space map[string]int64) Finding {
	sums, all := map[string]int64{}, int64(0)
	for of, n := range space {
		sums[cmp.Or(spaceOf[of], namesKind)] += n
		all += n
	}
	var parts []string
	for _, of := range slices.SortedFunc(maps.Keys(sums),
		func(a, b string) int { return cmp.Or(cmp.Compare(sums[b], sums[a]), cmp.Compare(a, b)) }) {
		if sums[of] > 0 {
			parts = append(parts, of+" "+bytesText(sums[of]))
		}
	}
	return ok("%s on disk: %s", bytesText(all), strings.Join(parts, ", "))
}

const (
	// reservedSpace is the free space below which the embedded engine rejects writes.
	reservedSpace = 512 << 20
	// scarceSpace is the free space below which an operator should act. Some must be left because compaction needs
	// space before it releases space.
	scarceSpace   = 4 << 30
	scarcePercent = 5
)

// FreeSpace returns the free and the total bytes of the file system that contains a directory; 0, 0 if unknown.
func FreeSpace(path string) (free, total int64) { return freeSpace(path) }

// LevelOf returns the level of the finding about free space.
func LevelOf(free, total int64) Level {
	switch {
	case total == 0:
		return OK
	case free <= reservedSpace:
		return Error
	case free < min(scarceSpace, total/2) || free < total/100*scarcePercent:
		return Warning
	default:
		return OK
	}
}

// CheckDirectory checks the free space.
func CheckDirectory(d DirectoryFacts) Finding {
	what := fmt.Sprintf("%s uses %s", d.Path, bytesText(d.Bytes))
	if d.Total == 0 {
		return ok("%s; the free disk space can't be determined on this system", what)
	}
	what += fmt.Sprintf("; %s of %s free", bytesText(d.Free), bytesText(d.Total))
	f := Finding{OK, what, "below 512 MiB of free space no samples are accepted, and compaction needs free space too",
		"enlarge the file system, or shorten the retention: --retention.raw"}
	if f.Level = LevelOf(d.Free, d.Total); f.Level == OK {
		return ok("%s", what)
	}
	return f
}

func bytesText(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	v, prefixes := float64(n)/unit, "KMGTPE"
	for len(prefixes) > 1 && v >= unit {
		v, prefixes = v/unit, prefixes[1:]
	}
	return fmt.Sprintf("%.1f %ciB", v, prefixes[0])
}
