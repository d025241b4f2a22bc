package alerttext

import (
	"math"
	"strings"
	syntax "text/template/parse"
)

// Definitions precede each text of an alert, as in Prometheus.
const Definitions = "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}" +
	"{{$externalURL := .ExternalURL}}{{$value := .Value}}"

// Unbounded is larger than the maximum length of any text.
const Unbounded = math.MaxInt32

// Growth bounds the length of an expanded template: by fixed bytes, plus the product of times and the total length of
// all values that the template may show.
type Growth struct{ fixed, times int }

func (g Growth) add(other Growth) Growth {
	return Growth{min(g.fixed+other.fixed, Unbounded), min(g.times+other.times, Unbounded)}
}

func (g Growth) scale(n int) Growth {
	return Growth{min(g.fixed*n, Unbounded), min(g.times*n, Unbounded)}
}

// MaxLength returns the maximum length of the text, in bytes. shown is the length of all values that the template may
// show.
func (g Growth) MaxLength(shown int) int {
	return min(g.fixed+min(g.times, Unbounded)*min(shown, Unbounded), Unbounded)
}

var unboundedGrowth = Growth{fixed: Unbounded}

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

// GrowthOf returns the growth of a template. It has no bound if the template contains loops, or defines variables
// or templates, which is rare.
func GrowthOf(text string) Growth {
	if !strings.Contains(text, "{{") {
		return Growth{fixed: len(text)}
	}
	tree := syntax.New("alert")
	tree.Mode = syntax.SkipFuncCheck
	all := map[string]*syntax.Tree{}
	parsed, err := tree.Parse(Definitions+text, "", "", all)
	if err != nil || len(all) > 1 || parsed.Root == nil {
		return unboundedGrowth
	}
	g := Growth{fixed: 64} // For the definitions.
	for i, n := range parsed.Root.Nodes {
		if i >= strings.Count(Definitions, "{{") {
			g = g.add(nodeGrowth(n))
		}
	}
	return g
}

func nodeGrowth(n syntax.Node) Growth {
	switch n := n.(type) {
	case *syntax.TextNode:
		return Growth{fixed: len(n.Text)}
	case *syntax.CommentNode:
		return Growth{}
	case *syntax.ActionNode:
		return pipeGrowth(n.Pipe)
	case *syntax.IfNode:
		return branchGrowth(&n.BranchNode)
	case *syntax.WithNode:
		return branchGrowth(&n.BranchNode)
	case *syntax.ListNode:
		var g Growth
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
func branchGrowth(n *syntax.BranchNode) Growth {
	condition := pipeGrowth(n.Pipe)
	if condition.times > 1 || condition.fixed > 4*callText {
		return unboundedGrowth // The dot may be longer than all values that may be shown.
	}
	return condition.add(nodeGrowth(n.List)).add(nodeGrowth(n.ElseList))
}

func pipeGrowth(p *syntax.PipeNode) Growth {
	if len(p.Decl) > 0 {
		return unboundedGrowth
	}
	var result Growth
	for _, c := range p.Cmds {
		result = commandGrowth(c, result)
	}
	return result
}

// commandGrowth returns the growth of a command. piped is the growth of the value that the pipeline passes to it as its
// last argument.
func commandGrowth(c *syntax.CommandNode, piped Growth) Growth {
	sum := piped
	for _, arg := range c.Args[1:] {
		sum = sum.add(argumentGrowth(arg))
	}
	f, ok := c.Args[0].(*syntax.IdentifierNode)
	if !ok {
		if len(c.Args) > 1 || piped != (Growth{}) {
			return unboundedGrowth // A method, such as Format of a time, whose result may be longer than its arguments.
		}
		return argumentGrowth(c.Args[0])
	}
	times, ok := functionGrowth[f.Ident]
	if !ok || f.Ident == "printf" && !isPlainFormat(c) {
		return unboundedGrowth
	}
	return sum.scale(times).add(Growth{fixed: callText * len(c.Args)})
}

func argumentGrowth(n syntax.Node) Growth {
	switch n := n.(type) {
	case *syntax.PipeNode:
		return pipeGrowth(n)
	case *syntax.IdentifierNode:
		return commandGrowth(&syntax.CommandNode{Args: []syntax.Node{n}}, Growth{})
	case *syntax.StringNode:
		return Growth{fixed: len(n.Text)}
	case *syntax.ChainNode:
		return argumentGrowth(n.Node)
	case *syntax.DotNode, *syntax.FieldNode, *syntax.VariableNode:
		return Growth{fixed: callText, times: 1}
	case *syntax.NumberNode, *syntax.BoolNode, *syntax.NilNode:
		return Growth{fixed: callText}
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
