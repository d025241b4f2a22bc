package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

var rewriteManual = flag.Bool("rewrite", false, "write what the manual has from the program, instead of comparing it")

const (
	manualDir = "../internal/manual/"
	toRoot    = "../../"
)

// requireManual requires that a page is equal to the generated text. With -rewrite, it writes the page.
func requireManual(t *testing.T, page, want string) {
	t.Helper()
	if *rewriteManual {
		require.NoError(t, os.WriteFile(manualDir+page, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, manualPage(t, page),
		"%s isn't what the program says: go test ./cmd/cassia -run TestManual -rewrite", page)
}

// requireManualPart is like requireManual, for the part of a page between two markers.
func requireManualPart(t *testing.T, page, name, want string) {
	t.Helper()
	begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->"
	before, rest, ok := strings.Cut(manualPage(t, page), begin)
	require.True(t, ok, "%s has no %s", page, begin)
	_, after, ok := strings.Cut(rest, end)
	require.True(t, ok, "%s has no %s", page, end)
	requireManual(t, page, before+begin+"\n"+want+"\n"+end+after)
}

func manualPage(t *testing.T, page string) string {
	t.Helper()
	return cassiatest.ReadText(t, manualDir+page)
}

// tableCell escapes text for a cell of a Markdown table.
func tableCell(text string) string {
	return strings.NewReplacer("\n", " ", "|", `\|`, "<", `\<`, "*", `\*`).Replace(strings.TrimSpace(text))
}

// TestManualFlags compares the page of flags with the flags that the program declares. To update the page: go test
// ./cmd/cassia -run TestManualFlags -rewrite.
func TestManualFlags(t *testing.T) {
	app, _ := newApplication()
	requireManual(t, "flags.md", flagsPage(app.Model(), environmentVariables))
}

// alert is an alerting rule of the examples.
type alert struct {
	Alert       string            `yaml:"alert"`
	Annotations map[string]string `yaml:"annotations"`
}

// TestManualAlerts checks that every alert of the examples is documented in the manual. To update the page: go test
// ./cmd/cassia -run TestManualAlerts -rewrite.
func TestManualAlerts(t *testing.T) {
	names, err := filepath.Glob(toRoot + "examples/rules/*.yml")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		var file struct {
			Groups []struct {
				Rules []alert `yaml:"rules"`
			} `yaml:"groups"`
		}
		require.NoError(t, yaml.Unmarshal(text, &file))
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "### %s\n\n| alert | meaning | what to do |\n|---|---|---|\n", filepath.Base(name))
		for _, group := range file.Groups {
			for _, rule := range group.Rules {
				if rule.Alert == "" {
					continue
				}
				require.NotEmpty(t, rule.Annotations["do"], "%s: say what to do", rule.Alert)
				fmt.Fprintf(&b, "| `%s` | %s | %s |\n", rule.Alert, tableCell(rule.Annotations["description"]),
					tableCell(rule.Annotations["do"]))
			}
		}
	}
	requireManualPart(t, "alerts.md", "alerts", b.String())
}

// descriptorPattern matches the text of a Prometheus metric descriptor.
var descriptorPattern = regexp.MustCompile(
	`^Desc\{fqName: "([^"]+)", help: "(.*)", unit: "[^"]*", constLabels: \{.*\}, variableLabels: \{(.*)\}\}$`,
)

// ofCassandra matches the metrics of the Cassandra engine in its source. They are extracted from the source because
// they aren't registered without a cluster.
var ofCassandra = regexp.MustCompile(`(?:Name:\s*|NewDesc\()"(cassia_cassandra_\w+)",\s*(?:Help:\s*)?"([^"]+)"`)

