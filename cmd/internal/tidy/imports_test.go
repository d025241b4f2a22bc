package tidy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// importLaw lists the packages of this module that the packages in a folder may import, in addition to packages in the
// same folder. If multiple laws match a package, the one with the longest folder applies.
type importLaw struct {
	folder string
	may    []string
	// isApart is set if the subfolders of the folder must not import each other.
	isApart bool
}

// importLaws contains the laws of imports: cmd → {adapter, promql, downsample} → storage → storage/engine ← {pebble,
// cassandra}.
var importLaws = []importLaw{
	{folder: "cmd", may: []string{"adapter", "promql", "downsample", "storage"}},
	{folder: "cmd/internal/cassiatest", may: []string{"cmd/internal/promrig", "storage"}},
	{folder: "adapter", may: append([]string{"storage/inspect"}, storageWithoutDrivers...), isApart: true},
	{folder: "promql", may: append([]string{"=promql/bucketfn", "promql/resolution"}, storageWithoutDrivers...)},
	{folder: "promql/bucketfn", may: []string{"storage/chunk", "storage/rollup"}},
	{folder: "promql/bucketfn/bucketfntest", may: []string{"=promql/bucketfn", "storage/chunk", "storage/rollup", "storage/soak"}},
	{folder: "promql/resolution", may: []string{"=promql/bucketfn", "storage/chunk", "storage/rollup"}},
	{folder: "downsample", may: storageWithoutDrivers},
	{folder: "storage", may: append([]string{"storage/cache", "storage/head", "storage/page", "storage/paged"}, storageWithoutDrivers...)},
	{folder: "storage/engine"},
	{folder: "storage/paged", may: []string{"storage/engine", "storage/chunk", "storage/format", "storage/page", "storage/rollup"}},
	{folder: "storage/pebble", may: []string{"storage/engine", "storage/panics"}},
	{folder: "storage/cassandra", may: []string{"storage/engine", "storage/panics"}},
	{folder: "storage/chunk"},
	{folder: "storage/format", may: []string{"storage/engine", "storage/chunk", "storage/labelorder", "storage/rollup"}},
	{folder: "storage/inspect", may: []string{"=storage", "storage/engine", "storage/chunk", "storage/format", "storage/membership", "storage/page", "storage/panics", "storage/retention", "storage/rollup", "storage/starts"}},
	{folder: "storage/ha", may: []string{"storage/engine", "storage/format", "storage/membership", "storage/panics"}},
	{folder: "storage/membership", may: []string{"storage/engine", "storage/format", "storage/panics"}},
	{folder: "storage/head", may: []string{"storage/engine", "storage/chunk", "storage/format", "storage/index", "storage/rollup"}},
	{folder: "storage/starts", may: []string{"storage/engine", "storage/format"}},
	{folder: "storage/bounds"},
	{folder: "storage/labelorder"},
	{folder: "storage/panics"},
	{folder: "storage/meter", may: []string{"storage/tenant"}},
	{folder: "storage/deletemodel"},
	{folder: "storage/damage", may: []string{"storage/engine", "storage/format"}},
	{folder: "storage/ended", may: []string{"storage/chunk", "storage/engine", "storage/format", "storage/rollup"}},
	{folder: "storage/retention", may: []string{"storage/bounds", "storage/engine", "storage/format", "storage/head", "storage/membership", "storage/rollup"}},
	{folder: "storage/counts", may: []string{"storage/cache", "storage/chunk", "storage/damage", "storage/ended", "storage/engine", "storage/format", "storage/head", "storage/meter", "storage/rollup"}},
	{folder: "storage/query", may: []string{
		"storage/cache", "storage/chunk", "storage/counts", "storage/damage", "storage/ended", "storage/engine",
		"storage/format", "storage/head", "storage/index", "storage/labelorder", "storage/meter", "storage/page",
		"storage/paged", "storage/panics", "storage/retention", "storage/rollup", "storage/tenant",
	}},
	{folder: "storage/check", may: []string{"storage/chunk", "storage/counts", "storage/damage", "storage/ended", "storage/engine", "storage/format", "storage/head", "storage/paged", "storage/rollup"}},
	{folder: "storage/cache", may: []string{"storage/meter"}},
	{folder: "storage/tenant", may: []string{"storage/bounds"}},
	{folder: "storage/index", may: []string{"storage/chunk", "storage/meter", "storage/tenant"}},
	{folder: "storage/page", may: []string{"storage/engine", "storage/chunk", "storage/format", "storage/rollup"}},
	{folder: "storage/rollup", may: []string{"storage/chunk"}},
	{folder: "storage/rollup/expand", may: []string{"storage/chunk", "=storage/rollup"}},
	{folder: "storage/storagetest", may: []string{"=storage", "storage/engine", "storage/membership", "storage/pebble"}},
}

// "=storage" means the package itself, without the packages below it.
var storageWithoutDrivers = []string{
	"=storage", "storage/bounds", "storage/check", "storage/counts", "storage/ended", "storage/engine", "storage/chunk",
	"storage/damage", "storage/format", "storage/ha", "storage/index", "storage/labelorder", "storage/membership",
	"storage/meter", "storage/panics", "storage/query", "storage/retention", "storage/rollup", "storage/starts",
	"storage/tenant",
}

// forTests contains packages that tests of any package may also import. They open stores on a real engine, and provide
// seeds.
var forTests = []string{
	"storage/pebble", "storage/cassandra", "storage/soak", "storage/storagetest", "promql/bucketfn/bucketfntest",
	"cmd/internal/cassiatest",
}

