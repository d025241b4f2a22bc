package doctor

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// DirectoryFacts are what the operating system says of a directory.
type DirectoryFacts struct {
	Path string
	// Bytes are those of its files; Free and Total those of the file system that it lies in, 0 if not known.
	Bytes, Free, Total int64
}

// LookAtDirectory asks the operating system. The directory must exist; files that go meanwhile don't count.
func LookAtDirectory(path string) (DirectoryFacts, error) {
	d := DirectoryFacts{Path: path}
	if _, err := os.ReadDir(path); err != nil {
		return d, err
	}
	err := filepath.WalkDir(path, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil
		}
		if info, err := entry.Info(); err == nil {
			d.Bytes += info.Size()
		}
		return nil
	})
	d.Free, d.Total = space(path)
	return d, err
}

const (
	// reserve is where the embedded engine stops taking writes.
	reserve = 512 << 20
	// scarce is where an operator should act: merging files takes room before it gives some back.
	scarce        = 4 << 30
	scarcePercent = 5
)

// Directory looks at the room that is left.
func Directory(d DirectoryFacts) Finding {
	what := fmt.Sprintf("%s holds %s", d.Path, bytesText(d.Bytes))
	if d.Total == 0 {
		return ok("%s; how much room is left isn't known on this system", what)
	}
	what += fmt.Sprintf("; %s of %s are free", bytesText(d.Free), bytesText(d.Total))
	f := Finding{OK, what, "below 512 MiB no samples are taken, and merging files needs room of its own",
		"give the file system more room, or keep less: --retention.raw"}
	switch {
	case d.Free <= reserve:
		f.Level = Error
	case d.Free < min(scarce, d.Total/2) || d.Free < d.Total/100*scarcePercent:
		f.Level = Warning
	default:
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
