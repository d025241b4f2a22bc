package relabeling

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v2"
	yamlv3 "go.yaml.in/yaml/v3"
)

// position is the position of a rule in a file.
type position struct {
	owner string // the tenant, or "" for the default rules
	// number is the index of the rule in its list, from 1. line is the line where the rule starts, 0 if unknown.
	number, line int
	node         *yamlv3.Node
}

// String returns the position for error texts.
func (p position) String() string {
	text := fmt.Sprintf("rule %d", p.number)
	if p.owner != defaultOwner {
		text = fmt.Sprintf("tenant %s, %s", p.owner, text)
	}
	if p.line > 0 {
		text = fmt.Sprintf("line %d, %s", p.line, text)
	}
	return text
}

// positionsOf returns the positions of the rules in a file, by owner. The caller must have checked the size of the
// file's expanded YAML aliases.
func positionsOf(text []byte) map[string][]position {
	var doc yamlv3.Node
	if err := yamlv3.Unmarshal(text, &doc); err != nil || len(doc.Content) == 0 {
		return nil
	}
	at := map[string][]position{}
	add := func(owner string, list *yamlv3.Node) {
		list = resolveAlias(list)
		if list == nil || list.Kind != yamlv3.SequenceNode {
			return
		}
		for i, n := range list.Content {
			at[owner] = append(at[owner], position{owner: owner, number: i + 1, line: n.Line, node: resolveAlias(n)})
		}
	}
	root := doc.Content[0]
	add(defaultOwner, root)
	add(defaultOwner, valueOf(root, "write_relabel_configs"))
	eachPair(valueOf(root, "tenants"), func(name, section *yamlv3.Node) {
		add(name.Value, valueOf(section, "write_relabel_configs"))
	})
	return at
}

func resolveAlias(n *yamlv3.Node) *yamlv3.Node {
	if n != nil && n.Kind == yamlv3.AliasNode {
		return n.Alias
	}
	return n
}

// eachPair calls visit for the keys and values of a mapping.
func eachPair(n *yamlv3.Node, visit func(key, value *yamlv3.Node)) {
	if n = resolveAlias(n); n == nil || n.Kind != yamlv3.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		visit(n.Content[i], n.Content[i+1])
	}
}

func valueOf(n *yamlv3.Node, name string) (found *yamlv3.Node) {
	eachPair(n, func(key, value *yamlv3.Node) {
		if key.Value == name {
			found = value
		}
	})
	return found
}

var lineOf = regexp.MustCompile(`^line (\d+): (.*)`)

// locateError returns err, an error of decode, as text. If a rule caused the error, the text names the rule and its
// line.
func locateError(text []byte, err error) string {
	words := readableError(err)
	at := positionsOf(text)
	if m := lineOf.FindStringSubmatch(words); m != nil {
		line, _ := strconv.Atoi(m[1])
		if p, ok := ruleAt(at, line); ok {
			p.line = line
			return p.String() + ": " + m[2]
		}
		return words
	}
	// The decoders of regular expressions and actions don't report a line. The cause is the first pair of a rule that
	// fails with the same text when it is decoded alone.
	var all []position
	for _, owner := range slices.Sorted(maps.Keys(at)) {
		all = append(all, at[owner]...)
	}
	for _, p := range all[:min(len(all), maxRules)] {
		if line := failingLine(p.node, words); line > 0 {
			p.line = line
			return p.String() + ": " + words
		}
	}
	return words
}

// ruleAt returns the rule that contains a line.
func ruleAt(at map[string][]position, line int) (found position, ok bool) {
	for _, list := range at {
		for _, p := range list {
			if p.line <= line && line <= lastLine(p.node) && p.line >= found.line {
				found, ok = p, true
			}
		}
	}
	return found, ok
}

func lastLine(n *yamlv3.Node) int {
	last := n.Line
	for _, part := range n.Content {
		last = max(last, lastLine(part))
	}
	return last
}

// failingLine returns the line of a rule's key whose value fails to decode with the given error text; 0 if there is
// none.
func failingLine(rule *yamlv3.Node, words string) (line int) {
	eachPair(rule, func(key, value *yamlv3.Node) {
		if line > 0 {
			return
		}
		text, err := yamlv3.Marshal(&yamlv3.Node{Kind: yamlv3.MappingNode, Content: []*yamlv3.Node{key, value}})
		if err != nil {
			return
		}
		if err := yaml.UnmarshalStrict(text, new(relabel.Config)); err != nil && readableError(err) == words {
			line = key.Line
		}
	})
	return line
}
