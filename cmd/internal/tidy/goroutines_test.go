package tidy

import (
	"fmt"
	"go/ast"
	"path"
	"testing"

	"github.com/stretchr/testify/require"
)

// unrecoveredGoroutines contains the goroutines of a server that don't use package panics to recover from panics. The
// keys are the file and the function that starts the goroutine, and the values are the reasons.
var unrecoveredGoroutines = map[string]string{
	"storage/store.go Open": "the committer: after a panic its streams are half changed; the process ends, and a restart replays all that is durable",

	"cmd/cassia/front.go listen":         "it waits for the server",
	"cmd/cassia/serve.go run":            "the process itself, which a panic ends",
	"promql/pressure.go startCollection": "it calls the garbage collector",

	"cmd/internal/server/server.go Serve":            "it waits for net/http, whose goroutines recover each request",
	"cmd/internal/server/server.go drainConnections": "it waits for net/http to stop",

	"storage/pebble/engine.go OpenContext":     "a start that panics ends the process",
	"storage/pebble/engine.go Close":           "the process is about to end",
	"storage/pebble/engine.go closeDB":         "Pebble's panics mean that files can't be written any more; the process is about to end",
	"storage/pebble/excise.go startExciser":    "likewise",
	"storage/pebble/reclaim.go startReclaimer": "likewise",
	"storage/pebble/write.go run":              "guard makes an error of Pebble's panics, and ends the process in order",
}

// ofCommands contains prefixes of folders whose goroutines run only in commands. A panic may terminate a command.
var ofCommands = []string{"adapter/importer/", "cmd/internal/bench/"}

// TestGoroutinesRecover checks that a panic in a goroutine doesn't terminate the server: package panics must wrap the
// goroutine, or each part of its work.
func TestGoroutinesRecover(t *testing.T) {
	unused := map[string]bool{}
	for name := range unrecoveredGoroutines {
		unused[name] = true
	}
	found := 0
	for _, f := range productionFiles(t) {
		if startsWithAny(f.dir(), ofCommands) || path.Base(f.dir()) == "panics" {
			continue
		}
		for _, decl := range f.ast.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			name := f.path + " " + fn.Name.Name
			ast.Inspect(fn, func(n ast.Node) bool {
				if !startsGoroutine(n) {
					return true
				}
				found++
				if callsPanics(n) {
					return true
				}
				if _, ok := unrecoveredGoroutines[name]; ok {
					delete(unused, name)
					return true
				}
				t.Errorf(
					"%s: a goroutine that panics ends the process: wrap it by package panics, or say in goroutines_test.go why not",
					f.fset.Position(n.Pos()),
				)
				return true
			})
		}
	}
	require.Greater(t, found, 30)
	require.Empty(t, unused, "nothing needs these any more: remove them from the list")
}

// startsGoroutine reports whether a node is a go statement, or a call of the method Go of sync.WaitGroup or
// errgroup.Group.
func startsGoroutine(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		return true
	case *ast.CallExpr:
		f, ok := n.Fun.(*ast.SelectorExpr)
		return ok && f.Sel.Name == "Go" && len(n.Args) == 1
	}
	return false
}

// callsPanics reports whether a node contains a call of package panics.
func callsPanics(n ast.Node) (does bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return !does
		}
		if f, ok := call.Fun.(*ast.SelectorExpr); ok && fmt.Sprint(f.X) == "panics" {
			does = true
		}
		return !does
	})
	return does
}
