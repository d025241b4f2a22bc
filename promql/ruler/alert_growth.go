package ruler

import (
	"math"
	"strings"
	syntax "text/template/parse"
)

// templateDefinitions precede each text of an alert, as in Prometheus.
const templateDefinitions = "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}{{$externalURL := .ExternalURL}}{{$value := .Value}}"

// unbounded is larger than the maximum length of any text.
const unbounded = math.MaxInt32

// growth bounds the length of an expanded template: by fixed bytes, plus the product of times and the total length of
// all values that the template may show.
type growth struct{ fixed, times int }

func (g growth) add(other growth) growth {
	return growth{min(g.fixed+other.fixed, unbounded), min(g.times+other.times, unbounded)}
}

func (g growth) scale(n int) growth {
	return growth{min(g.fixed*n, unbounded), min(g.times*n, unbounded)}
}

func (g growth) maxLength(shown int) int {
	return min(g.fixed+min(g.times, unbounded)*min(shown, unbounded), unbounded)
}

var unboundedGrowth = growth{fixed: unbounded}

// functionGrowth maps a function to the maximum number of times that its result contains its arguments, as text that is
// escaped, quoted or changed in case. The results of functions that aren't listed may have any length, or aren't worth
// estimating.
var functionGrowth = map[string]int{
	"humanize": 1, "humanize1024": 1, "humanizeDuration": 1, "humanizePercentage": 1, "humanizeTimestamp": 1,
	"toTime": 1, "toDuration": 1, "now": 1,
	"parseDuration": 1, "pathPrefix": 1, "externalURL": 1, "stripPort": 1, "stripDomain": 2, "safeHtml": 1, "title": 3,
	"toUpper": 3, "toLower": 3,
	"urlQueryEscape": 3, "urlquery": 3, "graphLink": 3, "tableLink": 3, "html": 6, "js": 6, "printf": 10, "print": 2,
	"println": 2,
	"eq":      1, "ne": 1, "lt": 1, "le": 1, "gt": 1, "ge": 1, "and": 1, "or": 1, "not": 1, "len": 1, "index": 1,
}

// callText is the maximum length of a function's result if its arguments are empty: a time, a number, or the fixed part
// of a link.
const callText = 128

// growthOf returns the growth of a text of an alert. It is computed once per text.
func (r *Ruler) growthOf(text string) growth {
	if !strings.Contains(text, "{{") {
		return growth{fixed: len(text)}
	}
	if known, ok := r.growths.Load(text); ok {
		return known.(growth)
	}
	g := templateGrowth(text)
	r.growths.Store(text, g)
	return g
}

// templateGrowth returns the growth of a template. It has no bound if the template contains loops, or defines variables
// or templates, which is rare.
func templateGrowth(text string) growth {
	tree := syntax.New("alert")
	tree.Mode = syntax.SkipFuncCheck
	all := map[string]*syntax.Tree{}
	parsed, err := tree.Parse(templateDefinitions+text, "", "", all)
	if err != nil || len(all) > 1 || parsed.Root == nil {
		return unboundedGrowth
	}
	g := growth{fixed: 64} // For the definitions.
	for i, n := range parsed.Root.Nodes {
		if i >= strings.Count(templateDefinitions, "{{") {
			g = g.add(nodeGrowth(n))
		}
	}
	return g
}

func nodeGrowth(n syntax.Node) growth {
	switch n := n.(type) {
	case *syntax.TextNode:
		return growth{fixed: len(n.Text)}
	case *syntax.CommentNode:
		return growth{}
	case *syntax.ActionNode:
		return pipeGrowth(n.Pipe)
	case *syntax.IfNode:
		return branchGrowth(&n.BranchNode)
	case *syntax.WithNode:
		return branchGrowth(&n.BranchNode)
	case *syntax.ListNode:
		var g growth
		if n != nil {
			for _, inner := range n.Nodes {
				g = g.add(nodeGrowth(inner))
			}
		}
		return g
	}
	return unboundedGrowth
}

// branchGrowth returns the growth of a branch: the sum of both bodies and of the condition, because with sets the dot
// to the value of the condition.
func branchGrowth(n *syntax.BranchNode) growth {
	condition := pipeGrowth(n.Pipe)
	if condition.times > 1 || condition.fixed > 4*callText {
		return unboundedGrowth // The dot may be longer than all values that may be shown.
	}
	return condition.add(nodeGrowth(n.List)).add(nodeGrowth(n.ElseList))
}

func pipeGrowth(p *syntax.PipeNode) growth {
	if len(p.Decl) > 0 {
		return unboundedGrowth
	}
	var result growth
	for _, c := range p.Cmds {
		result = commandGrowth(c, result)
	}
	return result
}

// commandGrowth returns the growth of a command. piped is the growth of the value that the pipeline passes to it as its
// last argument.
func commandGrowth(c *syntax.CommandNode, piped growth) growth {
	sum := piped
	for _, arg := range c.Args[1:] {
		sum = sum.add(argumentGrowth(arg))
	}
	f, ok := c.Args[0].(*syntax.IdentifierNode)
	if !ok {
		if len(c.Args) > 1 || piped != (growth{}) {
			return unboundedGrowth // A method, such as Format of a time, whose result may be longer than its arguments.
		}
		return argumentGrowth(c.Args[0])
	}
	times, ok := functionGrowth[f.Ident]
	if !ok || f.Ident == "printf" && !isPlainFormat(c) {
		return unboundedGrowth
	}
	return sum.scale(times).add(growth{fixed: callText * len(c.Args)})
}

func argumentGrowth(n syntax.Node) growth {
	switch n := n.(type) {
	case *syntax.PipeNode:
		return pipeGrowth(n)
	case *syntax.IdentifierNode:
		return commandGrowth(&syntax.CommandNode{Args: []syntax.Node{n}}, growth{})
	case *syntax.StringNode:
		return growth{fixed: len(n.Text)}
	case *syntax.ChainNode:
		return argumentGrowth(n.Node)
	case *syntax.DotNode, *syntax.FieldNode, *syntax.VariableNode:
		return growth{fixed: callText, times: 1}
	case *syntax.NumberNode, *syntax.BoolNode, *syntax.NilNode:
		return growth{fixed: callText}
	}
	return unboundedGrowth
}

// isPlainFormat reports whether printf uses each of its arguments once, with a width of two digits at most.
func isPlainFormat(c *syntax.CommandNode) bool {
	if len(c.Args) < 2 {
		return false
	}
	format, ok := c.Args[1].(*syntax.StringNode)
	if !ok || strings.ContainsAny(format.Text, "*[") {
		return false
	}
	digits := 0
	for _, b := range []byte(format.Text) {
		if digits++; b < '0' || b > '9' {
			digits = 0
		}
		if digits > 2 {
			return false
		}
	}
	return true
}
