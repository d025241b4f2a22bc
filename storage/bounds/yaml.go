package bounds

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// errAliases means that a YAML text becomes much larger when its aliases are expanded.
var errAliases = errors.New("bounds: YAML aliases expand to too much text")

// checkYAML returns an error that wraps errAliases if the YAML text with expanded aliases would have more than most
// bytes. It returns syntax errors of the parser unchanged.
func checkYAML(text []byte, most int) error {
	_, err := parseYAML(text, most)
	return err
}

// DecodeYAML calls checkYAML and decodes the only document of a YAML text. It rejects unknown fields. An empty text
// leaves into unchanged.
func DecodeYAML(text []byte, most int, into any) error {
	if err := checkYAML(text, most); errors.Is(err, errAliases) {
		return err
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return errors.New("the file has more than one document")
	}
	return nil
}

// EachScalar is like checkYAML, and also calls visit for each scalar value, with the keys of the mappings that contain
// it. An alias counts as its anchor's value. It stops at an error of visit and returns it.
func EachScalar(text []byte, most int, visit func(keys []string, value string) error) error {
	all, err := parseYAML(text, most)
	if err != nil {
		return err
	}
	for _, doc := range all {
		if err := eachScalar(doc, nil, visit); err != nil {
			return err
		}
	}
	return nil
}

// parseYAML returns the documents of a text.
func parseYAML(text []byte, most int) (all []*yaml.Node, err error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	total := 0
	for {
		var doc yaml.Node
		if err := d.Decode(&doc); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		size := writtenSize{known: map[*yaml.Node]int{}, most: most}
		n, err := size.measure(&doc)
		if err != nil {
			return nil, err
		}
		if total += n; size.aliases && total > most {
			return nil, fmt.Errorf("%w: without aliases the text would have more than %d bytes", errAliases, most)
		}
		all = append(all, &doc)
	}
}

// writtenSize computes the length of a text after its aliases are expanded.
type writtenSize struct {
	most    int
	aliases bool
	// known maps anchors to their sizes. A size is -1 while it is being computed.
	known map[*yaml.Node]int
}

func (w *writtenSize) measure(n *yaml.Node) (size int, err error) {
	if n.Anchor != "" {
		if known, ok := w.known[n]; ok {
			if known < 0 {
				return 0, fmt.Errorf("%w: line %d: %q contains itself", errAliases, n.Line, n.Anchor)
			}
			return known, nil
		}
		w.known[n] = -1
		defer func() { w.known[n] = size }()
	}
	if n.Kind == yaml.AliasNode {
		w.aliases = true
		return w.measure(n.Alias)
	}
	size = len(n.Value) + 1
	for _, inner := range n.Content {
		more, err := w.measure(inner)
		if err != nil {
			return 0, err
		}
		size = min(size+more, w.most+1)
	}
	return size, nil
}

func eachScalar(n *yaml.Node, keys []string, visit func([]string, string) error) error {
	switch n.Kind {
	case yaml.AliasNode:
		return eachScalar(n.Alias, keys, visit)
	case yaml.ScalarNode:
		return visit(keys, n.Value)
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			path := append(keys[:len(keys):len(keys)], n.Content[i].Value)
			if err := eachScalar(n.Content[i+1], path, visit); err != nil {
				return err
			}
		}
	default:
		for _, inner := range n.Content {
			if err := eachScalar(inner, keys, visit); err != nil {
				return err
			}
		}
	}
	return nil
}
