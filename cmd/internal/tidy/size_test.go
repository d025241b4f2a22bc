package tidy

import (
	"go/ast"
	"testing"

	"github.com/stretchr/testify/require"
)

// maxFunctionLines is the max number of lines of a function. A longer function usually consists of parts that should be
// separate functions with names.
const maxFunctionLines = 70

// longFunctions contains the functions that may be longer than maxFunctionLines, each with the reason. Test functions
// may always be longer because of their tables.
var longFunctions = map[string]string{}

func TestFunctionsAreShort(t *testing.T) {
	for _, f := range goFiles(t) {
		if f.isGenerated || f.isTest {
			continue
		}
		for _, decl := range f.ast.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || longFunctions[f.path+" "+fn.Name.Name] != "" {
				continue
			}
			lines := f.fset.Position(fn.End()).Line - f.fset.Position(fn.Pos()).Line + 1
			require.LessOrEqual(t, lines, maxFunctionLines,
				"%s: %s has %d lines: give the steps in it names", f.path, fn.Name.Name, lines)
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	documented := map[string]bool{}
	for _, f := range goFiles(t) {
		documented[f.dir()] = documented[f.dir()] || f.ast.Doc != nil
	}
	for dir, ok := range documented {
		require.True(t, ok,
			"%s: begin one of its files (or a doc.go) with a comment that says what the package is", dir)
	}
}
