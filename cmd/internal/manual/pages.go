package manual

import (
	"embed"
	"regexp"
	"strings"
	"sync"

	"github.com/yuin/goldmark/ast"
)

//go:embed *.md
var files embed.FS

// contentsName is the file name, without .md, of the table of contents.
const contentsName = "README"

// Page is a topic of the manual.
type Page struct {
	// Topic is the page's file name without .md. It is the name in /manual/ and for `cassia help`. It is empty for the
	// table of contents.
	Topic string
	Title string
	// About describes the page in a few words. It may be empty.
	About string

	source []byte
	root   ast.Node
}

// Group is a group of pages in the table of contents.
type Group struct {
	Title string
	Pages []Page
}

// book is the whole manual. It is loaded once.
type book struct {
	contents Page
	groups   []Group
	pages    map[string]Page
	sections []section
}

// contentsEntry matches a line of the table of contents.
var contentsEntry = regexp.MustCompile(`^- \[(.+)\]\(([a-z-]+)\.md\)(?:: (.+))?$`)

var theBook = sync.OnceValue(func() *book {
	b := &book{pages: map[string]Page{}}
	b.contents = loadPage(contentsName)
	b.contents.Topic = ""
	for line := range strings.Lines(string(b.contents.source)) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "## "); ok {
			b.groups = append(b.groups, Group{Title: title})
		}
		m := contentsEntry.FindStringSubmatch(line)
		if m == nil || len(b.groups) == 0 {
			continue
		}
		p := loadPage(m[2])
		p.About = m[3]
		last := &b.groups[len(b.groups)-1]
		last.Pages = append(last.Pages, p)
		b.pages[p.Topic] = p
		b.sections = append(b.sections, sectionsOf(p)...)
	}
	return b
})

// loadPage reads a page. If the file is missing, the page is empty, which a test detects.
func loadPage(name string) Page {
	source, _ := files.ReadFile(name + ".md")
	p := Page{Topic: name, source: source, root: parse(source)}
	for _, h := range headingsOf(p) {
		if h.Level == 1 {
			p.Title = h.Title
			break
		}
	}
	return p
}

func Groups() []Group { return theBook().groups }

// Contents returns the table of contents.
func Contents() Page { return theBook().contents }

// Topics returns the topics of all pages, in the order of the table of contents.
func Topics() (names []string) {
	for _, g := range Groups() {
		for _, p := range g.Pages {
			names = append(names, p.Topic)
		}
	}
	return names
}

func FindPage(topic string) (Page, bool) {
	p, ok := theBook().pages[topic]
	return p, ok
}
