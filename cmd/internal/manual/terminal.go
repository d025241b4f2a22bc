package manual

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/yuin/goldmark/ast"
	table "github.com/yuin/goldmark/extension/ast"
)

// Text returns the page as plain text. Lines have at most width characters, except lines of code and long words.
func (p Page) Text(width int) string {
	t := terminalRenderer{source: p.source, width: max(width, 40)}
	t.writeBlocks(p.root, "")
	return strings.TrimRight(t.out.String(), "\n") + "\n"
}

// terminalRenderer converts Markdown to plain text.
type terminalRenderer struct {
	source []byte
	width  int
	out    strings.Builder
}

// writeBlocks writes the child blocks of a node, with an empty line after each paragraph.
func (t *terminalRenderer) writeBlocks(parent ast.Node, indent string) {
	for n := parent.FirstChild(); n != nil; n = n.NextSibling() {
		switch n := n.(type) {
		case *ast.Heading:
			title := t.inlineText(n)
			t.writeLine(indent, title)
			if n.Level <= 2 {
				t.writeLine(indent, strings.Repeat([]string{"=", "-"}[n.Level-1], utf8.RuneCountInString(title)))
			}
			t.writeLine("", "")
		case *ast.FencedCodeBlock, *ast.CodeBlock:
			t.writeCode(n, indent+"    ")
		case *ast.List:
			t.list(n, indent)
		case *table.Table:
			t.writeTable(n, indent)
		case *ast.Paragraph, *ast.TextBlock:
			if text := t.inlineText(n); text != "" { // The text of an image is empty.
				t.writeWrapped(indent, indent, text)
				t.writeLine("", "")
			}
		case *ast.HTMLBlock: // These blocks are markers for tests.
		default:
			t.writeBlocks(n, indent)
		}
	}
}

func (t *terminalRenderer) writeLine(indent, text string) {
	t.out.WriteString(strings.TrimRight(indent+text, " ") + "\n")
}

// writeWrapped writes text as lines. The first line starts with first, the others start with rest.
func (t *terminalRenderer) writeWrapped(first, rest, text string) {
	line, empty := first, true
	for _, word := range strings.Fields(text) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > t.width {
			t.writeLine("", line)
			line, empty = rest, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	t.writeLine("", line)
}

func (t *terminalRenderer) writeCode(n ast.Node, indent string) {
	for i := range n.Lines().Len() {
		segment := n.Lines().At(i)
		t.writeLine(indent, strings.TrimRight(string(segment.Value(t.source)), "\n"))
	}
	t.writeLine("", "")
}

func (t *terminalRenderer) list(n *ast.List, indent string) {
	number := n.Start
	for item := n.FirstChild(); item != nil; item = item.NextSibling() {
		mark := "- "
		if n.IsOrdered() {
			mark = fmt.Sprintf("%d. ", number)
			number++
		}
		deeper := indent + strings.Repeat(" ", len(mark))
		first := true
		for block := item.FirstChild(); block != nil; block = block.NextSibling() {
			switch block := block.(type) {
			case *ast.List:
				t.list(block, deeper)
			case *ast.FencedCodeBlock, *ast.CodeBlock:
				t.writeCode(block, deeper+"    ")
			default:
				begin := deeper
				if first {
					begin = indent + mark
				}
				t.writeWrapped(begin, deeper, t.inlineText(block))
			}
			first = false
		}
	}
	t.writeLine("", "")
}

// writeTable writes a table with columns if it fits. Otherwise it writes the first cell of each row, followed by the
// other cells on separate lines.
func (t *terminalRenderer) writeTable(n *table.Table, indent string) {
	var rows [][]string
	var widths []int
	for row := n.FirstChild(); row != nil; row = row.NextSibling() {
		var cells []string
		for cell := row.FirstChild(); cell != nil; cell = cell.NextSibling() {
			text := t.inlineText(cell)
			if len(cells) == len(widths) {
				widths = append(widths, 0)
			}
			widths[len(cells)] = max(widths[len(cells)], utf8.RuneCountInString(text))
			cells = append(cells, text)
		}
		rows = append(rows, cells)
	}
	total := len(indent)
	for _, w := range widths {
		total += w + 2
	}
	for i, cells := range rows {
		if strings.Join(cells, "") == "" {
			continue // The header has no titles.
		}
		if total <= t.width {
			line := ""
			for j, cell := range cells {
				line += cell + strings.Repeat(" ", widths[j]-utf8.RuneCountInString(cell)+2)
			}
			t.writeLine(indent, line)
			continue
		}
		if i == 0 {
			continue // Column titles are written with each cell.
		}
		t.writeRow(rows[0], cells, indent)
	}
	t.writeLine("", "")
}

// writeRow writes a row of a table that is too wide, with each cell on a separate line.
func (t *terminalRenderer) writeRow(titles, cells []string, indent string) {
	t.writeWrapped(indent, indent, cells[0])
	for j, cell := range cells[1:] {
		if cell == "" {
			continue
		}
		if title := titles[j+1]; title != "" && len(cells) > 2 {
			cell = title + ": " + cell
		}
		t.writeWrapped(indent+"    ", indent+"    ", cell)
	}
}

// inlineText returns the text of a node in one line. A link to another page is followed by the command that shows the
// page, and any other link is followed by its address. Images are omitted.
func (t *terminalRenderer) inlineText(n ast.Node) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		switch c := c.(type) {
		case *ast.Text:
			b.WriteString(unescape(string(c.Segment.Value(t.source))))
			if c.SoftLineBreak() || c.HardLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.CodeSpan:
			b.WriteString("`" + plainText(c, t.source) + "`")
		case *ast.AutoLink:
			b.Write(c.Label(t.source))
		case *ast.Link:
			b.WriteString(t.inlineText(c) + t.linkText(string(c.Destination)))
		case *ast.RawHTML, *ast.Image:
		default:
			b.WriteString(t.inlineText(c))
		}
	}
	return strings.TrimSpace(strings.Join(strings.Fields(" "+b.String()+" "), " "))
}

func (t *terminalRenderer) linkText(link string) string {
	topic, _, ok := topicOf(link)
	switch {
	case ok && topic == contentsName:
		return " (cassia help)"
	case ok && topic != "":
		return " (cassia help " + topic + ")"
	case strings.HasPrefix(link, "#"):
		return ""
	case strings.HasPrefix(link, toRoot):
		return " (" + strings.TrimPrefix(link, toRoot) + ")"
	}
	return " (" + link + ")"
}
