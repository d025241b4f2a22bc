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

// These constants bound the expansion of a template.
const (
	// maxExpansionSteps is the maximum number of steps. A step is the execution of the body of a loop, a branch or a
	// template.
	maxExpansionSteps = 50_000
	// maxGuess is the maximum estimated size of one value, in bytes. A function isn't called if its result may be
	// larger.
	maxGuess = 16 << 20
	// maxMethod is the maximum size of the arguments of a method, in bytes. It is small because a method such as Format
	// of a time may return several times that size.
	maxMethod = 1 << 20
)

// These functions are added to templates by bound.
const (
	enterFunction  = "__enter"
	showFunction   = "__show"
	readFunction   = "__read"
	methodFunction = "__method"
)

// expansion expands a template in a bounded way. It changes the template to count the bodies that are executed, the
// bytes that are shown, and the values that functions read. It replaces functions that create or search texts by
// bounded ones.
type expansion struct {
	ctx context.Context
	// work is shared by the expansions of a rule.
	work *work
	// most is the maximum length of the text. length is its current length.
	most, length int
	steps        int
	// refused is the reason why the expansion was stopped.
	refused error
}

// bound returns the text of a template that calls functions of the expansion:
//
//	{{range .}}text{{len $x}}{{end}}  ─►  {{range . | __read}}{{__enter 4 64}}text{{len (__read $x) | __show}}{{end}}
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
	bytes, cost := 0, callWork
	for _, n := range list.Nodes {
		cost += nodeWork
		switch n := n.(type) {
		case *syntax.TextNode:
			bytes += len(n.Text)
		case *syntax.ActionNode:
			cost += boundPipe(n.Pipe)
			if len(n.Pipe.Decl) == 0 {
				n.Pipe.Cmds = append(n.Pipe.Cmds, call(showFunction))
			}
		case *syntax.TemplateNode:
			cost += boundPipe(n.Pipe)
		case *syntax.IfNode:
			cost += boundBranch(&n.BranchNode)
		case *syntax.WithNode:
			cost += boundBranch(&n.BranchNode)
		case *syntax.RangeNode:
			cost += boundBranch(&n.BranchNode)
			n.Pipe.Cmds = append(n.Pipe.Cmds, call(readFunction)) // A map is sorted.
		}
	}
	enter := &syntax.ActionNode{NodeType: syntax.NodeAction,
		Pipe: pipe(call(enterFunction, number(bytes), number(cost)))}
	list.Nodes = append([]syntax.Node{enter}, list.Nodes...)
}

func boundBranch(n *syntax.BranchNode) (cost int) {
	boundList(n.List)
	boundList(n.ElseList)
	return boundPipe(n.Pipe)
}

// boundPipe makes a pipeline count the values that its commands read. It returns the work of its nodes and constants.
func boundPipe(p *syntax.PipeNode) (cost int) {
	if p == nil {
		return 0
	}
	var commands []*syntax.CommandNode
	for i, c := range p.Cmds {
		reader := readFunction
		if _, ok := c.Args[0].(*syntax.IdentifierNode); !ok {
			reader = methodFunction
		}
		if i > 0 {
			commands = append(commands, call(reader))
		}
		commands = append(commands, c)
		for j, arg := range c.Args {
			cost += nodeWork + boundArgument(arg)
			switch arg.(type) {
			case *syntax.DotNode, *syntax.FieldNode, *syntax.VariableNode, *syntax.ChainNode, *syntax.PipeNode:
				if j > 0 {
					c.Args[j] = pipe(call(reader, arg))
				}
			}
		}
	}
	p.Cmds = commands
	return cost
}

func boundArgument(n syntax.Node) (cost int) {
	switch n := n.(type) {
	case *syntax.PipeNode:
		return boundPipe(n)
	case *syntax.ChainNode:
		return nodeWork*len(n.Field) + boundArgument(n.Node)
	case *syntax.IdentifierNode:
		return callWork
	case *syntax.StringNode:
		return len(n.Text)
	}
	return 0
}

