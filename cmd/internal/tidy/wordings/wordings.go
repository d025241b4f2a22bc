package wordings

import (
	"regexp"
	"slices"
	"strings"
)

// TextKind is a kind of text, which depends on its readers and its location.
type TextKind string

// The kinds of texts.
const (
	Page      TextKind = "page"      // strings and text of the web page
	Help      TextKind = "help"      // help of commands, flags and metrics
	Messages  TextKind = "messages"  // errors, log lines, output of commands
	Manual    TextKind = "manual"    // the manual's pages
	Readme    TextKind = "README"    // README.md, CONTRIBUTING.md, SECURITY.md
	Changelog TextKind = "CHANGELOG" // CHANGELOG.md
	Examples  TextKind = "examples"  // texts and comments below examples
	Design    TextKind = "design"    // design pages
)

// Comments is the kind of the comments of Go files. They are counted by folder, see CollectComments.
const Comments TextKind = "comments"

// Kinds contains the kinds of texts except Comments, in the order in which they are printed.
var Kinds = []TextKind{Page, Help, Messages, Manual, Readme, Changelog, Examples, Design}

// Text is a text or a comment group. Code in it is replaced by codeMark.
type Text struct {
	Kind TextKind
	// File is the path relative to the root of the repository, with slashes. Line is the number of the text's first
	// line. Each newline in Text corresponds to a newline in the file.
	File string
	Line int
	Text string
}

// Hit is an occurrence of a stilted wording.
type Hit struct {
	Kind   TextKind
	File   string
	Line   int
	Found  string
	Advice string
}

// codeMark replaces the parts of a text that aren't words, such as code and formatted values.
const codeMark = "◌"

var (
	wordPattern   = regexp.MustCompile(`[A-Za-z][A-Za-z'’-]*`)
	spacesPattern = regexp.MustCompile(`\s+`)
)

// countWords returns the number of words in a text.
func countWords(text string) int { return len(wordPattern.FindAllStringIndex(text, -1)) }

// FindHits returns the stilted wordings in texts, in the order of the texts. Overlapping wordings count as one.
func FindHits(texts []Text) []Hit {
	var hits []Hit
	for _, t := range texts {
		hits = append(hits, findHits(t)...)
	}
	return hits
}

func findHits(t Text) []Hit {
	type match struct {
		start, end int
		advice     string
	}
	var matches []match
	whole, all := t.Text, forms
	if t.Kind == Comments {
		whole, all = maskMatches(whole, commentExceptions), slices.Concat(forms, commentForms)
	}
	for _, f := range all {
		text := whole
		if f.except != nil && f.form.MatchString(text) {
			text = maskMatches(text, f.except)
		}
		for _, m := range f.form.FindAllStringSubmatchIndex(text, -1) {
			start, end := firstGroup(m)
			matches = append(matches, match{start, end, f.advice})
		}
	}
	slices.SortFunc(matches, func(a, b match) int { return a.start - b.start })
	var hits []Hit
	end := -1
	for _, m := range matches {
		if m.start < end {
			continue
		}
		end = m.end
		hits = append(hits, Hit{Kind: t.Kind, File: t.File, Line: t.Line + strings.Count(t.Text[:m.start], "\n"),
			Found: spacesPattern.ReplaceAllString(t.Text[m.start:m.end], " "), Advice: m.advice})
	}
	return hits
}

// maskMatches replaces each match of a pattern with the same number of zero bytes.
func maskMatches(text string, except *regexp.Regexp) string {
	return except.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat("\x00", len(s)) })
}

// firstGroup returns the position of the first group that matched or, if there is none, of the whole match.
func firstGroup(m []int) (start, end int) {
	for i := 2; i < len(m); i += 2 {
		if m[i] >= 0 {
			return m[i], m[i+1]
		}
	}
	return m[0], m[1]
}

// Total holds the number of words and of stilted wordings in the texts of one kind.
type Total struct{ Words, Hits int }

// PerThousand returns the number of stilted wordings per 1,000 words.
func (t Total) PerThousand() float64 {
	if t.Words == 0 {
		return 0
	}
	return 1000 * float64(t.Hits) / float64(t.Words)
}

// CountTotals counts words and hits by kind.
func CountTotals(texts []Text, hits []Hit) map[TextKind]Total {
	totals := map[TextKind]Total{}
	for _, t := range texts {
		sum := totals[t.Kind]
		sum.Words += countWords(t.Text)
		totals[t.Kind] = sum
	}
	for _, h := range hits {
		sum := totals[h.Kind]
		sum.Hits++
		totals[h.Kind] = sum
	}
	return totals
}
