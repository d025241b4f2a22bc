package kairosdb

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/labels"
	"go.yaml.in/yaml/v3"

	"github.com/cassia-db/cassia/storage/bounds"
)

// MaxMappingFile bounds the size of a mapping file in bytes.
const MaxMappingFile = 1 << 20

// Spellings of names.
const (
	namesUnderscores = "underscores"
	namesUTF8        = "utf8"
)

// mappingFile is the content of a mapping file, see cmd/internal/manual/importing.md.
type mappingFile struct {
	Names   string            `yaml:"names"`
	Metrics []metricRule      `yaml:"metrics"`
	Tags    map[string]string `yaml:"tags"`
	Drop    []string          `yaml:"drop_tags"`
	Labels  map[string]string `yaml:"labels"`
}

// metricRule maps one metric by its name, or all metrics whose whole name matches a regular expression.
type metricRule struct {
	Name   string            `yaml:"name"`
	Match  string            `yaml:"match"`
	To     string            `yaml:"to"`
	Labels map[string]string `yaml:"labels"`
	Drop   bool              `yaml:"drop"`

	expression *regexp.Regexp
}

// Mapping maps KairosDB's series to names and labels. It is immutable.
type Mapping struct {
	file    mappingFile
	dropped map[string]bool
	digest  string
}

// DefaultMapping keeps all series, and replaces characters that aren't allowed in legacy Prometheus names by
// underscores.
func DefaultMapping() *Mapping {
	m, err := ParseMapping(nil)
	if err != nil {
		panic(err) // an empty file is valid
	}
	return m
}

// ParseMapping parses a mapping file. Its error is one line with the cause.
func ParseMapping(text []byte) (*Mapping, error) {
	if len(text) > MaxMappingFile {
		return nil, errors.New("the mapping file is larger than 1 MiB")
	}
	sum := sha256.Sum256(text)
	m := &Mapping{digest: hex.EncodeToString(sum[:8]), dropped: map[string]bool{}}
	if err := bounds.DecodeYAML(text, MaxMappingFile, &m.file); err != nil {
		return nil, yamlError(err)
	}
	return m, m.compileRules()
}

// unknownField matches the parser's error about an unknown key, which mentions a Go type that means nothing to users.
var unknownField = regexp.MustCompile(`field (\S+) not found in type \S+`)

// yamlError joins the parser's list of errors into one line.
func yamlError(err error) error {
	var wrong *yaml.TypeError
	if !errors.As(err, &wrong) {
		return errors.New(strings.ReplaceAll(err.Error(), "\n", " "))
	}
	text := strings.Join(wrong.Errors, "; ")
	return errors.New(unknownField.ReplaceAllString(text, "unknown key $1"))
}

// compileRules validates and prepares the file's content.
func (m *Mapping) compileRules() error {
	f := &m.file
	if f.Names == "" {
		f.Names = namesUnderscores
	}
	if f.Names != namesUnderscores && f.Names != namesUTF8 {
		return fmt.Errorf("names: unknown value %q; the values are %s and %s", f.Names, namesUnderscores, namesUTF8)
	}
	for i := range f.Metrics {
		if err := f.Metrics[i].compileRule(m); err != nil {
			return fmt.Errorf("metrics, rule %d: %w", i+1, err)
		}
	}
	for _, tag := range f.Drop {
		m.dropped[tag] = true
	}
	for _, tag := range slices.Sorted(maps.Keys(f.Tags)) {
		if m.dropped[tag] {
			return fmt.Errorf("tags: %q is also in drop_tags", tag)
		}
		if err := m.checkLabelName(f.Tags[tag]); err != nil {
			return fmt.Errorf("tags: %q: %w", tag, err)
		}
	}
	return m.checkLabels(f.Labels)
}

