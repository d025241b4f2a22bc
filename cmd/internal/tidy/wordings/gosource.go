package wordings

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	verbPattern = regexp.MustCompile(`%[-+#0-9.*\[\]]*[a-zA-Z]`)
	// cqlStart matches the start of a text that a program reads, such as CQL.
	cqlStart   = regexp.MustCompile(`^\s*(?:CREATE|SELECT|INSERT|ALTER|DELETE|UPDATE|DROP|TRUNCATE|USE|BEGIN|APPLY)\b`)
	metricName = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
)

// goTexts returns the texts of a Go file that users read: help, string literals that become an error or a log line, and
// other string literals that are sentences.
func goTexts(rel, content string) []Text {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, rel, content, parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(file) {
		return nil
	}
	g := &goFile{rel: rel, fset: fset, kinds: map[ast.Expr]TextKind{}, isSaid: map[ast.Expr]bool{}}
	ast.Inspect(file, g.visitNode)
	return g.texts
}

// goFile collects the texts of a Go file.
type goFile struct {
	rel    string
	fset   *token.FileSet
	kinds  map[ast.Expr]TextKind
	isSaid map[ast.Expr]bool
	texts  []Text
}

func (g *goFile) visitNode(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ImportSpec:
		return false
	case *ast.Field:
		if n.Tag != nil {
			ast.Inspect(n.Type, g.visitNode)
			return false
		}
	case *ast.CallExpr:
		g.recordCall(n)
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && (key.Name == "Help" || key.Name == "Effect" && isCommand(g.rel)) {
			g.kinds[n.Value] = Help
		}
	case *ast.BinaryExpr, *ast.BasicLit:
		e := n.(ast.Expr)
		text, ok := g.literal(e)
		if !ok {
			return true
		}
		g.add(e, text)
		return false
	}
	return true
}

// isCommand reports whether a file declares commands and flags.
func isCommand(rel string) bool {
	dir := path.Dir(rel)
	return dir == "cmd/cassia" || dir == "cmd/internal/config" || dir == "cmd/internal/backups" || dir == "cmd/internal/cli"
}

// recordCall records how a call uses its arguments.
func (g *goFile) recordCall(c *ast.CallExpr) {
	name := ""
	switch f := c.Fun.(type) {
	case *ast.SelectorExpr:
		name = f.Sel.Name
	case *ast.Ident:
		name = f.Name
	}
	switch {
	case slices.Contains([]string{"New", "Errorf", "Info", "Warn", "Error", "Debug"}, name) && len(c.Args) > 0:
		g.isSaid[c.Args[0]] = true
	case name == "NewDesc" && len(c.Args) > 1:
		g.kinds[c.Args[1]] = Help
	case slices.Contains([]string{"Help", "HelpLong"}, name) && isCommand(g.rel):
		for _, a := range c.Args {
			g.kinds[a] = Help
		}
	}
	if len(c.Args) < 2 {
		return
	}
	if first, ok := c.Args[0].(*ast.BasicLit); ok && first.Kind == token.STRING {
		named, _ := strconv.Unquote(first.Value)
		flags := slices.Contains([]string{"Flag", "Command", "Arg"}, name) || isCommand(g.rel) && strings.Contains(strings.ToLower(name), "flag")
		if flags && name != "flagError" ||
			metricName.MatchString(named) && strings.Contains(path.Base(g.rel), "metrics") {
			g.kinds[c.Args[1]] = Help
		}
	}
}

// literal returns the text of a string literal, or of a sum of string literals and other values.
func (g *goFile) literal(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return "", false
		}
		text, err := strconv.Unquote(e.Value)
		if e.Value[0] == '"' { // Keep only newlines that are in the file.
			text = strings.ReplaceAll(text, "\n", " ")
		}
		return stripMarkup(verbPattern.ReplaceAllString(text, codeMark)), err == nil
	case *ast.BinaryExpr:
		if e.Op != token.ADD {
			return "", false
		}
		left, isLeft := g.literal(e.X)
		right, isRight := g.literal(e.Y)
		if !isLeft && !isRight {
			return "", false
		}
		if !isLeft {
			left = codeMark
		}
		if !isRight {
			right = codeMark
		}
		if lines := g.line(e.Y.Pos()) - g.line(e.X.Pos()) - strings.Count(left, "\n"); lines > 0 {
			left += strings.Repeat("\n", lines)
		}
		return left + right, true
	case *ast.ParenExpr:
		return g.literal(e.X)
	}
	return "", false
}

func (g *goFile) line(pos token.Pos) int { return g.fset.Position(pos).Line }

// add adds a text if users read it as prose.
func (g *goFile) add(e ast.Expr, text string) {
	kind, ok := g.kinds[e]
	if !ok {
		kind = Messages
		if !g.isSaid[e] && !isProse(text) {
			return
		}
	}
	if cqlStart.MatchString(text) || countWords(text) == 0 {
		return
	}
	g.texts = append(g.texts, Text{kind, g.rel, g.line(e.Pos()), text})
}

// isProse reports whether a text consists mostly of words, and of at least three.
func isProse(text string) bool {
	text = strings.ReplaceAll(text, codeMark, "")
	letters := 0
	for _, r := range text {
		if r == ' ' || r == '\n' || r == '\t' || r == ',' || r == '.' || r == '\'' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			letters++
		}
	}
	return len(strings.Fields(text)) >= 3 && countWords(text) >= 3 && letters*10 >= len([]rune(text))*8
}
