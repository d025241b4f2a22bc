package tidy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// maxColumns is the max width of a line. A tab counts as tabColumns columns.
const maxColumns, tabColumns = 120, 4

// longLines contains the max number of lines wider than maxColumns, by folder. Most are in tables with one case per
// line, or texts that can't be split. A number may only be reduced. A folder without such lines must be removed.
var longLines = map[string]int{
	"adapter":                      1,
	"adapter/exporter":             1,
	"adapter/importer/blocks":      4,
	"adapter/importer/kairosdb":    9,
	"adapter/importer/lines":       9,
	"adapter/importer/victoria":    4,
	"adapter/jsonapi":              9,
	"adapter/metadata":             7,
	"adapter/otlp":                 9,
	"adapter/relabeling":           23,
	"adapter/remotewrite":          29,
	"cmd/cassia":                   109,
	"cmd/internal/auth":            32,
	"cmd/internal/backups":         2,
	"cmd/internal/bench":           2,
	"cmd/internal/cli":             7,
	"cmd/internal/config":          21,
	"cmd/internal/doctor":          17,
	"cmd/internal/e2e":             40,
	"cmd/internal/lasting":         3,
	"cmd/internal/manual":          2,
	"cmd/internal/s3":              13,
	"cmd/internal/s3/s3test":       1,
	"cmd/internal/server":          18,
	"cmd/internal/tidy":            51,
	"cmd/internal/tidy/wordings":   42,
	"cmd/internal/ui":              26,
	"cmd/tools/benchmarks/compare": 9,
	"cmd/tools/benchmarks/kairos":  7,
	"cmd/tools/benchmarks/rollups": 8,
	"cmd/tools/broken":             67,
	"docker/helm":                  3,
	"downsample":                   6,
	"promql":                       34,
	"promql/api":                   13,
	"promql/bucketfn":              5,
	"promql/bucketfn/bucketfntest": 2,
	"promql/resolution":            64,
	"promql/ruler":                 15,
	"storage":                      146,
	"storage/cassandra":            10,
	"storage/cassandra/kairosdb":   7,
	"storage/chunk":                11,
	"storage/format":               2,
	"storage/index":                1,
	"storage/page":                 2,
	"storage/paged":                86,
	"storage/pebble":               26,
	"storage/pebble/objects":       2,
	"storage/retention":            1,
	"storage/rollup":               17,
	"storage/rollup/expand":        23,
	"storage/tenant":               12,
}

// columnsOf returns the width of a line.
func columnsOf(line string) int {
	return utf8.RuneCountInString(line) + (tabColumns-1)*strings.Count(line, "\t")
}

// TestLinesAreShort checks that no folder has more long lines than longLines allows. Comments have no long lines,
// except in drawings.
func TestLinesAreShort(t *testing.T) {
	t.Parallel()
	found := map[string][]string{}
	for _, f := range goFiles(t) {
		if f.isGenerated {
			continue
		}
		for i, line := range strings.Split(string(f.content), "\n") {
			if columnsOf(line) > maxColumns && !strings.HasPrefix(strings.TrimSpace(line), "//") {
				found[f.dir()] = append(found[f.dir()], fmt.Sprintf("%s:%d", f.path, i+1))
			}
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(found)) {
		if lines, bound := found[folder], longLines[folder]; len(lines) > bound {
			t.Errorf("%s: %d lines have more than %d columns, at most %d are allowed: break some of these\n%s",
				folder, len(lines), maxColumns, bound, strings.Join(lines, "\n"))
		}
	}
	for folder := range longLines {
		require.Contains(t, found, folder, "longLines names a folder without long lines: remove it")
	}
}
