package promql

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
	docTableBegin = "// # Functions over rollups\n"
	docTableEnd   = "package promql\n"
)

// docTable renders functions, and the names of all others that the parser knows, as a part of a package comment.
func docTable() string {
	var b strings.Builder
	b.WriteString(docTableBegin)
	for _, line := range []string{
		"",
		"A function that is exact from buckets has raw's answer where the edges of its windows are edges of buckets, or",
		"where raw samples are there for the ragged ends. Once they are gone, windows move to the nearest buckets, and",
		"one info a query says so; what grows with a window's length is scaled where that had to be widened.",
		"",
		"Only samples can tell of a bucket in which floats and histograms mix, or whose histograms changed their bounds or",
		"are gauges; and min, max, sum, avg and delta of histograms. Once raw is gone there is no value, and the info says so.",
		"",
		"Samples made of buckets are as many as there were, with the same first, last, least, greatest and sum in each bucket, and",
		"for counters the same increase and resets (see rollup.Expander). So is all that the evaluator computes by itself.",
		"",
	} {
		b.WriteString(strings.TrimRight("// "+line, " ") + "\n")
	}
	row := func(name, from, without, why string) {
		if why != "" {
			without += ": " + why
		}
		fmt.Fprintf(&b, "//\t%-30s %-13s %s\n", name, from, without)
	}
	row("function", "from buckets", "where raw samples are gone", "")
	for _, f := range functions {
		from, name := "exact", f.name
		if f.over == nil {
			from = "-"
		}
		if name == "" {
			name = "(an instant selector)"
		}
		row(name, from, f.withoutRaw.String(), f.why)
	}
	b.WriteString("//\n// All others take what these give, or no series at all:\n//\n")
	for _, line := range wrapped(otherFunctions(), 100) {
		b.WriteString("//\t" + line + "\n")
	}
	return b.String()
}

// otherFunctions returns the parser's functions that aren't in functions.
func otherFunctions() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(parser.Functions)), func(name string) bool { return functionOf(name) != nil })
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

// The table in doc.go is that of functions. go test -run TestFunctionsInDoc -rewrite writes it.
func TestFunctionsInDoc(t *testing.T) {
	content, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(content), docTableBegin)
	if !ok {
		before, _, ok = strings.Cut(string(content), docTableEnd)
		require.True(t, ok)
		before += "//\n"
	}
	want := before + docTable() + docTableEnd
	if *rewriteDoc {
		require.NoError(t, os.WriteFile("doc.go", []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(content), "run this test with -rewrite; the table was:\n%s", rest)
}

// Every function of the parser that takes a range vector is in the table, and nothing that isn't a function.
func TestFunctionsAreComplete(t *testing.T) {
	for name, f := range parser.Functions {
		if slices.Contains(f.ArgTypes, parser.ValueTypeMatrix) {
			require.NotNil(t, functionOf(name), "%s takes a range vector: say in functions how buckets answer it", name)
		}
	}
	seen := map[string]bool{}
	for _, f := range functions {
		require.False(t, seen[f.name], "%s stands twice", f.name)
		seen[f.name] = true
		if f.name != "" {
			require.Contains(t, parser.Functions, f.name)
		}
		require.Equal(t, f.over != nil, f.withoutRaw == nearest, "%s: buckets answer it, or they don't", f.name)
		if f.over == nil {
			require.NotEmpty(t, f.why, "%s: say why", f.name)
			require.Zero(t, columnsOf(f.name))
		}
	}
	require.Nil(t, functionOf("abs"))
}
