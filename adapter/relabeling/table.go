package relabeling

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v2"

	"github.com/cassia-db/cassia/storage/bounds"
	"github.com/cassia-db/cassia/storage/tenant"
)

// errBadRules means that a file of rules is invalid. The errors that wrap it give the reason.
var errBadRules = errors.New("relabeling: invalid rules")

// MaxFile bounds the size of a file of rules in bytes. maxRules bounds the number of its rules, because each rule has
// metrics of its own.
const (
	MaxFile  = 4 << 20
	maxRules = 1000
)

// defaultOwner is the owner of the default rules, which apply to tenants without rules of their own. No tenant has this
// name.
const defaultOwner = ""

// Table holds the rules of all tenants.
type Table struct {
	everybody *Rules
	tenants   map[string]*Rules
}

// section holds a list of rules, under the key that it has below remote_write in prometheus.yml.
type section struct {
	Rules []*relabel.Config `yaml:"write_relabel_configs"`
}

type rulesFile struct {
	section `yaml:",inline"`
	Tenants map[string]*section `yaml:"tenants"`
}

// Parse parses a file of rules:
//
//	write_relabel_configs:      # for tenants without rules of their own
//	- source_labels: [__name__]
//	  regex: go_gc_.*
//	  action: drop
//	tenants:
//	  team-a:
//	    write_relabel_configs: []
//
// A file with only the list of rules is also accepted. Parse is as strict as Prometheus and promtool: unknown and
// duplicate keys are errors with a line number. All errors wrap errBadRules.
func Parse(text []byte) (*Table, error) {
	if len(text) > MaxFile {
		return nil, fmt.Errorf("%w: the file has %d bytes; the maximum is %d", errBadRules, len(text), MaxFile)
	}
	f, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", errBadRules, locateError(text, err))
	}
	t := &Table{tenants: map[string]*Rules{}}
	at := positionsOf(text)
	if t.everybody, err = newRules(defaultOwner, f.Rules, at[defaultOwner]); err != nil {
		return nil, err
	}
	n := len(f.Rules)
	for name, s := range f.Tenants {
		if err := tenant.CheckName(name); err != nil {
			return nil, fmt.Errorf("%w: tenants: %w", errBadRules, err)
		}
		if s == nil {
			s = &section{}
		}
		if t.tenants[name], err = newRules(name, s.Rules, at[name]); err != nil {
			return nil, err
		}
		n += len(s.Rules)
	}
	if n > maxRules {
		return nil, fmt.Errorf("%w: the file has %d rules; the maximum is %d", errBadRules, n, maxRules)
	}
	return t, nil
}

// validateFile validates a file before its rules are decoded, because decoding expands YAML aliases and compiles
// regular expressions.
func validateFile(text []byte) error {
	var regexps []string
	err := bounds.EachScalar(text, MaxFile, func(keys []string, value string) error {
		if len(keys) > 0 && keys[len(keys)-1] == "regex" {
			if regexps = append(regexps, value); len(regexps) > maxRules {
				return fmt.Errorf("there are more than %d rules", maxRules)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return bounds.CheckRegexps(regexps...)
}

func decode(text []byte) (f rulesFile, err error) {
	if err := validateFile(text); err != nil {
		return f, err
	}
	var form any
	if err := yaml.Unmarshal(text, &form); err != nil {
		return f, err
	}
	into := any(&f)
	if _, ok := form.([]any); ok {
		into = &f.Rules
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.SetStrict(true)
	if err := d.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return f, err
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return f, errors.New("the file has more than one document")
	}
	return f, nil
}

// unknownKey and duplicateKey match the parser's errors about wrong keys, which mention Go types that mean nothing to
// users.
var (
	unknownKey   = regexp.MustCompile(`field (\S+) not found in type \S+`)
	duplicateKey = regexp.MustCompile(`field (\S+) already set in type \S+`)
)

func readableError(err error) string {
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "yaml: "), "unmarshal errors:")
	text = unknownKey.ReplaceAllString(strings.Join(strings.Fields(text), " "), "unknown key $1")
	return duplicateKey.ReplaceAllString(text, "the key $1 is set twice")
}

// RulesOf returns the rules of a tenant, nil if it has none. The table may be nil.
func (t *Table) RulesOf(name string) *Rules {
	if t == nil {
		return nil
	}
	r, own := t.tenants[name]
	if !own {
		r = t.everybody
	}
	if r.Len() == 0 {
		return nil
	}
	return r
}

// IsEmpty reports whether the table has no rules.
func (t *Table) IsEmpty() bool {
	for _, r := range t.allRules() {
		if r.Len() > 0 {
			return false
		}
	}
	return true
}

// allRules returns all lists of rules, the default rules first, then by owner.
func (t *Table) allRules() (list []*Rules) {
	if t == nil {
		return nil
	}
	names := make([]string, 0, len(t.tenants))
	for name := range t.tenants {
		names = append(names, name)
	}
	slices.Sort(names)
	list = append(list, t.everybody)
	for _, name := range names {
		list = append(list, t.tenants[name])
	}
	return list
}

// oneLine returns a rule as one line of YAML without default values.
func oneLine(c *relabel.Config) string {
	var parts []string
	add := func(key, value, usual string) {
		if value != usual {
			parts = append(parts, key+": "+strconv.Quote(value))
		}
	}
	if len(c.SourceLabels) > 0 {
		names := make([]string, len(c.SourceLabels))
		for i, name := range c.SourceLabels {
			names[i] = strconv.Quote(string(name))
		}
		parts = append(parts, "source_labels: ["+strings.Join(names, ", ")+"]")
	}
	usual := &relabel.DefaultRelabelConfig
	add("separator", c.Separator, usual.Separator)
	add("regex", c.Regex.String(), usual.Regex.String())
	if c.Modulus != 0 {
		parts = append(parts, "modulus: "+strconv.FormatUint(c.Modulus, 10))
	}
	add("target_label", c.TargetLabel, "")
	add("replacement", c.Replacement, usual.Replacement)
	return "{" + strings.Join(append(parts, "action: "+string(c.Action)), ", ") + "}"
}

// newRules validates a list of rules. at holds their positions in the file.
func newRules(owner string, configs []*relabel.Config, at []position) (*Rules, error) {
	r := &Rules{owner: owner, configs: configs}
	hash := xxhash.New()
	for i, c := range configs {
		p := position{owner: owner, number: i + 1}
		if i < len(at) {
			p = at[i]
		}
		if c == nil {
			return nil, fmt.Errorf("%w: %s: is empty", errBadRules, p)
		}
		if err := c.Validate(model.UTF8Validation); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", errBadRules, p, err)
		}
		text, err := yaml.Marshal(c)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", errBadRules, p, err)
		}
		r.texts = append(r.texts, oneLine(c))
		_, _ = hash.Write(text)
		_, _ = hash.Write([]byte{0})
	}
	r.space = max(1, hash.Sum64())
	return r, nil
}
