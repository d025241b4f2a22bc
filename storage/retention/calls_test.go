package retention

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// filesOf parses the files that match any of the patterns, except tests.
func filesOf(t *testing.T, patterns ...string) map[string]*ast.File {
	files := map[string]*ast.File{}
	for _, pattern := range patterns {
		paths, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			f, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
			require.NoError(t, err)
			files[path] = f
		}
	}
	return files
}

// TestCallsOfASelection limits the number of calls of this package's exported methods in the part of package query that
// answers a selection.
func TestCallsOfASelection(t *testing.T) {
	methods := []string{"Days", "At"}
	for m := range reflect.TypeFor[*Keeper]().Methods() {
		methods = append(methods, m.Name)
	}
	// These files don't answer selections.
	others := []string{"counting.go", "exemplars.go", "boundaries.go", "seen.go", "span.go"}
	var calls []string
	for path, f := range filesOf(t, "../query/*.go") {
		if slices.Contains(others, filepath.Base(path)) {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains(methods, sel.Sel.Name) {
				return true
			}
			if of, ok := sel.X.(*ast.SelectorExpr); ok &&
				slices.Contains([]string{"retention", "days", "env"}, strings.ToLower(of.Sel.Name)) {
				calls = append(calls, sel.Sel.Name)
			}
			return true
		})
	}
	require.Contains(t, calls, "VisibleRows")
	require.LessOrEqual(t, len(calls), 4, "a query takes what it sees from VisibleRows: %v", calls)
}

// TestFilesThatKnowExpiries limits the files of the store that read or set expiries. All other files must call
// SetExpiry, UnexpiredClasses or Placement.
func TestFilesThatKnowExpiries(t *testing.T) {
	names := []string{"Expiry", "Expires", "Expiring", "ExpiresRows", "Margin", "LastExpiry"}
	known := map[string]bool{}
	for path, f := range filesOf(t, "../*.go", "../query/*.go") {
		ast.Inspect(f, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && slices.Contains(names, id.Name) {
				known[path] = true
			}
			return true
		})
	}
	require.Contains(t, known, "../row_writer.go")
	require.LessOrEqual(t, len(known), 10,
		"have package retention decide by the expiries of windows: %v", slices.Sorted(maps.Keys(known)))
}
