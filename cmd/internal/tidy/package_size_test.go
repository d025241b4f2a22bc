package tidy

import (
	"fmt"
	"go/ast"
	"go/scanner"
	"go/token"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// packageSize describes a package without its tests and generated files.
type packageSize struct {
	lines    int // with code: neither empty nor only a comment
	exported int // functions, methods, types, variables and constants; fields don't count
	methods  int // of the type that has the most
}

// usualSize is the max size of a package.
var usualSize = packageSize{lines: 2000, exported: 80, methods: 40}

// largePackages are the packages that exceed usualSize, with their max sizes. A limit may only be reduced: lower it
// when its package has become smaller, and remove packages that no longer exceed usualSize.
var largePackages = map[string]packageSize{
	"adapter/remotewrite":       {2100, 80, 40},
	"cmd/cassia":                {5450, 80, 47},
	"promql":                    {8050, 80, 40},
	"promql/ruler":              {2200, 80, 40},
	"storage":                   {10800, 149, 213},
	"storage/cassandra":         {3050, 80, 40},
	"storage/chunk":             {2300, 80, 40},
	"storage/engine":            {600, 90, 40},
	"storage/engine/enginetest": {2350, 80, 40},
	"storage/format":            {2250, 250, 40},
	"storage/head":              {2500, 141, 55},
	"storage/paged":             {4100, 80, 40},
	"storage/pebble":            {7600, 110, 61},
	"storage/query":             {4150, 80, 40},
	"storage/retention":         {2550, 103, 97},
	"storage/rollup":            {4500, 113, 40},
	"storage/rollup/expand":     {2520, 80, 40},
}

// TestPackagesAreSmall limits the sizes of packages rather than those of files, because a limit on files splits related
// code.
func TestPackagesAreSmall(t *testing.T) {
	t.Parallel()
	sizes, methods := map[string]packageSize{}, map[string]map[string]int{}
	for _, f := range goFiles(t) {
		if f.isTest || f.isGenerated {
			continue
		}
		size := sizes[f.dir()]
		size.lines += codeLines(f.content)
		for _, decl := range f.ast.Decls {
			size.exported += exportedNames(decl)
			if receiver := receiverOf(decl); receiver != "" {
				if methods[f.dir()] == nil {
					methods[f.dir()] = map[string]int{}
				}
				methods[f.dir()][receiver]++
				size.methods = max(size.methods, methods[f.dir()][receiver])
			}
		}
		sizes[f.dir()] = size
	}
	for _, folder := range slices.Sorted(maps.Keys(sizes)) {
		size, bound := sizes[folder], usualSize
		if large, ok := largePackages[folder]; ok {
			bound = large
			require.False(t, size.isWithin(usualSize), "%s: of usual size: remove it from largePackages", folder)
		}
		if !size.isWithin(bound) {
			t.Errorf("%s has %v, the max is %v: move an idea into a package of its own, or remove what isn't needed",
				folder, size, bound)
		}
	}
	for folder := range largePackages {
		require.Contains(t, sizes, folder, "largePackages names a folder without Go files: remove it")
	}
}

func (s packageSize) isWithin(bound packageSize) bool {
	return s.lines <= bound.lines && s.exported <= bound.exported && s.methods <= bound.methods
}

func (s packageSize) String() string {
	return fmt.Sprintf("%d lines of code, %d exported names, a type with %d methods", s.lines, s.exported, s.methods)
}

// codeLines returns the number of lines on which a token starts.
func codeLines(content []byte) int {
	var s scanner.Scanner
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(content))
	s.Init(file, content, nil, 0)
	lines, last := 0, 0
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return lines
		}
		if line := file.Line(pos); line > last && !(tok == token.SEMICOLON && text == "\n") {
			lines, last = lines+1, line
		}
	}
}

// exportedNames returns the number of exported names that a declaration declares.
func exportedNames(decl ast.Decl) (n int) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if receiver := receiverOf(d); d.Name.IsExported() && (receiver == "" || ast.IsExported(receiver)) {
			n++
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() {
					n++
				}
			case *ast.ValueSpec:
				for _, name := range s.Names {
					if name.IsExported() {
						n++
					}
				}
			}
		}
	}
	return n
}

// receiverOf returns the name of the type that a method belongs to, and "" for other declarations.
func receiverOf(decl ast.Decl) string {
	fn, ok := decl.(*ast.FuncDecl)
	if !ok || fn.Recv == nil {
		return ""
	}
	of := fn.Recv.List[0].Type
	for {
		switch e := of.(type) {
		case *ast.StarExpr:
			of = e.X
		case *ast.IndexExpr:
			of = e.X
		case *ast.IndexListExpr:
			of = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}
