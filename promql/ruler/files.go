package ruler

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/cassia-db/cassia/storage/bounds"
	"github.com/cassia-db/cassia/storage/tenant"
)

// These constants bound rule files.
const (
	// maxFileBytes is the maximum size of one file, in bytes. maxFiles is the maximum number of files of all tenants.
	maxFileBytes = 4 << 20
	maxFiles     = 10_000
	// maxTemplateBytes is the maximum size of a template of an alert, in bytes.
	maxTemplateBytes = maxAnnotations
)

// errRuleFile means that a rule file can't be used.
var errRuleFile = errors.New("ruler: rule file")

// Source names the rule files of a tenant.
type Source struct {
	Tenant string
	// Glob is a pattern for filepath.Match. A pattern without matches is logged, and isn't an error.
	Glob string
}

// ParseSource parses "tenant=glob", or a glob alone for the default tenant. A glob that contains "=" requires the
// tenant.
func ParseSource(text string) (Source, error) {
	s := Source{Tenant: tenant.Default, Glob: text}
	if name, glob, found := strings.Cut(text, "="); found {
		if err := tenant.CheckName(name); err != nil {
			return Source{}, fmt.Errorf("%w; must be tenant=pattern, or a pattern without =", err)
		}
		s = Source{Tenant: name, Glob: glob}
	}
	if s.Glob == "" {
		return Source{}, fmt.Errorf("%w: the pattern is empty", errRuleFile)
	}
	if _, err := filepath.Match(s.Glob, ""); err != nil {
		return Source{}, fmt.Errorf("%w: %q isn't a valid file pattern", errRuleFile, s.Glob)
	}
	return s, nil
}

// ruleFiles are the checked rule files of a tenant, by the path of each file.
type ruleFiles map[string]*rulefmt.RuleGroups

// loadFiles reads and checks all files. The returned error contains the file, the line and the reason of each fault.
func loadFiles(sources []Source, p parser.Parser, log *slog.Logger) (map[string]ruleFiles, error) {
	all, files := map[string]ruleFiles{}, 0
	var wrong []error
	for _, s := range sources {
		paths, err := filepath.Glob(s.Glob)
		if err != nil {
			return nil, fmt.Errorf("%w %s: %w", errRuleFile, s.Glob, err)
		}
		if len(paths) == 0 {
			log.Warn("no rule file matches this pattern", "rule.files", s.Glob, "tenant", s.Tenant)
		}
		if all[s.Tenant] == nil {
			all[s.Tenant] = ruleFiles{}
		}
		for _, path := range paths {
			if files++; files > maxFiles {
				return nil, fmt.Errorf("%w: more than %d files", errRuleFile, maxFiles)
			}
			if !utf8.ValidString(path) { // The path becomes a label value of metrics. This panics if it isn't UTF-8.
				wrong = append(wrong, fmt.Errorf("%w %q: its name isn't valid UTF-8", errRuleFile, path))
				continue
			}
			groups, err := parseFile(path, p)
			wrong = append(wrong, err)
			if err == nil && countRules(groups) == 0 {
				log.Warn("the rule file contains no rules", "file", path, "tenant", s.Tenant)
			}
			all[s.Tenant][path] = groups
		}
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	return all, nil
}

func parseFile(path string, p parser.Parser) (*rulefmt.RuleGroups, error) {
	text, err := bounds.ReadFile(path, maxFileBytes)
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w", errRuleFile, path, err)
	}
	if err := checkRules(text); err != nil {
		return nil, fmt.Errorf("%w %s: %w", errRuleFile, path, err)
	}
	groups, errs := rulefmt.Parse(text, false, model.UTF8Validation, p, slog.New(slog.DiscardHandler))
	for i := range errs {
		errs[i] = fmt.Errorf("%w %s: %w", errRuleFile, path, errs[i])
	}
	return groups, errors.Join(errs...)
}

// countRules counts the rules of a file.
func countRules(groups *rulefmt.RuleGroups) (n int) {
	for i := range groups.Groups {
		n += len(groups.Groups[i].Rules)
	}
	return n
}

// checkRules checks a file before Prometheus parses it. Without this check, a small file could exhaust the memory or
// the stack, because the parser expands aliases and recurses once per level of a template.
func checkRules(text []byte) error {
	return bounds.EachScalar(text, maxFileBytes, func(keys []string, value string) error {
		if key := keys[max(0, len(keys)-1):]; len(value) <= maxTemplateBytes || !strings.Contains(value, "{{") ||
			len(key) == 1 && key[0] == "expr" {
			return nil
		}
		return fmt.Errorf("%s: the template has %d bytes; the maximum is %d", strings.Join(keys, "."), len(value),
			maxTemplateBytes)
	})
}

// paths lists the files in order.
func (r ruleFiles) paths() []string { return slices.Sorted(maps.Keys(r)) }

// loader passes the checked files to a manager, which therefore reads no files.
type loader struct {
	files  func() ruleFiles
	parser parser.Parser
}

// Load implements rules.GroupLoader.
func (l loader) Load(path string, _ bool, _ model.ValidationScheme) (*rulefmt.RuleGroups, []error) {
	groups, ok := l.files()[path]
	if !ok {
		return nil, []error{fmt.Errorf("%w %s: the file is missing", errRuleFile, path)}
	}
	return groups, nil
}

// Parse implements rules.GroupLoader.
func (l loader) Parse(query string) (parser.Expr, error) { return l.parser.ParseExpr(query) }
