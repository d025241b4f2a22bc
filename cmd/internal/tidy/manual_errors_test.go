package tidy

import (
	"fmt"
	"go/ast"
	"go/token"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestErrorsHaveTheirLine checks that users find every error in the manual's troubleshooting page. The page must
// contain the text or the type of each error that the program declares, unless unseenErrors contains the reason why
// users don't see it.
func TestErrorsHaveTheirLine(t *testing.T) {
	page := errorsInManual(t)
	var quotes []string
	for _, m := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(page, -1) {
		if isSearchable(m[1]) {
			quotes = append(quotes, m[1])
		}
	}
	unused := map[string]bool{}
	for name := range unseenReasons() {
		unused[name] = true
	}
	found := 0
	var missing []string
	for _, f := range productionFiles(t) {
		for _, e := range declaredErrors(f) {
			name := f.ast.Name.Name + "." + e.name
			if _, ok := unseenReasons()[name]; ok {
				delete(unused, name)
				continue
			}
			found++
			said, ok := saidOf[name]
			if !ok {
				said = e.text
			}
			if !ok && !isSearchable(said) || !strings.Contains(page, said) && !slices.ContainsFunc(
				quotes, func(q string) bool { return strings.Contains(said, q) },
			) {
				missing = append(missing, fmt.Sprintf("\n%s: %s: %s", f.path, name, said))
			}
		}
	}
	require.Empty(t, missing,
		"give each a line in the manual's troubleshooting.md, or say in unseenErrors why nobody meets it; in saidOf, how a text begins that is made as it goes")
	require.Empty(t, unused, "nothing declares these any more: take them out of unseenErrors")
	require.Greater(t, found, 70)
}

// TestAnswersHaveTheirLine checks that the page also contains the parts of responses that programs evaluate: the status
// codes, the error types of Prometheus' API, and the reasons for which rejected samples are counted.
func TestAnswersHaveTheirLine(t *testing.T) {
	page := errorsInManual(t)
	statuses, kinds, reasons := statusNames(), map[string]bool{}, map[string]bool{}
	found := map[int]bool{}
	for _, f := range productionFiles(t) {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "http" && statuses[n.Sel.Name] >= 400 && f.isHandler() {
					found[statuses[n.Sel.Name]] = true
				}
			case *ast.CallExpr:
				if at, ok := kindAt[calledName(n)]; ok && len(n.Args) > at {
					addLiteral(kinds, n.Args[at])
				}
			case *ast.AssignStmt:
				for i, left := range n.Lhs {
					if x, ok := left.(*ast.Ident); ok && x.Name == "kind" && len(n.Rhs) == len(n.Lhs) && f.isHandler() {
						addLiteral(kinds, n.Rhs[i])
					}
				}
			case *ast.ValueSpec:
				for i, name := range n.Names {
					if strings.HasPrefix(strings.ToLower(name.Name), "reason") && len(n.Values) > i {
						addLiteral(reasons, n.Values[i])
					}
				}
			}
			return true
		})
	}
	require.Greater(t, len(found), 10)
	require.Greater(t, len(kinds), 6)
	require.Greater(t, len(reasons), 20)
	var missing []string
	wanted := func(text string) {
		if !strings.Contains(page, text) {
			missing = append(missing, text)
		}
	}
	for code := range found {
		wanted(fmt.Sprintf("| %d ", code))
	}
	for _, all := range []map[string]bool{kinds, reasons} {
		for code := range all {
			wanted("`" + code + "`")
		}
	}
	require.Empty(t, missing, "give each a line in the manual's troubleshooting.md")
}

// isSearchable reports whether a text is long enough to identify one error.
func isSearchable(text string) bool { return len(text) >= 12 && strings.Contains(text, " ") }

// errorsInManual returns the text of the manual's page that lists all errors.
func errorsInManual(t *testing.T) string {
	text, err := os.ReadFile(filepath.Join(root, "cmd/internal/manual/troubleshooting.md"))
	require.NoError(t, err)
	return string(text)
}

// productionFiles returns the files of the programs that users run.
func productionFiles(t *testing.T) []goFile {
	return slices.DeleteFunc(goFiles(t), func(f goFile) bool {
		return f.isTest || f.isGenerated || startsWithAny(f.dir(), forDevelopers) ||
			startsWithAny(f.dir(), moreForDevelopers) ||
			!slices.Contains(
				[]string{"adapter", "cmd", "downsample", "promql", "storage"}, strings.Split(f.path, "/")[0],
			)
	})
}

// moreForDevelopers contains more prefixes of folders with programs and helpers that only developers use.
var moreForDevelopers = []string{
	"cmd/internal/tidy/", "storage/engine/enginetest/", "storage/engine/memory/",
	"storage/soak/", "storage/storagetest/",
}

// isHandler reports whether a file may write HTTP responses. The other files with status codes contain clients of other
// servers.
func (f goFile) isHandler() bool {
	for _, dir := range []string{
		"cmd/internal/s3/", "adapter/importer/", "adapter/metadata/", "storage/cassandra/", "cmd/internal/lasting/",
	} {
		if strings.HasPrefix(f.path, dir) && !strings.HasPrefix(f.path, "adapter/importer/overhttp/handler") {
			return false
		}
	}
	return true
}

// declaredError is an error that a package declares: a variable with its text, or a type, whose text isn't known.
type declaredError struct{ name, text string }

var (
	errorVariable = regexp.MustCompile(`^[Ee]rr[A-Z]`)
	formatVerb    = regexp.MustCompile(`%[a-z]`)
)

func declaredErrors(f goFile) (all []declaredError) {
	for _, d := range f.ast.Decls {
		switch d := d.(type) {
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				v, ok := spec.(*ast.ValueSpec)
				if !ok || d.Tok != token.VAR {
					continue
				}
				for i, name := range v.Names {
					if !errorVariable.MatchString(name.Name) || len(v.Values) <= i {
						continue
					}
					if text, ok := errorText(v.Values[i]); ok {
						text = partOf(strings.TrimPrefix(text, f.ast.Name.Name+": "))
						all = append(all, declaredError{name.Name, text})
					}
				}
			}
		case *ast.FuncDecl:
			if d.Name.Name == "Error" && d.Recv != nil && d.Type.Params.NumFields() == 0 {
				all = append(all, declaredError{name: receiverName(d)})
			}
		}
	}
	return all
}

// partOf returns the longest constant part of a format string.
func partOf(format string) string {
	parts := formatVerb.Split(format, -1)
	return strings.Trim(slices.MaxFunc(parts, func(a, b string) int { return len(a) - len(b) }), " :;,")
}

// receiverName returns the type name of a method's receiver.
func receiverName(d *ast.FuncDecl) string {
	of := d.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	return of.(*ast.Ident).Name
}

// kindAt contains the functions that write error responses, with the index of the argument that is the error type.
var kindAt = map[string]int{"fail": 3, "rejectAPI": 2}

// calledName returns the name of the called function or method.
func calledName(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// addLiteral adds the value of a string literal to a set, if the value is a single word.
func addLiteral(to map[string]bool, e ast.Expr) {
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return
	}
	if text, err := strconv.Unquote(literal.Value); err == nil && text != "" && path.Clean(text) == text &&
		!strings.Contains(text, " ") {
		to[text] = true
	}
}

// statusNames returns the HTTP status codes by the names of their constants in net/http.
func statusNames() map[string]int {
	out := map[string]int{}
	for code := range 600 {
		if text := http.StatusText(code); text != "" {
			out["Status"+strings.NewReplacer(" ", "", "-", "", "'", "").Replace(text)] = code
		}
	}
	return out
}