// onlyIn contains external libraries that only one folder may import.
var onlyIn = map[string]string{
	"github.com/cockroachdb/pebble": "storage/pebble",
	"github.com/gocql/gocql":        "storage/cassandra",
}

func isWithin(pkg, folder string) bool {
	if exact, ok := strings.CutPrefix(folder, "="); ok {
		return pkg == exact
	}
	return pkg == folder || strings.HasPrefix(pkg, folder+"/")
}

func lawOf(pkg string) (importLaw, bool) {
	var best importLaw
	for _, l := range importLaws {
		if isWithin(pkg, l.folder) && len(l.folder) > len(best.folder) {
			best = l
		}
	}
	return best, best.folder != ""
}

// brokenLaw returns the reason why package from may not import package to, or "" if it may. Both paths are relative to
// the module.
func brokenLaw(from, to string, test bool) string {
	l, ok := lawOf(from)
	if !ok {
		return fmt.Sprintf("no house is known for %s: put code into adapter, cmd, downsample, promql or storage", from)
	}
	if test {
		for _, folder := range forTests {
			if isWithin(to, folder) {
				return ""
			}
		}
	}
	if other, _ := lawOf(to); other.folder == l.folder {
		if l.isApart && childFolder(from, l.folder) != childFolder(to, l.folder) && childFolder(to, l.folder) != "" {
			return fmt.Sprintf("%s and %s are siblings: move what both need below them, or pass it in from cmd",
				from, to)
		}
		return ""
	}
	for _, folder := range l.may {
		if isWithin(to, folder) {
			return ""
		}
	}
	return fmt.Sprintf("%s may not import %s (imports go cmd → adapter, promql, downsample → storage → storage/engine "+
		"← drivers): declare a small interface where it is used, and let cmd pass the other side in", from, to)
}

// childFolder returns the name of the direct subfolder of folder that contains the package.
func childFolder(pkg, folder string) string {
	rest := strings.TrimPrefix(strings.TrimPrefix(pkg, folder), "/")
	name, _, _ := strings.Cut(rest, "/")
	return name
}

func TestImportsGoOneWay(t *testing.T) {
	for _, f := range goFiles(t) {
		for _, imported := range f.imports() {
			if to, ours := strings.CutPrefix(imported, modulePath); ours {
				require.Empty(t, brokenLaw(f.dir(), to, f.isTest), "in %s", f.path)
			}
			for library, home := range onlyIn {
				if isWithin(imported, library) || strings.HasPrefix(imported, library+"/") {
					require.True(t, isWithin(f.dir(), home),
						"%s imports %s, which only %s may: use storage/engine instead", f.path, imported, home)
				}
			}
		}
	}
}

func TestLawOfImports(t *testing.T) {
	for _, c := range []struct {
		from, to string
		test, ok bool
	}{
		{"cmd/cassia", "storage/pebble", false, true},
		{"cmd/cassia", "cmd/internal/bench", false, true},
		{"cmd/cassia", "cmd/internal/cassiatest", true, true},
		{"cmd/cassia", "cmd/internal/cassiatest", false, false},
		{"adapter/remotewrite", "storage", false, true},
		{"adapter/remotewrite", "storage/tenant", false, true},
		{"adapter/remotewrite", "storage/pebble", false, false},
		{"adapter/remotewrite", "storage/pebble", true, true},
		{"adapter/remotewrite", "adapter/remoteread", false, false},
		{"adapter/remotewrite", "promql", false, false},
		{"promql", "downsample", false, false},
		{"promql/api", "promql", false, true},
		{"promql", "promql/bucketfn", false, true},
		{"promql/bucketfn", "promql", true, false},
		{"promql/bucketfn", "storage", false, false},
		{"promql/resolution", "promql/bucketfn", false, true},
		{"promql/resolution", "promql", false, false},
		{"promql/resolution", "promql/bucketfn/bucketfntest", true, true},
		{"promql/resolution", "promql/bucketfn/bucketfntest", false, false},
		{"downsample", "cmd/internal/bench", false, false},
		{"storage", "downsample", false, false},
		{"storage", "storage/engine", false, true},
		{"storage", "storage/pebble", false, false},
		{"storage/engine", "storage", false, false},
		{"storage/engine/enginetest", "storage/engine", false, true},
		{"storage/pebble", "storage", false, false},
		{"adapter/remotewrite", "storage/storagetest", true, true},
		{"adapter/remotewrite", "storage/storagetest", false, false},
		{"storage/pebble", "storage/cassandra", false, false},
		{"storage/pebble", "storage/engine/enginetest", true, true},
		{"storage/chunk", "storage", false, false},
		{"storage", "storage/format", false, true},
		{"storage/format", "storage/engine", false, true},
		{"storage/format", "storage", true, false},
		{"storage/format", "storage/index", false, false},
		{"storage", "storage/head", false, true},
		{"storage/head", "storage/format", false, true},
		{"storage/head", "storage", true, false},
		{"storage/head", "storage/tenant", false, false},
		{"adapter/remotewrite", "storage/head", false, false},
		{"storage", "storage/page", false, true},
		{"storage/inspect", "storage/page", false, true},
		{"storage/page", "storage/format", false, true},
		{"storage/page", "storage", true, false},
		{"storage/rollup/expand", "storage/rollup", false, true},
		{"storage/rollup", "storage/rollup/expand", true, false},
		{"storage", "storage/paged", false, true},
		{"storage/paged", "storage/page", false, true},
		{"storage/paged", "storage", true, false},
		{"tools", "storage", false, false},
	} {
		reason := brokenLaw(c.from, c.to, c.test)
		require.Equal(t, c.ok, reason == "", "%s → %s (test file: %v): %s", c.from, c.to, c.test, reason)
	}
}
