package tidy

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTypesHoldOnAnotherSystem type-checks the program and all its dependencies for a system that releases support but
// tests don't run on. It doesn't compile, which would take minutes, and it doesn't check function bodies of other
// modules.
func TestTypesHoldOnAnotherSystem(t *testing.T) {
	t.Parallel()
	list := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap,Module", "./cmd/cassia")
	list.Dir, list.Env = root, append(os.Environ(), "GOOS=darwin", "GOARCH=arm64", "CGO_ENABLED=0")
	list.Stderr = os.Stderr
	out, err := list.Output()
	require.NoError(t, err)

	fset, known := token.NewFileSet(), map[string]*types.Package{"unsafe": types.Unsafe}
	for packages := json.NewDecoder(strings.NewReader(string(out))); ; { // Each package follows its imports.
		var p struct {
			ImportPath, Dir string
			GoFiles         []string
			ImportMap       map[string]string
			Module          *struct{ Main bool }
		}
		if err := packages.Decode(&p); err == io.EOF {
			break
		} else {
			require.NoError(t, err)
		}
		if p.ImportPath == "unsafe" {
			continue
		}
		var files []*ast.File
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			files = append(files, file)
		}
		own := p.Module != nil && p.Module.Main
		check := types.Config{
			IgnoreFuncBodies: !own, Sizes: types.SizesFor("gc", "arm64"),
			Importer: importer(func(path string) (*types.Package, error) {
				if mapped, ok := p.ImportMap[path]; ok {
					path = mapped
				}
				return known[path], nil
			}),
			Error: func(err error) { t.Errorf("darwin/arm64: %v", err) },
		}
		known[p.ImportPath], _ = check.Check(p.ImportPath, fset, files, nil) // Errors have already been reported.
	}
	require.Greater(t, len(known), 500, "the program and what it is made of")
}

type importer func(path string) (*types.Package, error)

func (i importer) Import(path string) (*types.Package, error) { return i(path) }
