package ruler

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	texttemplate "text/template"
	syntax "text/template/parse"

	"github.com/grafana/regexp"
	"github.com/prometheus/prometheus/util/strutil"
	"golang.org/x/text/cases"
	"golang.org/x/text/language"

	"github.com/cassia-db/cassia/storage/bounds"
)

// Bounds of the expansion of a template.
const (
	// maxExpansionSteps bounds how many bodies of loops, branches and templates are entered.
	maxExpansionSteps = 50_000
	// maxMade bounds the texts that functions make on the way, together; maxGuess is up to which bound of a text it is made, so that
	// its length is known; bytes.
	maxMade  = 16 << 20
	maxGuess = 64 << 20
)

// Functions that bound adds to templates.
const (
	enterFunction = "__enter"
	showFunction  = "__show"
)

// expansion expands a template in a bounded way: the template is changed so that it counts on the way the bodies that it enters and the bytes
// that it shows, and functions that make texts have a bound.
type expansion struct {
	ctx context.Context
	// most bounds the text; length is what it has so far.
	most, length int
	steps, made  int
	// refused is why it was given up.
	refused error
}

// bound returns the text of a template that calls the functions of functions on its way:
//
//	{{range .}}text{{.x}}{{end}}  ─►  {{range .}}{{__enter 4}}text{{.x | __show}}{{end}}
func (x *expansion) bound(name, text string) (string, error) {
	tree := syntax.New(name)
	tree.Mode = syntax.SkipFuncCheck
	all := map[string]*syntax.Tree{}
	parsed, err := tree.Parse(text, "", "", all)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for inner, of := range all {
		if inner != name && of.Root != nil {
			boundList(of.Root)
			fmt.Fprintf(&out, "{{define %q}}%s{{end}}", inner, of.Root)
		}
	}
	boundList(parsed.Root)
	return out.String() + parsed.Root.String(), nil
}

func boundList(list *syntax.ListNode) {
	if list == nil {
		return
	}
	bytes := 0
	for _, n := range list.Nodes {
		switch n := n.(type) {
		case *syntax.TextNode:
			bytes += len(n.Text)
		case *syntax.ActionNode:
			if len(n.Pipe.Decl) == 0 {
				n.Pipe.Cmds = append(n.Pipe.Cmds, call(showFunction))
			}
		case *syntax.IfNode:
			boundBranch(&n.BranchNode)
		case *syntax.WithNode:
			boundBranch(&n.BranchNode)
		case *syntax.RangeNode:
			boundBranch(&n.BranchNode)
		}
	}
	number := &syntax.NumberNode{NodeType: syntax.NodeNumber, IsInt: true, Int64: int64(bytes), Text: fmt.Sprint(bytes)}
	enter := &syntax.ActionNode{NodeType: syntax.NodeAction, Pipe: &syntax.PipeNode{NodeType: syntax.NodePipe, Cmds: []*syntax.CommandNode{call(enterFunction, number)}}}
	list.Nodes = append([]syntax.Node{enter}, list.Nodes...)
}

func boundBranch(n *syntax.BranchNode) {
	boundList(n.List)
	boundList(n.ElseList)
}

func call(name string, args ...syntax.Node) *syntax.CommandNode {
	return &syntax.CommandNode{NodeType: syntax.NodeCommand, Args: append([]syntax.Node{syntax.NewIdentifier(name)}, args...)}
}

// refuse ends the expansion.
func (x *expansion) refuse(format string, args ...any) error {
	if x.refused == nil {
		x.refused = fmt.Errorf("%w: %s", ErrAlertTooLarge, fmt.Sprintf(format, args...))
	}
	return x.refused
}

// enter counts a body with so many bytes of text.
func (x *expansion) enter(bytes int) (string, error) {
	if x.steps++; x.steps > maxExpansionSteps {
		return "", x.refuse("the template executes more than %d steps", maxExpansionSteps)
	}
	if err := x.ctx.Err(); err != nil {
		return "", err
	}
	return "", x.grow(bytes)
}

func (x *expansion) grow(bytes int) error {
	if x.length += bytes; x.length > x.most {
		return x.refuse("the text has more than %d bytes", x.most)
	}
	return nil
}

// show counts the text of a value in the result.
func (x *expansion) show(v any) (string, error) {
	return "", x.grow(length(v))
}