// compileRule validates and prepares a rule.
func (r *metricRule) compileRule(m *Mapping) error {
	switch {
	case (r.Name == "") == (r.Match == ""):
		return errors.New("must have name or match")
	case r.Drop && (r.To != "" || len(r.Labels) > 0):
		return errors.New("a dropped metric can't have to or labels")
	case !r.Drop && r.To == "" && len(r.Labels) == 0:
		return errors.New("has no effect; set to, labels or drop")
	}
	if err := m.checkLabels(r.Labels); err != nil {
		return err
	}
	if r.Match == "" {
		if r.To != "" && m.metricName(r.To) != r.To {
			return fmt.Errorf("to: %q is not a valid metric name; `names: %s` allows any name", r.To, namesUTF8)
		}
		return nil
	}
	var err error
	if r.expression, err = regexp.Compile("^(?s:" + r.Match + ")$"); err != nil {
		return fmt.Errorf("match: %q is not a valid regular expression: %s",
			r.Match, strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	for _, text := range slices.Concat([]string{r.To}, slices.Collect(maps.Values(r.Labels))) {
		if err := r.checkTemplate(text); err != nil {
			return err
		}
	}
	return nil
}

// groupReference matches a reference to a group in a template.
var groupReference = regexp.MustCompile(`\$(?:\$|(\w+)|\{(\w+)\})`)

// checkTemplate returns an error if text references groups that the expression doesn't have. Their values would be
// empty.
func (r *metricRule) checkTemplate(text string) error {
	for _, found := range groupReference.FindAllStringSubmatch(text, -1) {
		name := found[1] + found[2]
		if name == "" || slices.Contains(r.expression.SubexpNames(), name) {
			continue
		}
		var n int
		if _, err := fmt.Sscanf(name+" ", "%d ", &n); err == nil && n <= r.expression.NumSubexp() {
			continue
		}
		return fmt.Errorf("%q: match has no group %s; if a letter follows the group, write ${1}x", text, name)
	}
	return nil
}

func (m *Mapping) checkLabels(ls map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(ls)) {
		if err := m.checkLabelName(name); err != nil {
			return fmt.Errorf("labels: %w", err)
		}
	}
	return nil
}

func (m *Mapping) checkLabelName(name string) error {
	switch {
	case name == labels.MetricName:
		return fmt.Errorf("%s is the metric name and can't be set as a label", name)
	case name == "" || m.labelName(name) != name:
		return fmt.Errorf("%q is not a valid label name; `names: %s` allows any text", name, namesUTF8)
	}
	return nil
}

// metricName returns the name of a metric in Prometheus' spelling.
func (m *Mapping) metricName(name string) string { return m.name(name, true) }

// labelName returns the label name of a tag.
func (m *Mapping) labelName(name string) string { return m.name(name, false) }

// name replaces each invalid character by an underscore, and inserts an underscore before a leading digit.
func (m *Mapping) name(name string, colons bool) string {
	if m.file.Names == namesUTF8 {
		return strings.ToValidUTF8(name, string(utf8.RuneError))
	}
	var b strings.Builder
	for i, c := range name {
		digit := c >= '0' && c <= '9'
		switch {
		case i == 0 && digit:
			b.WriteByte('_')
			b.WriteRune(c)
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', digit, c == '_', colons && c == ':':
			b.WriteRune(c)
		default:
			b.WriteByte('_')
		}
	}
	return b.String()
}

// metricMapping maps the series of one metric.
type metricMapping struct {
	m        *Mapping
	from, to string
	add      map[string]string
}

// mapMetric returns the mapping of a metric; false if the metric is dropped.
func (m *Mapping) mapMetric(name string) (*metricMapping, bool) {
	to := &metricMapping{m: m, from: name, to: m.metricName(name), add: m.file.Labels}
	for i := range m.file.Metrics {
		r := &m.file.Metrics[i]
		found, ok := []int(nil), r.Name == name
		if r.expression != nil {
			found = r.expression.FindStringSubmatchIndex(name)
			ok = found != nil
		}
		switch {
		case !ok:
			continue
		case r.Drop:
			return nil, false
		}
		expand := func(text string) string {
			if r.expression == nil {
				return text
			}
			return string(r.expression.ExpandString(nil, text, name, found))
		}
		if r.To != "" {
			to.to = m.metricName(expand(r.To))
		}
		if len(r.Labels) > 0 {
			to.add = maps.Clone(m.file.Labels)
			if to.add == nil {
				to.add = map[string]string{}
			}
			for label, text := range r.Labels {
				to.add[label] = expand(text)
			}
		}
		return to, true
	}
	return to, true
}

// mapLabel returns the label name of a tag; false if the tag is dropped.
func (m *Mapping) mapLabel(tag string) (string, bool) {
	if m.dropped[tag] {
		return "", false
	}
	if to, ok := m.file.Tags[tag]; ok {
		return to, true
	}
	return m.labelName(tag), true
}

// labels returns the labels of a series of the metric. An error means that the series has no valid labels.
func (mm *metricMapping) labels(tags map[string]string) (labels.Labels, error) {
	if mm.to == "" {
		return labels.EmptyLabels(), errors.New("has no name after mapping")
	}
	set := map[string]string{labels.MetricName: mm.to}
	from := map[string]string{}
	for _, tag := range slices.Sorted(maps.Keys(tags)) {
		name, ok := mm.m.mapLabel(tag)
		switch {
		case !ok || tags[tag] == "":
			continue
		case name == labels.MetricName || name == "":
			return labels.EmptyLabels(), fmt.Errorf(
				"tag %q would become label %q; map it to another name under tags, or drop it under drop_tags", tag,
				name,
			)
		}
		if other, ok := from[name]; ok {
			return labels.EmptyLabels(), fmt.Errorf(
				"tags %q and %q would both become label %q; map one of them to another name under tags, or drop it "+
					"under drop_tags",
				other, tag, name,
			)
		}
		from[name], set[name] = tag, tags[tag]
	}
	for name, value := range mm.add {
		if _, ok := set[name]; !ok && value != "" {
			set[name] = value
		}
	}
	return labels.FromMap(set), nil
}
