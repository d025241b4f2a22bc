package tidy

import (
	"go/ast"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// mayDestroy contains the files that may delete rows, each with the reason.
var mayDestroy = []string{
	"storage/destroy.go",       // all other deletes
	"storage/paged/compact.go", // replaces chunks with a long chunk
	"storage/paged/outdone.go", // replaces a page with one without superseded entries
}

// executesDeletes reports whether a folder contains engines or wrappers of engines, which only execute deletes.
func executesDeletes(dir string) bool {
	return isWithin(dir, "storage/engine") || isWithin(dir, "storage/pebble") || isWithin(dir, "storage/cassandra")
}

// deletesRows reports whether a node deletes rows: it calls an engine's Drop, or names a mutation operation that
// deletes.
func deletesRows(n ast.Node) bool {
	switch x := n.(type) {
	case *ast.CallExpr:
		sel, ok := x.Fun.(*ast.SelectorExpr)
		return ok && sel.Sel.Name == "Drop" && len(x.Args) == 3
	case *ast.SelectorExpr:
		of, ok := x.X.(*ast.Ident)
		return ok && of.Name == "engine" && slices.Contains([]string{"Delete", "DeleteRange", "Clear"}, x.Sel.Name)
	}
	return false
}

// TestOneRoomDestroys checks that only the files in mayDestroy delete rows.
func TestOneRoomDestroys(t *testing.T) {
	found := map[string]bool{}
	for _, f := range goFiles(t) {
		if f.isTest || executesDeletes(f.dir()) {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if deletesRows(n) {
				found[f.path] = true
				require.Contains(t, mayDestroy, f.path,
					"line %d: rows go only by storage/destroy.go: add there what is to go, and what must be known before",
					f.fset.Position(n.Pos()).Line)
			}
			return true
		})
	}
	require.ElementsMatch(t, mayDestroy, slices.Collect(maps.Keys(found)), "the list is as long as it must be")
}
