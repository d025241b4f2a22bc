package alerttext

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	texttemplate "text/template"
	syntax "text/template/parse"

	"github.com/grafana/regexp"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/util/strutil"
	"golang.org/x/text/cases"
	"golang.org/x/text/language"

	"github.com/cassia-db/cassia/storage/bounds"
)

// ErrTooLarge means that the labels or annotations of a rule's alerts would exceed the bounds.
var ErrTooLarge = errors.New("ruler: alert too large")

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

// These functions are added to templates by Bound.
const (
	enterFunction  = "__enter"
	showFunction   = "__show"
	readFunction   = "__read"
	methodFunction = "__method"
)

// Expansion expands a template in a bounded way. It changes the template to count the bodies that are executed, the
// bytes that are shown, and the values that functions read. It replaces functions that create or search texts by
// bounded versions.
type Expansion struct {
	ctx context.Context
	// work is shared by the expansions of a rule.
	work *WorkCounter
	// maxLength is the maximum length of the text. length is its current length.
	maxLength, length int
	steps             int
	// charge, if not nil, charges the memory of the result of a query. The expansion stops with its error.
	charge func(promengine.Vector) error
	// refused is the reason why the expansion was stopped.
	refused error
}

// NewExpansion returns an expansion to a text of at most maxLength bytes. work is shared by the expansions of a rule.
// charge, if not nil, charges the memory of the result of a query; the expansion stops with its error.
func NewExpansion(ctx context.Context, work *WorkCounter, maxLength int,
	charge func(promengine.Vector) error) *Expansion {
	return &Expansion{ctx: ctx, work: work, maxLength: maxLength, charge: charge}
}

// Refused returns the reason why the expansion was stopped, or nil.
func (e *Expansion) Refused() error { return e.refused }

// Length returns the length of the expanded text in bytes.
func (e *Expansion) Length() int { return e.length }

// Bound returns the text of a template that calls functions of the expansion:
//
//	{{range .}}text{{len $x}}{{end}}  ─►  {{range . | __read}}{{__enter 4 64}}text{{len (__read $x) | __show}}{{end}}
func (e *Expansion) Bound(name, text string) (string, error) {
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
				n.Pipe.Cmds = append(n.Pipe.Cmds, newCall(showFunction))
			}
		case *syntax.TemplateNode:
			cost += boundPipe(n.Pipe)
		case *syntax.IfNode:
			cost += boundBranch(&n.BranchNode)
		case *syntax.WithNode:
			cost += boundBranch(&n.BranchNode)
		case *syntax.RangeNode:
			cost += boundBranch(&n.BranchNode)
			n.Pipe.Cmds = append(n.Pipe.Cmds, newCall(readFunction)) // range sorts the keys of a map.
		}
	}
	enter := &syntax.ActionNode{NodeType: syntax.NodeAction,
		Pipe: newPipe(newCall(enterFunction, newNumber(bytes), newNumber(cost)))}
	list.Nodes = append([]syntax.Node{enter}, list.Nodes...)
}

func boundBranch(n *syntax.BranchNode) (cost int) {
	boundList(n.List)
	boundList(n.ElseList)
	return boundPipe(n.Pipe)
}

