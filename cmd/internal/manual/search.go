package manual

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/yuin/goldmark/ast"
	table "github.com/yuin/goldmark/extension/ast"
)

// Limits on a search.
const (
	maxWords = 8
	maxFound = 40
)

// section is the unit of search: a heading with the text up to the next heading.
type section struct {
	page    Page
	heading Heading
	text    string
	// The title of the page, the heading and the text, in lower case.
	lowTitle, lowHeading, lowText string
}

// Result is a section found by a search.
type Result struct {
	Page    Page
	Heading Heading
	// Excerpt is the text around the match, split into parts. Parts at odd indexes are matching words.
	Excerpt []string
}

// sectionsOf splits a page at its headings.
func sectionsOf(p Page) (out []section) {
	for n := p.root.FirstChild(); n != nil; n = n.NextSibling() {
		if h, ok := n.(*ast.Heading); ok {
			heading := headingOf(h, p.source)
			out = append(out, section{
				page: p, heading: heading, lowTitle: strings.ToLower(p.Title),
				lowHeading: strings.ToLower(heading.Title),
			})
		} else if len(out) > 0 {
			last := &out[len(out)-1]
			last.text = strings.TrimSpace(last.text + " " + flatText(n, p.source))
		}
	}
	for i := range out {
		out[i].lowText = strings.ToLower(out[i].text)
	}
	return out
}

// flatText returns all text of a block, including code, in one line.
func flatText(n ast.Node, source []byte) string {
	switch n := n.(type) {
	case *ast.FencedCodeBlock, *ast.CodeBlock:
		var b strings.Builder
		for i := range n.Lines().Len() {
			segment := n.Lines().At(i)
			b.Write(segment.Value(source))
		}
		return strings.Join(strings.Fields(b.String()), " ")
	case *ast.List, *ast.ListItem, *table.Table, *table.TableHeader, *table.TableRow, *ast.Blockquote:
		var parts []string
		for c := n.FirstChild(); c != nil; c = c.NextSibling() {
			parts = append(parts, flatText(c, source))
		}
		return strings.Join(parts, " ")
	case *ast.HTMLBlock:
		return ""
	}
	return strings.Join(strings.Fields(plainText(n, source)), " ")
}

// SearchSections returns the sections that contain all words of the query, the best match first.
func SearchSections(query string) []Result {
	words := strings.Fields(strings.ToLower(query))
	if len(words) > maxWords {
		words = words[:maxWords]
	}
	if len(words) == 0 {
		return nil
	}
	type found struct {
		Result
		score int
	}
	var all []found
	phrase := strings.Join(words, " ")
	for _, s := range theBook().sections {
		if score := s.score(words, phrase); score > 0 {
			all = append(all, found{Result{s.page, s.heading, s.excerpt(words)}, score})
		}
	}
	slices.SortStableFunc(all, func(a, b found) int { return b.score - a.score })
	var out []Result
	for _, f := range all[:min(len(all), maxFound)] {
		out = append(out, f.Result)
	}
	return out
}

// Weights of matches: a phrase weighs more than its words, and a heading more than text.
const (
	inHeading = 20
	asPhrase  = 25
	mostOften = 5
)

// score returns how well a section matches. It returns 0 if a word is missing.
func (s *section) score(words []string, phrase string) (score int) {
	if len(words) > 1 && strings.Contains(s.lowText, phrase) {
		score += asPhrase
	}
	for _, w := range words {
		of := min(strings.Count(s.lowText, w), mostOften)
		if strings.Contains(s.lowHeading, w) {
			of += inHeading
		}
		if strings.Contains(s.lowTitle, w) && s.heading.Level == 1 {
			of += inHeading
		}
		if of == 0 {
			return 0
		}
		score += of
	}
	return score
}

// excerptBefore is the max length of an excerpt before the first match, and excerptLength its max total length, in
// bytes.
const (
	excerptBefore = 60
	excerptLength = 220
)

func (s *section) excerpt(words []string) []string {
	if len(s.lowText) != len(s.text) {
		// Indexes in the lower-case text aren't valid in the original text if a letter has another length in lower
		// case. The manual contains no such letters.
		return []string{s.text[:truncationPoint(s.text, excerptLength)]}
	}
	at := len(s.text)
	if i := strings.Index(s.lowText, strings.Join(words, " ")); i >= 0 {
		at = i
	}
	for _, w := range words {
		if i := strings.Index(s.lowText, w); i >= 0 && at == len(s.text) {
			at = i
		}
	}
	if at == len(s.text) {
		at = 0
	}
	begin := truncationPoint(s.text, max(0, at-excerptBefore))
	if begin > 0 {
		if space := strings.IndexByte(s.text[begin:at], ' '); space >= 0 {
			begin += space + 1
		}
	}
	end := truncationPoint(s.text, begin+excerptLength)
	var out []string
	last := begin
	for i := begin; i < end; {
		if w := wordAt(s.lowText[i:end], words); w != "" {
			out = append(out, s.text[last:i], s.text[i:i+len(w)])
			i += len(w)
			last = i
			continue
		}
		i++
	}
	out = append(out, s.text[last:end])
	if begin > 0 {
		out[0] = "… " + out[0]
	}
	if end < len(s.text) {
		out[len(out)-1] += " …"
	}
	return out
}

// wordAt returns the longest of the words with which text starts, or "".
func wordAt(text string, words []string) (longest string) {
	for _, w := range words {
		if len(w) > len(longest) && strings.HasPrefix(text, w) {
			longest = w
		}
	}
	return longest
}

// truncationPoint returns the largest index up to at that is a character boundary.
func truncationPoint(text string, at int) int {
	at = min(at, len(text))
	for at > 0 && at < len(text) && !utf8.RuneStart(text[at]) {
		at--
	}
	return at
}
