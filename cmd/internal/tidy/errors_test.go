package tidy

import (
	"go/ast"
	"go/token"
	"path"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
)

// spokenPackages contains packages whose names are also words that users read. storage.PlainText doesn't remove these
// names from errors.
var spokenPackages = map[string]bool{"auth": true, "cassandra": true, "kairosdb": true, "server": true, "tenant": true}

// forDevelopers contains prefixes of folders with programs and helpers that only developers use.
var forDevelopers = []string{
	"cmd/tools/", "cmd/internal/promrig", "cmd/internal/s3/s3test", "storage/cassandra/cassandratest",
	"storage/engine/faultengine",
}

// TestErrorsAreShownWithoutPackages checks that storage.PlainText removes the package name from the start of every
// error.
func TestErrorsAreShownWithoutPackages(t *testing.T) {
	found := 0
	for _, f := range goFiles(t) {
		name := f.ast.Name.Name
		if f.isTest || name == "main" || spokenPackages[name] || startsWithAny(f.dir(), forDevelopers) {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			text, ok := errorText(n)
			if !ok || !strings.HasPrefix(text, name+": ") {
				return true
			}
			found++
			require.NotEqual(t, text, storage.PlainText(text),
				"%s: users would see the package's name: add %s to packageNames in storage/plain.go", f.path, name)
			return true
		})
	}
	require.Greater(t, found, 100)
}

// errorText returns the text of an error that a node creates.
func errorText(n ast.Node) (text string, ok bool) {
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) == 0 {
		return "", false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || f.Sel.Name != "New" && f.Sel.Name != "Errorf" {
		return "", false
	}
	return literalText(call.Args[0])
}

// literalText returns the value of a string literal, or of string literals joined by +.
func literalText(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, e.Kind == token.STRING && err == nil
	case *ast.BinaryExpr:
		left, isLeft := literalText(e.X)
		right, isRight := literalText(e.Y)
		return left + right, e.Op == token.ADD && isLeft && isRight
	}
	return "", false
}

func startsWithAny(dir string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(path.Clean(dir)+"/", p) {
			return true
		}
	}
	return false
}
