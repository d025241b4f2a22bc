package manual

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
)

// repository is the URL prefix of files that aren't part of the manual.
const repository = "https://github.com/cassia-db/cassia/blob/main/"

// toRoot is the path from the manual's folder to the top of the repository.
const toRoot = "../../../"

// markdown converts Markdown to HTML. It aligns columns with attributes, because the server's content security policy
// forbids inline styles.
var markdown = goldmark.New(
	goldmark.WithExtensions(extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute))),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()), goldmark.WithRendererOptions(html.WithXHTML()),
)

func parse(source []byte) ast.Node {
	return markdown.Parser().Parse(text.NewReader(source),
		parser.WithContext(parser.NewContext(parser.WithIDs(&anchors{used: map[string]bool{}}))))
}

// anchors generates the anchors of headings as GitHub does, so that links work in the repository and in served pages.
type anchors struct{ used map[string]bool }

// Generate implements parser.IDs.
func (a *anchors) Generate(title []byte, _ ast.NodeKind) []byte {
	var b strings.Builder
	for _, r := range strings.ToLower(strings.TrimSpace(string(title))) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			b.WriteRune(r)
		}
	}
	name := b.String()
	for i := 1; a.used[name]; i++ {
		name = fmt.Sprintf("%s-%d", b.String(), i)
	}
	a.used[name] = true
	return []byte(name)
}

// Put implements parser.IDs.
func (a *anchors) Put(name []byte) { a.used[string(name)] = true }

// Heading is a heading in a page.
type Heading struct {
	Level         int
	Title, Anchor string
}

func headingsOf(p Page) (out []Heading) {
	for n := p.root.FirstChild(); n != nil; n = n.NextSibling() {
		if h, ok := n.(*ast.Heading); ok {
			out = append(out, headingOf(h, p.source))
		}
	}
	return out
}

func headingOf(h *ast.Heading, source []byte) Heading {
	out := Heading{Level: h.Level, Title: plainText(h, source)}
	if id, ok := h.AttributeString("id"); ok {
		out.Anchor = string(id.([]byte))
	}
	return out
}

// Sections returns the headings of the page's top-level sections.
func (p Page) Sections() (out []Heading) {
	for _, h := range headingsOf(p) {
		if h.Level == 2 {
			out = append(out, h)
		}
	}
	return out
}

// HTML returns the page as HTML. base is the relative path to the other pages, such as "" for a page next to them or
// "manual/" for a page in the parent folder.
func (p Page) HTML(base string) (string, error) {
	root := parse(p.source) // Parse again, because the links are modified.
	err := ast.Walk(root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Link:
			n.Destination = []byte(linkTarget(string(n.Destination), base))
		case *ast.Image:
			return ast.WalkContinue, setImage(n, base)
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	if err := markdown.Renderer().Render(&b, p.source, root); err != nil {
		return "", err
	}
	// Wide elements can be scrolled, also with the keyboard. The replacements are safe because < is escaped in the text
	// of pages.
	return strings.NewReplacer(
		"<table>", `<div class="scroll" tabindex="0"><table>`, "</table>", "</table></div>",
		"<pre>", `<pre tabindex="0">`, "<!-- raw HTML omitted -->\n", "",
	).Replace(untitledHeader.ReplaceAllString(b.String(), "<td></td>")), nil
}

// setImage sets an image's served address, its size, and lazy loading.
func setImage(n *ast.Image, base string) error {
	picture, err := FindPicture(strings.TrimPrefix(string(n.Destination), picturesFolder+"/"))
	if err != nil {
		return fmt.Errorf("%s: %w", n.Destination, err)
	}
	n.Destination = []byte(base + string(n.Destination))
	n.SetAttributeString("width", []byte(strconv.Itoa(picture.Width)))
	n.SetAttributeString("height", []byte(strconv.Itoa(picture.Height)))
	n.SetAttributeString("loading", []byte("lazy"))
	return nil
}

// untitledHeader matches a column header without a title. It is removed because screen readers would announce it as a
// header.
var untitledHeader = regexp.MustCompile(`<th(?: align="\w+")?></th>`)

// linkTarget returns the address in the served page for the target of a Markdown link.
func linkTarget(link, base string) string {
	if file, ok := strings.CutPrefix(link, toRoot); ok {
		return repository + file
	}
	if topic, anchor, ok := topicOf(link); ok {
		switch {
		case topic != contentsName:
			return base + topic + anchor
		case base == "":
			return "../manual" + anchor
		}
		return "manual" + anchor
	}
	return link
}

// topicOf returns the topic of a link to another page, and the anchor including the #.
func topicOf(link string) (topic, anchor string, ok bool) {
	topic, anchor, found := strings.Cut(link, "#")
	if found {
		anchor = "#" + anchor
	}
	topic, ok = strings.CutSuffix(topic, ".md")
	return topic, anchor, ok && !strings.Contains(topic, "/")
}

// plainText returns the text of a node and its children without markup.
func plainText(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Text:
			b.Write(n.Segment.Value(source))
			if n.SoftLineBreak() || n.HardLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.String:
			b.Write(n.Value)
		case *ast.AutoLink:
			b.Write(n.Label(source))
		}
		return ast.WalkContinue, nil
	})
	return unescape(b.String())
}

// unescape removes the backslashes before punctuation, which the parser leaves in texts.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && strings.IndexByte(`\|<*`, s[i+1]) >= 0 {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