// make returns a text if there is room for one of up to atMost bytes.
func (x *expansion) make(atMost int, f func() string) (string, error) {
	if atMost > maxGuess {
		return "", x.refuse("a function in the template may create %d bytes or more", maxGuess)
	}
	text := f()
	if x.made += len(text); x.made > maxMade {
		return "", x.refuse("functions in the template create more than %d bytes", maxMade)
	}
	return text, nil
}

// of returns a function of one text whose result is at most so many times as long.
func (x *expansion) of(times int, f func(string) string) func(string) (string, error) {
	return func(text string) (string, error) {
		return x.make(callText+product(times, len(text)), func() string { return f(text) })
	}
}

// ofMany is of for functions of any arguments.
func (x *expansion) ofMany(times int, f func(...any) string) func(...any) (string, error) {
	return func(args ...any) (string, error) {
		return x.make(product(times, lengths(args)), func() string { return f(args...) })
	}
}

func product(a, b int) int {
	if a > 0 && b > unbounded/a {
		return unbounded
	}
	return a * b
}

// lengths is how long arguments are as text, at most.
func lengths(args []any) (n int) {
	for _, arg := range args {
		n = min(n+length(arg)+callText, unbounded)
	}
	return n
}

// length is how long a value is as text. Maps may have one long text many times.
func length(v any) (n int) {
	switch v := v.(type) {
	case string:
		return len(v)
	case map[string]any:
		for name, inner := range v {
			n = min(n+len(name)+1+length(inner)+1, unbounded)
		}
		return len("map[") + max(1, n)
	}
	return len(fmt.Sprint(v))
}

// functions are those that bound adds, and bounded ones in place of those whose results may be longer than their arguments.
func (x *expansion) functions() texttemplate.FuncMap {
	return texttemplate.FuncMap{
		enterFunction: x.enter, showFunction: x.show,
		"printf": x.printf, "print": x.ofMany(2, fmt.Sprint), "println": x.ofMany(2, fmt.Sprintln),
		"html": x.ofMany(6, texttemplate.HTMLEscaper), "js": x.ofMany(6, texttemplate.JSEscaper), "urlquery": x.ofMany(3, texttemplate.URLQueryEscaper),
		"reReplaceAll": x.replaceAll, "match": x.match,
		"title":   x.of(3, cases.Title(language.AmericanEnglish, cases.NoLower).String),
		"toUpper": x.of(3, strings.ToUpper), "toLower": x.of(3, strings.ToLower), "urlQueryEscape": x.of(3, url.QueryEscape),
		"graphLink": x.of(3, strutil.GraphLinkForExpression), "tableLink": x.of(3, strutil.TableLinkForExpression),
	}
}

// printf bounds what a format makes of its arguments by its verbs, each with the longest argument and the largest width.
func (x *expansion) printf(format string, args ...any) (string, error) {
	widest := 0
	for _, arg := range args {
		if n, ok := arg.(int); ok && strings.Contains(format, "*") { // It may be a width.
			widest = max(widest, n, -n)
		}
	}
	n := 0
	for _, b := range []byte(format) {
		if b < '0' || b > '9' {
			n = 0
			continue
		}
		n = min(n*10+int(b-'0'), unbounded/10)
		widest = max(widest, n)
	}
	each := min(10*lengths(args), unbounded-widest) + widest
	return x.make(len(format)+product(strings.Count(format, "%"), each), func() string { return fmt.Sprintf(format, args...) })
}

// match bounds the regular expression.
func (x *expansion) match(pattern, text string) (bool, error) {
	if err := bounds.CheckRegexps(pattern); err != nil {
		return false, x.refuse("%v", err)
	}
	return regexp.MatchString(pattern, text)
}

// replaceAll bounds the regular expression, and the result by the matches, each replaced by the whole replacement with references as long as the text.
func (x *expansion) replaceAll(pattern, replacement, text string) (string, error) {
	if err := bounds.CheckRegexps(pattern); err != nil {
		return "", x.refuse("%v", err)
	}
	re := regexp.MustCompile(pattern) // It panics as Prometheus' own, which makes an error of that.
	matches := len(re.FindAllStringIndex(text, -1))
	each := len(replacement) + product(strings.Count(replacement, "$"), len(text))
	return x.make(len(text)+product(matches, each), func() string { return re.ReplaceAllString(text, replacement) })
}
