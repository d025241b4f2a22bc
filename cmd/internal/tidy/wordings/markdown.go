package wordings

import (
	"regexp"
	"strings"
)

var (
	inlineCode = regexp.MustCompile("(?s)``.*?``|`[^`]*`")
	linkTarget = regexp.MustCompile(`\]\([^)]*\)`)
	htmlNote   = regexp.MustCompile(`(?s)<!--.*?-->`)
)

// generatedPages contains pages of the manual that are generated from help texts. These texts are counted in the source
// instead.
var generatedPages = map[string]bool{"cmd/internal/manual/flags.md": true, "cmd/internal/manual/metrics.md": true}

func markdownOf(kind TextKind) func(rel, content string) []Text {
	return func(rel, content string) []Text { return markdownTexts(kind, rel, content) }
}

// markdownTexts returns the paragraphs, list items, headings and table rows of a page, without code.
func markdownTexts(kind TextKind, rel, content string) []Text {
	var texts []Text
	var paragraph []string
	start := 0
	flush := func() {
		if text := stripMarkup(strings.Join(paragraph, "\n")); countWords(text) > 0 {
			texts = append(texts, Text{kind, rel, start, text})
		}
		paragraph = nil
	}
	fence := ""
	for i, line := range strings.Split(content, "\n") {
		trimmed := strings.TrimSpace(line)
		if fence != "" {
			if strings.HasPrefix(trimmed, fence) {
				fence = ""
			}
			continue
		}
		if strings.HasPrefix(trimmed, "```") || strings.HasPrefix(trimmed, "~~~") {
			flush()
			fence = trimmed[:3]
			continue
		}
		row := strings.HasPrefix(trimmed, "|")
		if trimmed == "" || startsItem(trimmed) || row {
			flush()
		}
		if trimmed == "" || row && generatedPages[rel] {
			continue
		}
		if len(paragraph) == 0 {
			start = i + 1
		}
		paragraph = append(paragraph, line)
		if row || strings.HasPrefix(trimmed, "#") {
			flush()
		}
	}
	flush()
	return texts
}

var itemPattern = regexp.MustCompile(`^([-*+]|\d+\.|#+|>) `)

func startsItem(line string) bool { return itemPattern.MatchString(line) }

// stripMarkup removes formatting, code and link targets from a text. It keeps newlines.
func stripMarkup(text string) string {
	keep := func(s, by string) string { return by + strings.Repeat("\n", strings.Count(s, "\n")) }
	text = htmlNote.ReplaceAllStringFunc(text, func(s string) string { return keep(s, "") })
	text = inlineCode.ReplaceAllStringFunc(text, func(s string) string { return keep(s, codeMark) })
	text = linkTarget.ReplaceAllStringFunc(text, func(s string) string { return keep(s, "]") })
	return strings.NewReplacer("*", "", "[", "", "]", "").Replace(text)
}

// hashComments returns the comments of a file in which # starts a comment. Comments on consecutive lines become one
// text.
func hashComments(rel, content string) []Text {
	var texts []Text
	var run []string
	start := 0
	flush := func() {
		if text := stripMarkup(strings.Join(run, "\n")); countWords(text) > 2 {
			texts = append(texts, Text{Examples, rel, start, text})
		}
		run = nil
	}
	for i, line := range strings.Split(content, "\n") {
		trimmed := strings.TrimSpace(line)
		comment, whole := strings.CutPrefix(trimmed, "#")
		if !whole || strings.HasPrefix(trimmed, "#!") {
			flush()
			if _, behind, ok := strings.Cut(line, " # "); ok {
				run, start = []string{behind}, i+1
				flush()
			}
			continue
		}
		if len(run) == 0 {
			start = i + 1
		}
		run = append(run, comment)
	}
	flush()
	return texts
}
