package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// event is a line of `go test -json`, see `go doc test2json`.
type event struct {
	Action     string
	Package    string
	ImportPath string // path of the package being built
	Test       string
	Elapsed    float64 // in seconds
	Output     string
}

// name identifies a test in any package.
type name struct{ pkg, test string }

// ended is a finished test with its duration.
type ended struct {
	name
	seconds float64
}

// report collects the output of the tests and prints the relevant parts.
type report struct {
	out     io.Writer
	output  map[name][]string
	built   map[string][]string // output of the compiler by package
	passed  int
	skipped []name
	failed  []name
	paused  map[name]bool // tests that have run in parallel
	all     []ended
}

// maxLines is the max number of printed lines of a failed test or package. The cause is usually at the end of the
// output, or at the start for a data race.
const maxLines = 120

func newReport(out io.Writer) *report {
	return &report{out: out, output: map[name][]string{}, built: map[string][]string{}, paused: map[name]bool{}}
}

// read reads all events. It prints other lines, which go test also writes.
func (r *report) read(from io.Reader) error {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) == nil && e.Action != "" {
				r.take(&e)
			} else {
				fmt.Fprint(r.out, line)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) take(e *event) {
	at := name{e.Package, e.Test}
	switch e.Action {
	case "output":
		if !strings.HasPrefix(e.Output, "=== ") {
			r.output[at] = append(r.output[at], e.Output)
		}
	case "pause":
		r.paused[at] = true
	case "build-output":
		r.built[e.ImportPath] = append(r.built[e.ImportPath], e.Output)
	case "build-fail":
		fmt.Fprintf(r.out, "FAIL  %s does not compile:\n%s", e.ImportPath, strings.Join(r.built[e.ImportPath], ""))
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.endPackage(e)
			return
		}
		r.endTest(at, e)
	}
}

func (r *report) endTest(at name, e *event) {
	switch e.Action {
	case "pass":
		r.passed++
		delete(r.output, at)
	case "skip":
		r.skipped = append(r.skipped, at)
	case "fail":
		r.failed = append(r.failed, at)
	}
	// The duration of a parallel subtest isn't included in its parent's.
	if !strings.Contains(e.Test, "/") || r.paused[at] {
		r.all = append(r.all, ended{at, e.Elapsed})
	}
}

// endPackage prints the line of a finished package, and its failed tests.
func (r *report) endPackage(e *event) {
	at := name{e.Package, ""}
	if e.Action == "skip" { // The package has no tests.
		return
	}
	word := "ok  "
	if e.Action == "fail" {
		word = "FAIL"
	}
	fmt.Fprintf(r.out, "%s  %-60s %8.1f s\n", word, short(e.Package), e.Elapsed)
	if e.Action != "fail" {
		return
	}
	for _, test := range r.failed {
		if test.pkg == e.Package {
			r.print(test, "--- "+test.test)
		}
	}
	r.print(at, "--- the package")
	for test := range r.output { // tests that were running when the package ended
		if test.pkg == e.Package && test.test != "" && !slices.Contains(r.failed, test) &&
			!slices.Contains(r.skipped, test) {
			r.print(test, "--- "+test.test+", which had not ended")
		}
	}
}

// print prints the output of a test, at most once.
func (r *report) print(at name, title string) {
	lines := strings.SplitAfter(strings.Join(r.output[at], ""), "\n")
	if cut := len(lines) - maxLines; cut > 0 {
		lines = slices.Replace(lines, maxLines/2, maxLines/2+cut, fmt.Sprintf("    ... %d lines\n", cut))
	}
	if text := strings.Join(lines, ""); strings.TrimSpace(text) != "" {
		fmt.Fprintf(r.out, "%s:\n%s", title, text)
	}
	delete(r.output, at)
}

// end prints the summary of all packages and reports whether the run succeeded.
func (r *report) end(took time.Duration, slowest int, skipsFail bool) (ok bool) {
	unexplained := r.skips()
	slices.SortStableFunc(r.all, func(a, b ended) int { return cmp.Compare(b.seconds, a.seconds) })
	for i, t := range r.all[:min(slowest, len(r.all))] {
		if i == 0 {
			fmt.Fprintln(r.out, "the slowest, with what they waited for others that ran beside them:")
		}
		fmt.Fprintf(r.out, "      %-60s %8.1f s\n", short(t.pkg)+" "+t.test, t.seconds)
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped, in %v\n",
		r.passed, len(r.failed), len(r.skipped), took.Round(time.Second))
	if skipsFail && unexplained > 0 {
		fmt.Fprintf(r.out, "FAIL  %d tests were skipped; make what they need available\n", unexplained)
		return false
	}
	return len(r.failed) == 0
}

// skips prints the skipped tests, one line per reason. It returns the number of skips that aren't allowed.
func (r *report) skips() (unexplained int) {
	reasons := map[string][]name{}
	for _, test := range r.skipped {
		why := reason(r.output[test])
		reasons[why] = append(reasons[why], test)
		if !allowed(test) {
			unexplained++
		}
	}
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		var names []string
		for _, test := range reasons[why] {
			names = append(names, short(test.pkg)+" "+test.test)
		}
		fmt.Fprintf(r.out, "skip  %s: %s\n", strings.Join(names, ", "), why)
	}
	return unexplained
}

// allowed reports whether a test may be skipped. An engine may skip cases of the conformance suite that it can't
// satisfy, with a reason.
func allowed(test name) bool { return strings.HasPrefix(test.test, "TestConformance/") }

// reason returns the reason why a test was skipped: the text after the source position in its output.
func reason(said []string) string {
	for _, line := range said {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "---") {
			continue
		}
		if _, text, ok := strings.Cut(line, ".go:"); ok {
			if _, text, ok = strings.Cut(text, ": "); ok {
				return text
			}
		}
		return line
	}
	return "it gave no reason"
}

// short returns a package path without the module path.
func short(pkg string) string {
	const module = "github.com/cassia-db/cassia/"
	return strings.TrimPrefix(pkg, module)
}
