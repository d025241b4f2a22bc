package manual

import (
	"encoding/xml"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"github.com/yuin/goldmark/ast"
)

// everyPage calls do for each page and for the table of contents.
func everyPage(t *testing.T, do func(t *testing.T, p Page)) {
	for _, topic := range append(Topics(), contentsName) {
		t.Run(topic, func(t *testing.T) {
			if p, ok := FindPage(topic); ok {
				do(t, p)
				return
			}
			require.Equal(t, contentsName, topic)
			do(t, Contents())
		})
	}
}

// TestContentsHaveEveryPage checks that the table of contents lists every file once.
func TestContentsHaveEveryPage(t *testing.T) {
	names, err := fs.Glob(files, "*.md")
	require.NoError(t, err)
	topics := Topics()
	require.Len(t, topics, len(names)-1)
	for _, name := range names {
		if topic := strings.TrimSuffix(name, ".md"); topic != contentsName {
			require.Contains(t, topics, topic, "name it in README.md: - [Title](%s)", name)
		}
	}
	for _, g := range Groups() {
		for _, p := range g.Pages {
			require.NotEmpty(t, p.Title, p.Topic)
		}
	}
}

// TestLinksLive checks that links lead to existing pages, sections and files, in the repository and in served pages.
func TestLinksLive(t *testing.T) {
	for _, name := range []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"} {
		text, err := os.ReadFile(toRoot + name)
		require.NoError(t, err)
		requireLinks(t, toRoot, text)
	}
	everyPage(t, func(t *testing.T, p Page) {
		requireLinks(t, ".", p.source)
	})
}

// requireLinks checks the targets of all links in a file. The targets are relative to a folder.
func requireLinks(t *testing.T, folder string, source []byte) {
	require.NoError(t, ast.Walk(parse(source), func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		destination := ""
		switch n := n.(type) {
		case *ast.Link:
			destination = string(n.Destination)
		case *ast.Image:
			destination = string(n.Destination)
			require.NotEmpty(t, plainText(n, source), "%s needs a text for who doesn't see it", destination)
		}
		if destination == "" || !entering || strings.HasPrefix(destination, "https://") {
			return ast.WalkContinue, nil
		}
		file, anchor, _ := strings.Cut(destination, "#")
		text := source
		if file != "" {
			path := filepath.Join(folder, filepath.FromSlash(file))
			info, err := os.Stat(path)
			require.NoError(t, err, "%s leads nowhere", destination)
			if info.IsDir() {
				return ast.WalkContinue, nil
			}
			text, err = os.ReadFile(path)
			require.NoError(t, err)
		}
		if anchor != "" {
			var anchors []string
			for _, h := range headingsOf(Page{source: text, root: parse(text)}) {
				anchors = append(anchors, h.Anchor)
			}
			require.Contains(t, anchors, anchor, "%s has no such section", destination)
		}
		return ast.WalkContinue, nil
	}))
}

func TestTargets(t *testing.T) {
	for _, c := range []struct{ link, base, want string }{
		{"rollups.md", "", "rollups"},
		{"rollups.md#by-name", "manual/", "manual/rollups#by-name"},
		{"README.md", "", "../manual"},
		{"README.md#begin", "manual/", "manual#begin"},
		{"#here", "", "#here"},
		{"../../../CHANGELOG.md", "", repository + "CHANGELOG.md"},
		{"https://example.org/a.md", "", "https://example.org/a.md"},
	} {
		require.Equal(t, c.want, linkTarget(c.link, c.base))
	}
}

// hrefs matches the links of a served page.
var hrefs = regexp.MustCompile(`href="([^"]*)"`)

func TestHTMLIsWellFormed(t *testing.T) {
	everyPage(t, func(t *testing.T, p Page) {
		text, err := p.HTML("manual/")
		require.NoError(t, err)
		d := xml.NewDecoder(strings.NewReader("<div>" + text + "</div>"))
		d.Entity = xml.HTMLEntity
		for {
			if _, err := d.Token(); err == io.EOF {
				break
			} else {
				require.NoError(t, err)
			}
		}
		require.NotContains(t, text, "raw HTML omitted")
		require.Equal(t, 1, strings.Count(text, "<h1"))
		require.NotContains(t, text, "style=", "the server's policy doesn't allow it")
		for _, m := range hrefs.FindAllStringSubmatch(text, -1) {
			if topic, ok := strings.CutPrefix(m[1], "manual/"); ok {
				topic, _, _ = strings.Cut(topic, "#")
				require.Contains(t, Topics(), topic)
			} else {
				require.Regexp(t, `^(https://|#|manual$)`, m[1])
			}
		}
	})
}

func TestTextForATerminal(t *testing.T) {
	everyPage(t, func(t *testing.T, p Page) {
		text := p.Text(80)
		require.True(
			t, strings.HasPrefix(text, p.Title+"\n"+strings.Repeat("=", utf8.RuneCountInString(p.Title))+"\n\n"),
			text[:60],
		)
		require.NotContains(t, text, "](")
		for line := range strings.Lines(text) {
			line = strings.TrimRight(line, "\n")
			words := strings.Fields(line)
			if len(words) > 1 && !strings.HasPrefix(line, "    ") { // Code and long words may be wider.
				require.LessOrEqual(t, utf8.RuneCountInString(line), 80, line)
			}
		}
	})
	p := Page{source: []byte(
		"# T\n\nSee [that](rollups.md#x), [here](#y) and `a*b`.\n\n1. one\n2. two\n   more\n\n| a | b |\n|---|---|\n| `x\\|y` | z |\n\n```\ncode\n```\n",
	)}
	p.root = parse(p.source)
	require.Equal(t,
		"T\n=\n\nSee that (cassia help rollups), here and `a*b`.\n\n1. one\n2. two more\n\na      b\n`x|y`  z\n\n    code\n",
		p.Text(80))
}

func TestSearch(t *testing.T) {
	first := func(query string) string {
		found := SearchSections(query)
		require.NotEmpty(t, found, query)
		return found[0].Page.Topic
	}
	require.Equal(t, "backups", first("backup restore"))
	var topics []string
	for _, r := range SearchSections("--query.log-slower-than") {
		topics = append(topics, r.Page.Topic)
	}
	require.Subset(t, topics, []string{"flags", "queries"})
	require.Equal(t, "removing-data", first("deleting series"))
	require.Equal(t, "alerts", first("CassiaOverloaded"))
	require.Empty(t, SearchSections(""))
	require.Empty(t, SearchSections("   "))
	require.Empty(t, SearchSections("xyzzyplugh"))
	require.Empty(t, SearchSections("backup xyzzyplugh"), "all words must be there")
	require.NotPanics(t, func() { SearchSections(strings.Repeat("ä…\xff ", 1000)) })
	for _, r := range SearchSections("retention") {
		require.True(t, slices.Contains(strings.Fields(strings.ToLower(strings.Join(r.Excerpt, " "))), "retention") ||
			strings.Contains(strings.ToLower(strings.Join(r.Excerpt, "")+r.Heading.Title+r.Page.Title), "retention"), r)
		for i := 1; i < len(r.Excerpt); i += 2 {
			require.Equal(t, "retention", strings.ToLower(r.Excerpt[i]))
		}
		require.True(t, utf8.ValidString(strings.Join(r.Excerpt, "")))
	}
}