func call(name string, args ...syntax.Node) *syntax.CommandNode {
	return &syntax.CommandNode{NodeType: syntax.NodeCommand,
		Args: append([]syntax.Node{syntax.NewIdentifier(name)}, args...)}
}

func pipe(commands ...*syntax.CommandNode) *syntax.PipeNode {
	return &syntax.PipeNode{NodeType: syntax.NodePipe, Cmds: commands}
}

func number(n int) *syntax.NumberNode {
	return &syntax.NumberNode{NodeType: syntax.NodeNumber, IsInt: true, Int64: int64(n), Text: fmt.Sprint(n)}
}

// refuse stops the expansion with an error.
func (x *expansion) refuse(format string, args ...any) error {
	if x.refused == nil {
		x.refused = fmt.Errorf("%w: %s", ErrAlertTooLarge, fmt.Sprintf(format, args...))
	}
	return x.refused
}

// spend counts work. It stops the expansion if the context has ended or the work exceeds the bound of the rule.
func (x *expansion) spend(n int) error {
	if err := x.ctx.Err(); err != nil {
		return err
	}
	if !x.work.spend(n) {
		return x.refuse("the templates of the rule's alerts need more than %d units of work", maxWork)
	}
	return nil
}

// enter counts the execution of a body with the given bytes of text and the given cost of its nodes.
func (x *expansion) enter(bytes, cost int) (string, error) {
	if x.steps++; x.steps > maxExpansionSteps {
		return "", x.refuse("the template executes more than %d steps", maxExpansionSteps)
	}
	if err := x.spend(cost); err != nil {
		return "", err
	}
	return "", x.grow(bytes)
}

// read counts a value that a function or a loop is about to read.
func (x *expansion) read(v any) (any, error) { return x.readUpTo(v, maxGuess, 1) }

// readMethod counts an argument of a method. Its bound is lower, because the method's work and result are unknown.
func (x *expansion) readMethod(v any) (any, error) { return x.readUpTo(v, maxMethod, nodeWork) }

func (x *expansion) readUpTo(v any, most, each int) (any, error) {
	size, ok := sizeOf(v, most)
	if !ok {
		return nil, x.refuse("a value in the template has more than %d bytes", most)
	}
	return v, x.spend(product(each, size))
}

func (x *expansion) grow(bytes int) error {
	if x.length += bytes; x.length > x.most {
		return x.refuse("the text has more than %d bytes", x.most)
	}
	return nil
}

// show counts the text of a value as part of the result, and returns it.
func (x *expansion) show(v any) (string, error) {
	if _, err := x.read(v); err != nil {
		return "", err
	}
	n := length(v)
	if err := x.spend(product(madeWork, n)); err != nil {
		return "", err
	}
	return "", x.grow(n)
}

// makeText returns the result of f, which has at most atMost bytes. If atMost exceeds the bounds, it returns an error
// without calling f.
func (x *expansion) makeText(atMost int, f func() string) (string, error) {
	if atMost > maxGuess {
		return "", x.refuse("a function in the template may create %d bytes or more", maxGuess)
	}
	text := f()
	return text, x.spend(product(madeWork, len(text)))
}

// textFunction bounds f, whose result is at most the given number of times as long as its argument.
func (x *expansion) textFunction(times int, f func(string) string) func(string) (string, error) {
	return func(text string) (string, error) {
		most := callText + product(times, len(text))
		if err := x.spend(most); err != nil {
			return "", err
		}
		return x.makeText(most, func() string { return f(text) })
	}
}

// argsFunction is textFunction for functions with arguments of any type and number.
func (x *expansion) argsFunction(times int, f func(...any) string) func(...any) (string, error) {
	return func(args ...any) (string, error) {
		return x.makeText(product(times, lengths(args)), func() string { return f(args...) })
	}
}

func product(a, b int) int {
	if a > 0 && b > unbounded/a {
		return unbounded
	}
	return a * b
}