// TestManualMetrics checks that every metric in the registry of a running process is documented in the manual. To
// update the page: go test ./cmd/cassia -run TestManualMetrics -rewrite.
func TestManualMetrics(t *testing.T) {
	lines := map[string]string{}
	for _, d := range registeredMetrics(t) {
		m := descriptorPattern.FindStringSubmatch(d.String())
		require.NotNil(t, m, d.String())
		name := m[1]
		if m[3] != "" {
			name += "{" + strings.ReplaceAll(m[3], " ", "") + "}"
		}
		lines[m[1]] = fmt.Sprintf("| `%s` | %s |\n", name, tableCell(strings.ReplaceAll(m[2], `\"`, `"`)))
	}
	source, err := os.ReadFile(toRoot + "storage/cassandra/metrics.go")
	require.NoError(t, err)
	for _, m := range ofCassandra.FindAllStringSubmatch(string(source), -1) {
		lines[m[1]] = fmt.Sprintf("| `%s` | %s |\n", m[1], tableCell(m[2]))
	}
	require.Len(t, ofCassandra.FindAllString(string(source), -1), strings.Count(string(source), `"cassia_cassandra_`))
	var b strings.Builder
	for _, group := range []struct{ title, prefix string }{
		{"Cassia", "cassia_"}, {"Prometheus' evaluator, rules and notifications", "prometheus_"},
		{"The process", "process_"}, {"Go's runtime", "go_"},
	} {
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "## %s\n\n| metric | |\n|---|---|\n", group.title)
		for _, name := range slices.Sorted(func(yield func(string) bool) {
			for name := range lines {
				if strings.HasPrefix(name, group.prefix) && !yield(name) {
					return
				}
			}
		}) {
			b.WriteString(lines[name])
			delete(lines, name)
		}
	}
	require.Empty(t, lines, "add their prefix to the groups")
	requireManualPart(t, "metrics.md", "metrics", b.String())
}

// registeredMetrics returns the metrics of a process on a directory with all features enabled.
func registeredMetrics(t *testing.T) (list []*prometheus.Desc) {
	dir := t.TempDir()
	rules := filepath.Join(dir, "rules.yml")
	require.NoError(
		t, os.WriteFile(rules, []byte("groups: [{name: a, rules: [{record: b, expr: vector(1)}]}]\n"), 0o600),
	)
	p := startProcess(t, "--storage.path="+filepath.Join(dir, "data"), "--ha.enabled", "--rule.files="+rules,
		"--alertmanager.url=http://127.0.0.1:1", "--metadata.from=http://127.0.0.1:1")
	descs := make(chan *prometheus.Desc)
	go func() { p.registry.Describe(descs); close(descs) }()
	for d := range descs {
		list = append(list, d)
	}
	families, err := p.registry.Gather() // Some metrics exist only once they are gathered.
	require.NoError(t, err)
	for _, f := range families {
		require.True(t, slices.ContainsFunc(list, func(d *prometheus.Desc) bool {
			return strings.Contains(d.String(), `fqName: "`+f.GetName()+`"`)
		}), f.GetName())
	}
	return list
}

// TestManualRoutes checks that the manual documents each route of this package. Other packages check their own routes.
func TestManualRoutes(t *testing.T) {
	page := manualPage(t, "http-api.md")
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	found := 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`Path: "(?:[A-Z]+ )?(/[^"]+)"`).FindAllStringSubmatch(string(text), -1) {
			require.Contains(t, page, "`"+m[1]+"`", "give it a line in the manual's http-api.md")
			found++
		}
	}
	require.Greater(t, found, 8)
}

// TestManualErrorsAreReal checks that the errors quoted in the tables of the troubleshooting page exist in the source,
// so that users who search for an error find it.
func TestManualErrorsAreReal(t *testing.T) {
	text := manualPage(t, "troubleshooting.md")
	text = text[strings.Index(text, "## Errors of requests"):strings.Index(text, "## Alerts")]
	var source bytes.Buffer
	for _, house := range []string{"adapter", "cmd", "downsample", "promql", "storage"} {
		require.NoError(t, filepath.WalkDir(toRoot+house, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			content, err := os.ReadFile(path)
			source.Write(content)
			return err
		}))
	}
	// Long texts are split into string literals on multiple lines.
	joined := regexp.MustCompile(`" ?\+\n\s*"`).ReplaceAll(source.Bytes(), nil)
	quotes := regexp.MustCompile("(?m)^\\| [^|`]*`([^`]+)`").FindAllStringSubmatch(text, -1)
	require.Greater(t, len(quotes), 30)
	for _, m := range quotes {
		if m[1] == "query processing would load too many samples into memory" ||
			m[1] == "certificate signed by unknown authority" {
			continue // These errors come from Prometheus and Go.
		}
		require.True(t, bytes.Contains(joined, []byte(m[1])), "no error says %q", m[1])
	}
}
