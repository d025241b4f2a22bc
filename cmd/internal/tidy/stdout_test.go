package tidy

import (
	"fmt"
	"go/ast"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCommandsPrintByOneWriter checks that commands print with the variable stdout of cmd/cassia. This variable records
// write errors, so that a command fails if its output is lost.
func TestCommandsPrintByOneWriter(t *testing.T) {
	found := 0
	for _, f := range productionFiles(t) {
		if f.dir() != "cmd/cassia" || f.path == "cmd/cassia/stdout.go" {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			name := fmt.Sprint(s.X) + "." + s.Sel.Name
			if name == "os.Stdout" || strings.HasPrefix(name, "fmt.Print") {
				t.Errorf("%s: %s ignores errors of writing: print to stdout", f.fset.Position(n.Pos()), name)
			}
			if strings.HasPrefix(name, "fmt.Fprint") {
				found++
			}
			return true
		})
	}
	require.Greater(t, found, 50)
}
