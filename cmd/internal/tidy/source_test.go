package tidy

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the path from this package to the top folder of the repository.
const root = "../../.."

// modulePath is the prefix of the import paths of this module.
const modulePath = "github.com/cassia-db/cassia/"

// goFile is a parsed file of this module.
type goFile struct {
	// path is relative to the repository's top folder, with slashes.
	path        string
	isTest      bool
	isGenerated bool
	lines       int
	content     []byte
	ast         *ast.File
	fset        *token.FileSet
}

// dir returns the folder of the file.
func (f goFile) dir() string { return path.Dir(f.path) }

// isSkipped reports whether a file or folder contains no source code of this module.
func isSkipped(rel string, entry fs.DirEntry) bool {
	name := entry.Name()
	return name == ".git" || rel == "bin" || rel == "data" || name == "node_modules"
}

// walkFiles calls do for each regular file of the repository that isn't skipped.
func walkFiles(t *testing.T, do func(rel string, content []byte)) {
	t.Helper()
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if entry.IsDir() {
			if isSkipped(rel, entry) {
				return filepath.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() || isSkipped(rel, entry) { // In a worktree, .git is a file.
			return nil
		}
		content, err := os.ReadFile(name)
		if os.IsNotExist(err) { // A concurrent test has removed it.
			return nil
		}
		if err != nil {
			return err
		}
		do(rel, content)
		return nil
	})
	require.NoError(t, err)
}

// goFiles returns all Go files of the module, parsed.
func goFiles(t *testing.T) []goFile {
	t.Helper()
	var files []goFile
	walkFiles(t, func(rel string, content []byte) {
		if !strings.HasSuffix(rel, ".go") || strings.Contains(rel, "/testdata/") {
			return
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, rel, content, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, goFile{
			path: rel, isTest: strings.HasSuffix(rel, "_test.go"), isGenerated: ast.IsGenerated(parsed),
			lines: bytes.Count(content, []byte("\n")), content: content, ast: parsed, fset: fset,
		})
	})
	require.NotEmpty(t, files)
	return files
}

// imports returns the import paths of the file.
func (f goFile) imports() []string {
	var out []string
	for _, spec := range f.ast.Imports {
		out = append(out, strings.Trim(spec.Path.Value, `"`))
	}
	return out
}