// lengths returns the maximum length of the arguments as text.
func lengths(args []any) (n int) {
	for _, arg := range args {
		size, ok := sizeOf(arg, maxGuess)
		if !ok {
			return unbounded
		}
		n = min(n+size+callText, unbounded)
	}
	return n
}

// length returns the length of a value as a template shows it.
func length(v any) int {
	switch v := v.(type) {
	case nil:
		return len("<no value>")
	case string:
		return len(v)
	}
	return len(fmt.Sprint(v))
}

// functions returns the functions that bound adds to a template, and bounded versions of functions whose results may be
// longer than their arguments.
func (x *expansion) functions() texttemplate.FuncMap {
	return texttemplate.FuncMap{
		enterFunction: x.enter, showFunction: x.show, readFunction: x.read, methodFunction: x.readMethod,
		"printf": x.printf, "print": x.argsFunction(2, fmt.Sprint), "println": x.argsFunction(2, fmt.Sprintln),
		"html": x.argsFunction(6, texttemplate.HTMLEscaper), "js": x.argsFunction(6, texttemplate.JSEscaper),
		"urlquery":     x.argsFunction(3, texttemplate.URLQueryEscaper),
		"reReplaceAll": x.replaceAll, "match": x.match,
		"title":   x.textFunction(3, cases.Title(language.AmericanEnglish, cases.NoLower).String),
		"toUpper": x.textFunction(3, strings.ToUpper), "toLower": x.textFunction(3, strings.ToLower),
		"urlQueryEscape": x.textFunction(3, url.QueryEscape),
		"graphLink":      x.textFunction(3, strutil.GraphLinkForExpression),
		"tableLink":      x.textFunction(3, strutil.TableLinkForExpression),
	}
}

// printf bounds the length of the result before it formats. It assumes that each verb formats the longest argument with
// the largest width.
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
	return x.makeText(len(format)+product(strings.Count(format, "%"), each), func() string {
		return fmt.Sprintf(format, args...)
	})
}

// match reports whether text matches a regular expression, in a bounded way.
func (x *expansion) match(pattern, text string) (bool, error) {
	if _, err := x.search(pattern, text); err != nil {
		return false, err
	}
	return regexp.MatchString(pattern, text)
}

// search counts the work of compiling a regular expression and of searching a text once. It returns the work of each
// further match. Without a repetition in the regular expression, a search that finds a match hasn't read the whole
// text, so further matches are cheap.
func (x *expansion) search(pattern, text string) (each int, err error) {
	if err := x.spend(product(compileWork, len(pattern))); err != nil {
		return 0, err
	}
	if err := bounds.CheckRegexps(pattern); err != nil {
		return 0, x.refuse("%v", err)
	}
	instructions, steps := bounds.Size(pattern)
	steps = matchWork * (steps + 1)
	longest := len(text)
	if bounds.Steps(pattern) == 0 {
		longest = min(longest, instructions)
	}
	return callWork + product(steps, longest), x.spend(min(product(compileWork, instructions)+product(steps, len(text)),
		unbounded))
}

// replaceAll bounds the regular expression, its searches, and the length of the result. It assumes that each match is
// replaced by the replacement, in which each reference is as long as the text.
func (x *expansion) replaceAll(pattern, replacement, text string) (string, error) {
	each, err := x.search(pattern, text)
	if err != nil {
		return "", err
	}
	// MustCompile panics if the pattern is invalid, as Prometheus' function does. The template converts the panic to an
	// error.
	re := regexp.MustCompile(pattern)
	matches := 0
	re.ReplaceAllStringFunc(text, func(string) string {
		if err := x.spend(each); err != nil {
			panic(err) // It ends the search. The template converts the panic to an error.
		}
		matches++
		return ""
	})
	longest := len(replacement) + product(strings.Count(replacement, "$"), len(text))
	return x.makeText(len(text)+product(matches, longest), func() string {
		return re.ReplaceAllString(text, replacement)
	})
}
