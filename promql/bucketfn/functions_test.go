package bucketfn

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

var rewriteDoc = flag.Bool("rewrite", false, "write the table of functions into doc.go")

const (
	docTableBegin = "//\tfunction "
	docTableEnd   = "package bucketfn\n"

	manualTableBegin = "<!-- functions -->"
	manualTableEnd   = "<!-- end of functions -->"
)

// docTable renders functions, and the names of all other functions of the parser, as the end of the package comment.
func docTable() string {
	var b strings.Builder
	row := func(name, from, without, why string) {
		switch {
		case why == "":
		case from == "exact":
			without += "; " + why
		default:
			without += ": " + why
		}
		fmt.Fprintf(&b, "//\t%-30s %-13s %s\n", name, from, without)
	}
	row("function", "from buckets", "where raw samples have expired", "")
	for _, f := range functions {
		from, name := "exact", f.Name
		if f.evaluate == nil {
			from = "-"
		}
		if name == "" {
			name = "(an instant selector)"
		}
		row(name, from, f.WithoutRaw.String(), f.text())
	}
	b.WriteString("//\n// All other functions are computed from the results of these, or read no series:\n//\n")
	for _, line := range wrapped(otherFunctions(), 100) {
		b.WriteString("//\t" + line + "\n")
	}
	return b.String()
}

// text returns the reason why the function isn't exact, and its max error.
func (f *Function) text() string {
	if f.Bound == "" {
		return f.Why
	}
	return f.Why + "; the error is at most " + f.Bound
}

// otherFunctions returns the names of the parser's functions that aren't in functions.
func otherFunctions() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(parser.Functions)), func(name string) bool {
		return LookupFunction(name) != nil
	})
}

// manualTable renders functions in the format of the manual.
func manualTable() string {
	var b strings.Builder
	b.WriteString(
		manualTableBegin + "\n| function | after raw samples have expired (before, all are exact) |\n|---|---|\n",
	)
	rows := map[string][]string{}
	var order []string
	for _, f := range functions {
		var how string
		switch f.WithoutRaw {
		case withoutRawCut:
			how = "exact (to 1e-12) if windows align with buckets; otherwise the first and last bucket of a window are interpolated, with an info annotation"
			if f.Why != "" {
				how += ". Exception: " + f.text()
			}
		case WithoutRawApproximated:
			how = "approximate, with an info annotation: " + f.text()
		default:
			how = "returns an error: " + f.Why
		}
		name := "`" + f.Name + "`"
		if f.Name == "" {
			name = "a plain selector"
		}
		if rows[how] == nil {
			order = append(order, how)
		}
		rows[how] = append(rows[how], name)
	}
	for _, how := range order {
		fmt.Fprintf(&b, "| %s | %s |\n", strings.Join(rows[how], ", "), how)
	}
	b.WriteString("| all others | same as their argument |\n" + manualTableEnd)
	return b.String()
}

// manualPage is the page of the manual that contains the table of functions.
const manualPage = "../../cmd/internal/manual/rollups.md"

// TestFunctionsInManual checks that the table in the manual matches functions.
func TestFunctionsInManual(t *testing.T) {
	content, err := os.ReadFile(manualPage)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(content), manualTableBegin)
	require.True(t, ok, "the manual has no %s", manualTableBegin)
	_, after, ok := strings.Cut(rest, manualTableEnd)
	require.True(t, ok)
	want := before + manualTable() + after
	if *rewriteDoc {
		require.NoError(t, os.WriteFile(manualPage, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(content), "run this test with -rewrite")
}

func wrapped(words []string, width int) (lines []string) {
	line := ""
	for _, word := range words {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return append(lines, line)
}

// TestFunctionsInDoc checks that the table in doc.go matches functions. To rewrite the table, run go test -run
// TestFunctionsInDoc -rewrite.
func TestFunctionsInDoc(t *testing.T) {
	content, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(content), docTableBegin)
	require.True(t, ok, "doc.go has no line that starts with %q", docTableBegin)
	want := before + docTable() + docTableEnd
	if *rewriteDoc {
		require.NoError(t, os.WriteFile("doc.go", []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(content), "run this test with -rewrite; the table was:\n%s", rest)
}

// TestFunctionsAreComplete checks that functions contains all of the parser's functions over range vectors, and no name
// that isn't a function of the parser.
func TestFunctionsAreComplete(t *testing.T) {
	for name, f := range parser.Functions {
		if slices.Contains(f.ArgTypes, parser.ValueTypeMatrix) {
			require.NotNil(t, LookupFunction(name),
				"%s takes a range vector: say in functions how buckets answer it", name)
		}
	}
	seen := map[string]bool{}
	for _, f := range functions {
		require.False(t, seen[f.Name], "%s stands twice", f.Name)
		seen[f.Name] = true
		if f.Name != "" {
			require.Contains(t, parser.Functions, f.Name)
		}
		require.Equal(t, f.evaluate != nil, f.WithoutRaw == withoutRawCut,
			"%s: buckets answer it, or they don't", f.Name)
		if f.evaluate == nil {
			require.NotEmpty(t, f.Why, "%s: say why", f.Name)
			require.Zero(t, Columns(f.Name))
		}
	}
	require.Nil(t, LookupFunction("abs"))
}

// TestEveryFunctionHasABound checks that exactly two functions are refused after raw samples have expired, and that all
// others are exact or have a documented bound.
func TestEveryFunctionHasABound(t *testing.T) {
	for _, f := range functions {
		switch {
		case f.WithoutRaw == WithoutRawRefused:
			require.Contains(t, []string{"idelta", "double_exponential_smoothing"}, f.Name)
			require.Empty(t, f.Bound, f.Name)
		default:
			require.Equal(t, f.Why != "", f.Bound != "", "%s: say by how much it is off", f.Name)
			require.True(t, f.Bound != "" || f.WithoutRaw == withoutRawCut, f.Name)
		}
	}
}