// boundPipe makes a pipeline count the values that its commands read. It returns the work of the pipeline's nodes and
// constants.
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
			commands = append(commands, newCall(reader))
		}
		commands = append(commands, c)
		for j, arg := range c.Args {
			cost += nodeWork + boundArgument(arg)
			switch arg.(type) {
			case *syntax.DotNode, *syntax.FieldNode, *syntax.VariableNode, *syntax.ChainNode, *syntax.PipeNode:
				if j > 0 {
					c.Args[j] = newPipe(newCall(reader, arg))
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

func newCall(name string, args ...syntax.Node) *syntax.CommandNode {
	return &syntax.CommandNode{NodeType: syntax.NodeCommand,
		Args: append([]syntax.Node{syntax.NewIdentifier(name)}, args...)}
}

func newPipe(commands ...*syntax.CommandNode) *syntax.PipeNode {
	return &syntax.PipeNode{NodeType: syntax.NodePipe, Cmds: commands}
}

func newNumber(n int) *syntax.NumberNode {
	return &syntax.NumberNode{NodeType: syntax.NodeNumber, IsInt: true, Int64: int64(n), Text: fmt.Sprint(n)}
}

// refuseTemplate stops the expansion with an error.
func (e *Expansion) refuseTemplate(format string, args ...any) error {
	if e.refused == nil {
		e.refused = fmt.Errorf("%w: %s", ErrTooLarge, fmt.Sprintf(format, args...))
	}
	return e.refused
}

// addWork counts work. It stops the expansion if the context has ended or the work exceeds the bound of the rule.
func (e *Expansion) addWork(n int) error {
	if err := e.ctx.Err(); err != nil {
		return err
	}
	if !e.work.add(n) {
		return e.refuseTemplate("the templates of the rule's alerts need more than %d units of work", maxWork)
	}
	return nil
}

// enterBody counts the execution of a body with the given bytes of text and the given cost of its nodes.
func (e *Expansion) enterBody(bytes, cost int) (string, error) {
	if e.steps++; e.steps > maxExpansionSteps {
		return "", e.refuseTemplate("the template executes more than %d steps", maxExpansionSteps)
	}
	if err := e.addWork(cost); err != nil {
		return "", err
	}
	return "", e.addLength(bytes)
}

// readValue counts a value that a function or a loop is about to read.
func (e *Expansion) readValue(v any) (any, error) { return e.readBounded(v, maxGuess, 1) }

// readArgument counts an argument of a method. Its bound is lower, because the method's work and result are unknown.
func (e *Expansion) readArgument(v any) (any, error) { return e.readBounded(v, maxMethod, nodeWork) }

func (e *Expansion) readBounded(v any, most, each int) (any, error) {
	size, ok := boundedSize(v, most)
	if !ok {
		return nil, e.refuseTemplate("a value in the template has more than %d bytes", most)
	}
	return v, e.addWork(boundedProduct(each, size))
}

func (e *Expansion) addLength(bytes int) error {
	if e.length += bytes; e.length > e.maxLength {
		return e.refuseTemplate("the text has more than %d bytes", e.maxLength)
	}
	return nil
}

// showValue counts the text of a value as part of the result. It returns "", because only the length of the result is
// needed.
func (e *Expansion) showValue(v any) (string, error) {
	if _, err := e.readValue(v); err != nil {
		return "", err
	}
	n := shownLength(v)
	if err := e.addWork(boundedProduct(madeWork, n)); err != nil {
		return "", err
	}
	return "", e.addLength(n)
}

// makeText returns the result of f, which has at most atMost bytes. If atMost exceeds maxGuess, it returns an error
// without calling f.
func (e *Expansion) makeText(atMost int, f func() string) (string, error) {
	if atMost > maxGuess {
		return "", e.refuseTemplate("a function in the template may create %d bytes or more", maxGuess)
	}
	text := f()
	return text, e.addWork(boundedProduct(madeWork, len(text)))
}

// textFunction bounds f, whose result is at most the given number of times as long as its argument.
func (e *Expansion) textFunction(times int, f func(string) string) func(string) (string, error) {
	return func(text string) (string, error) {
		most := callText + boundedProduct(times, len(text))
		if err := e.addWork(most); err != nil {
			return "", err
		}
		return e.makeText(most, func() string { return f(text) })
	}
}

// argsFunction is textFunction for functions with arguments of any type and number.
func (e *Expansion) argsFunction(times int, f func(...any) string) func(...any) (string, error) {
	return func(args ...any) (string, error) {
		return e.makeText(boundedProduct(times, totalLength(args)), func() string { return f(args...) })
	}
}

func boundedProduct(a, b int) int {
	if a > 0 && b > Unbounded/a {
		return Unbounded
	}
	return a * b
}

// totalLength returns the maximum length of the arguments as text.
func totalLength(args []any) (n int) {
	for _, arg := range args {
		size, ok := boundedSize(arg, maxGuess)
		if !ok {
			return Unbounded
		}
		n = min(n+size+callText, Unbounded)
	}
	return n
}

// shownLength returns the length of a value as a template shows it.
func shownLength(v any) int {
	switch v := v.(type) {
	case nil:
		return len("<no value>")
	case string:
		return len(v)
	}
	return len(fmt.Sprint(v))
}

// Functions returns the functions that Bound adds to a template, and bounded versions of functions whose
// results may be longer than their arguments.
func (e *Expansion) Functions() texttemplate.FuncMap {
	return texttemplate.FuncMap{
		enterFunction: e.enterBody, showFunction: e.showValue, readFunction: e.readValue,
		methodFunction: e.readArgument,
		"printf":       e.printf, "print": e.argsFunction(2, fmt.Sprint), "println": e.argsFunction(2, fmt.Sprintln),
		"html": e.argsFunction(6, texttemplate.HTMLEscaper), "js": e.argsFunction(6, texttemplate.JSEscaper),
		"urlquery":     e.argsFunction(3, texttemplate.URLQueryEscaper),
		"reReplaceAll": e.replaceAll, "match": e.matchText,
		"title":   e.textFunction(3, cases.Title(language.AmericanEnglish, cases.NoLower).String),
		"toUpper": e.textFunction(3, strings.ToUpper), "toLower": e.textFunction(3, strings.ToLower),
		"urlQueryEscape": e.textFunction(3, url.QueryEscape),
		"graphLink":      e.textFunction(3, strutil.GraphLinkForExpression),
		"tableLink":      e.textFunction(3, strutil.TableLinkForExpression),
	}
}

// printf bounds the length of the result before it formats. It assumes that each verb formats the longest argument with
// the largest width.
func (e *Expansion) printf(format string, args ...any) (string, error) {
	widest := 0
	for _, arg := range args {
		if n, ok := arg.(int); ok && strings.Contains(format, "*") { // arg may be a width.
			widest = max(widest, n, -n)
		}
	}
	n := 0
	for _, b := range []byte(format) {
		if b < '0' || b > '9' {
			n = 0
			continue
		}
		n = min(n*10+int(b-'0'), Unbounded/10)
		widest = max(widest, n)
	}
	each := min(10*totalLength(args), Unbounded-widest) + widest
	return e.makeText(len(format)+boundedProduct(strings.Count(format, "%"), each), func() string {
		return fmt.Sprintf(format, args...)
	})
}

// matchText reports whether text matches a regular expression, in a bounded way.
func (e *Expansion) matchText(pattern, text string) (bool, error) {
	if _, err := e.countSearch(pattern, text); err != nil {
		return false, err
	}
	return regexp.MatchString(pattern, text)
}

// countSearch counts the work of compiling a regular expression and of searching a text once. It returns the work of
// each further match. Without a repetition in the regular expression, a search that finds a match hasn't read the whole
// text, so further matches are cheap.
func (e *Expansion) countSearch(pattern, text string) (each int, err error) {
	if err := e.addWork(boundedProduct(compileWork, len(pattern))); err != nil {
		return 0, err
	}
	if err := bounds.CheckRegexps(pattern); err != nil {
		return 0, e.refuseTemplate("%v", err)
	}
	instructions, steps := bounds.Size(pattern)
	steps = matchWork * (steps + 1)
	longest := len(text)
	if bounds.Steps(pattern) == 0 {
		longest = min(longest, instructions)
	}
	work := min(boundedProduct(compileWork, instructions)+boundedProduct(steps, len(text)), Unbounded)
	return callWork + boundedProduct(steps, longest), e.addWork(work)
}

// replaceAll bounds the regular expression, its searches, and the length of the result. It assumes that each match is
// replaced by the replacement, in which each reference is as long as the text.
func (e *Expansion) replaceAll(pattern, replacement, text string) (string, error) {
	each, err := e.countSearch(pattern, text)
	if err != nil {
		return "", err
	}
	// MustCompile panics if the pattern is invalid, as Prometheus' function does. The template converts the panic to an
	// error.
	re := regexp.MustCompile(pattern)
	matches := 0
	re.ReplaceAllStringFunc(text, func(string) string {
		if err := e.addWork(each); err != nil {
			panic(err) // The panic ends the search. The template converts it to an error.
		}
		matches++
		return ""
	})
	longest := len(replacement) + boundedProduct(strings.Count(replacement, "$"), len(text))
	return e.makeText(len(text)+boundedProduct(matches, longest), func() string {
		return re.ReplaceAllString(text, replacement)
	})
}
