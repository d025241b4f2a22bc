package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"github.com/cassia-db/cassia/promql"
	"github.com/cassia-db/cassia/storage/bounds"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/tenant"
)

// retentionFile is the contents of the file set by --retention.file:
//
//	tenants:
//	  team-a: {raw: 7d, 5m: 90d, 1h: 2y}
//	classes:
//	  - name: ci
//	    match: '{job="ci"}'
//	    raw: 3d
//	    5m: 30d
//	    1h: 90d
type retentionFile struct {
	Tenants map[string]retentionFields `yaml:"tenants"`
	Classes []classText                `yaml:"classes"`
}

// retentionFields holds durations in Prometheus' syntax. An empty duration of rollups is replaced by the value of the
// flag.
type retentionFields struct {
	Raw         string `yaml:"raw"`
	FiveMinutes string `yaml:"5m"`
	OneHour     string `yaml:"1h"`
}

type classText struct {
	Name            string    `yaml:"name"`
	Match           yaml.Node `yaml:"match"`
	retentionFields `yaml:",inline"`
}

// maxRetentionFile is the max size of a retention file in bytes.
const maxRetentionFile = 1 << 20

// className matches valid names of classes. They are restricted because a name is stored forever and appears in logs.
var className = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)

// loadRetentionFile adds the tenants and classes in a retention file to r.
func (r *Retention) loadRetentionFile(name string) error {
	text, err := bounds.ReadFile(name, maxRetentionFile)
	if err == nil {
		err = r.parseFile(text)
	}
	if err != nil {
		return flagError("retention.file", name, oneLine(err))
	}
	return nil
}

func (r *Retention) parseFile(text []byte) error {
	var file retentionFile
	if err := bounds.DecodeYAML(text, maxRetentionFile, &file); err != nil {
		return yamlError(err)
	}
	for _, name := range sortedKeys(file.Tenants) {
		if err := tenant.CheckName(name); err != nil {
			return fmt.Errorf("tenant %q: %w", name, err)
		}
		keep, err := file.Tenants[name].parse(*r)
		if err != nil {
			return fmt.Errorf("tenant %q: %w", name, err)
		}
		if r.Tenants == nil {
			r.Tenants = map[string]retention.Durations{}
		}
		r.Tenants[name] = keep
	}
	if n := len(file.Classes); n > retention.MaxClasses {
		return fmt.Errorf("has %d classes; the maximum is %d", n, retention.MaxClasses)
	}
	for i := range file.Classes {
		c, err := file.Classes[i].parse(*r)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(r.Classes, func(x retention.Class) bool { return x.Name == c.Name }) {
			return fmt.Errorf("the class name %q is used twice", c.Name)
		}
		r.Classes = append(r.Classes, c)
	}
	return nil
}

// yamlError removes the names of Go types from an error of the YAML parser.
func yamlError(err error) error {
	var te *yaml.TypeError
	if !errors.As(err, &te) {
		return err
	}
	text, _, _ := strings.Cut(te.Errors[0], " in type ")
	text, _, _ = strings.Cut(text, " into ")
	return errors.New(strings.Replace(text, "field ", "unknown key ", 1))
}

func sortedKeys[T any](m map[string]T) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// parse parses the durations. raw is required. If the duration of a rollup resolution is missing, its retention is the
// one set by the flags (usual), or the retention of the data from which these rollups are computed, whichever is
// longer.
func (r retentionFields) parse(usual Retention) (keep retention.Durations, err error) {
	if r.Raw == "" {
		return keep, errors.New("raw is missing; set the retention of raw samples, such as 7d")
	}
	if keep.Raw, err = fileDuration("raw", r.Raw); err != nil {
		return keep, err
	}
	if keep.Raw > 0 && keep.Raw < 24*time.Hour {
		return keep, fmt.Errorf("raw: %s must be at least 1d, or 0 to keep samples forever", r.Raw)
	}
	if keep.FiveMinutes, err = coarserInFile("5m", r.FiveMinutes, usual.FiveMinutes, "raw", keep.Raw); err != nil {
		return keep, err
	}
	keep.OneHour, err = coarserInFile("1h", r.OneHour, usual.OneHour, "5m", keep.FiveMinutes)
	return keep, err
}

func coarserInFile(key, text string, usual time.Duration, finerKey string, finer time.Duration) (time.Duration, error) {
	if text == "" {
		if finer == 0 || usual == 0 {
			return 0, nil
		}
		return max(usual, finer), nil
	}
	d, err := fileDuration(key, text)
	switch {
	case err != nil:
		return 0, err
	case d != 0 && (finer == 0 || d < finer):
		kept := "forever"
		if finer > 0 {
			kept = model.Duration(finer).String()
		}
		return 0, fmt.Errorf("%s: %s is shorter than %s, %s", key, text, finerKey, kept)
	}
	return d, nil
}

func fileDuration(key, text string) (time.Duration, error) {
	d, err := model.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%s: %q must be a duration such as 30d or 1y, or 0 to keep samples forever", key, text)
	}
	return time.Duration(d), nil
}

func (t *classText) parse(usual Retention) (retention.Class, error) {
	c := retention.Class{Name: t.Name}
	if !className.MatchString(t.Name) {
		return c, fmt.Errorf("class %q: the name must be 1 to 64 letters, digits, dots, hyphens and underscores",
			t.Name)
	}
	var selectors []string
	switch t.Match.Kind {
	case yaml.ScalarNode:
		selectors = []string{t.Match.Value}
	case yaml.SequenceNode:
		if err := t.Match.Decode(&selectors); err != nil {
			return c, fmt.Errorf("class %q: match: %w", t.Name, yamlError(err))
		}
	}
	if len(selectors) == 0 {
		return c, fmt.Errorf(`class %q: match is missing; set a selector such as '{job="ci"}', or a list of selectors`,
			t.Name)
	}
	for _, text := range selectors {
		ms, err := parseSelector(text)
		if err == nil && len(ms) == 0 {
			err = errMatchesAll
		}
		if err != nil {
			return c, fmt.Errorf("class %q: match: %s: %w", t.Name, text, err)
		}
		c.Match = append(c.Match, ms)
	}
	var err error
	if c.Durations, err = t.retentionFields.parse(usual); err != nil {
		return c, fmt.Errorf("class %q: %w", t.Name, err)
	}
	return c, nil
}

var errMatchesAll = errors.New("matches every series; use --retention.raw, --retention.5m and --retention.1h instead")

func parseSelector(text string) ([]*labels.Matcher, error) {
	return promql.NewParser(parser.Options{}).ParseMetricSelector(text)
}
