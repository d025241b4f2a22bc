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
	docTableBegin = "// # Functions over rollups\n"
	docTableEnd   = "package bucketfn\n"

	manualTableBegin = "<!-- functions -->"
	manualTableEnd   = "<!-- end of functions -->"
)

// docTable renders functions, and the names of all others that the parser accepts, as a part of a package comment.
func docTable() string {
	var b strings.Builder
	b.WriteString(docTableBegin)
	for _, line := range []string{
		"",
		"A function that is exact from buckets has raw's answer (to 1e-12) where the edges of its windows are edges of buckets, or",
		"where raw samples are there for the ragged ends. Where those are gone, the buckets at the ends are cut, like the samples that",
		"are made of them: there is one info per query, and the answer is off by at most the content of these buckets: values between",
		"their least and greatest, their number, their increase. The rest is the same.",
		"",
		"Made samples are as many as there were, from the first to the last time of a bucket, evenly spaced, with the same first, last,",
		"least and greatest value, sum, changes and resets, and for counters the same increase (see rollup.Expander). With start timestamps",
		"they have the same first and last of these, and as many resets that only these show. A window that contains a",
		"bucket whole has the answer of the bucket, also where the edges of other windows cut it. Functions that are computed from made",
		"samples, instead of from buckets, are named in the same info: those below that buckets don't answer, and those that the evaluator",
		"computes by itself (some uses of absent, timestamp, limitk, anchored, smoothed and of names that are removed late, and remote",
		"read). Over whole buckets that is exact, too, for the functions that are exact from buckets but deviations, for anchored and",
		"smoothed, and where samples came at regular times for timestamp and absent. What counts or sorts values, such as count_values,",
		"sees the values of made samples: the last of a bucket where it asks at the bucket's end.",
		"",
		"Native histograms of any layout are brought together as Prometheus brings them together (FloatHistogram.Add and Sub), and its",
		"warnings about them are in Result.Notes. Only samples can answer for a bucket with values whose sum could overflow. Once raw is",
		"gone there is no value for such buckets, and the info has it.",
		"",
	} {
		b.WriteString(strings.TrimRight("// "+line, " ") + "\n")
	}
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
		if f.over == nil {
			from = "-"
		}
		if name == "" {
			name = "(an instant selector)"
		}
		row(name, from, f.WithoutRaw.String(), f.Why)
	}
	b.WriteString("//\n// All others take what these give, or no series at all:\n//\n")
	for _, line := range wrapped(otherFunctions(), 100) {
		b.WriteString("//\t" + line + "\n")
	}
	return b.String()
}

// otherFunctions returns the parser's functions that aren't in functions.
func otherFunctions() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(parser.Functions)), func(name string) bool { return Lookup(name) != nil })
}

// manualTable renders functions as the manual has them.
func manualTable() string {
	var b strings.Builder
	b.WriteString(manualTableBegin + "\n| function | after raw samples have expired (before, all are exact) |\n|---|---|\n")
	rows := map[string][]string{}
	var order []string
	for _, f := range functions {
		var how string
		switch f.WithoutRaw {
		case Cut:
			how = "exact (to 1e-12) if windows align with buckets; otherwise the first and last bucket of a window are interpolated, with an info annotation"
			if f.Why != "" {
				how += ". Exception: " + f.Why
			}
		case Approximated:
			how = "approximate, with an info annotation: " + f.Why
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

// manualPage has the table of functions.
const manualPage = "../../cmd/internal/manual/rollups.md"

// The table in the manual is that of functions, too.
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
			require.NotNil(t, Lookup(name), "%s takes a range vector: say in functions how buckets answer it", name)
		}
	}
	seen := map[string]bool{}
	for _, f := range functions {
		require.False(t, seen[f.Name], "%s stands twice", f.Name)
		seen[f.Name] = true
		if f.Name != "" {
			require.Contains(t, parser.Functions, f.Name)
		}
		require.Equal(t, f.over != nil, f.WithoutRaw == Cut, "%s: buckets answer it, or they don't", f.Name)
		if f.over == nil {
			require.NotEmpty(t, f.Why, "%s: say why", f.Name)
			require.Zero(t, Columns(f.Name))
		}
	}
	require.Nil(t, Lookup("abs"))
}
