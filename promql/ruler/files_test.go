package ruler

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseSource(t *testing.T) {
	for text, want := range map[string]Source{
		"rules/*.yml":           {"default", "rules/*.yml"},
		"team-a=/etc/rules.yml": {"team-a", "/etc/rules.yml"},
		"a=b=c.yml":             {"a", "b=c.yml"},
	} {
		got, err := ParseSource(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"", "a=", "/a=b.yml", "=b.yml", "[", "a=[-"} {
		_, err := ParseSource(text)
		require.Error(t, err, text)
	}
}

// TestWrongFiles checks that the error of a faulty file contains its name, the reason and, if Prometheus' parser
// reports it, the line. If a reload finds such a file, the rules must stay unchanged.
func TestWrongFiles(t *testing.T) {
	for name, c := range map[string]struct{ text, told string }{
		"query": {"groups:\n- name: g\n  rules:\n  - record: a\n    expr: sum(",
			`rules.yml: 5:11: group "g", rule 1, "a": could not parse expression`},
		"unknown field": {"groups:\n- name: g\n  ruels: []\n",
			"rules.yml: yaml: unmarshal errors:\n  line 3: field ruels not found"},
		"twice": {"groups:\n- name: g\n- name: g\n", `groupname: "g" is repeated in the same file`},
		"label": {"groups:\n- name: g\n  rules:\n  - alert: a\n    expr: up\n    labels: {__name__: b}\n",
			`rules.yml: group "g", rule 1, "a": invalid label name`},
		"too deep": {"groups:\n- name: g\n  rules:\n  - record: a\n    expr: " + strings.Repeat("(",
			600) + "1" + strings.Repeat(")", 600), "query too complex"},
		"too many by aliases": {"groups:\n- name: g\n  rules:\n  - &a {record: a, expr: '" + strings.Repeat("1 + ",
			100) + "1'}\n" + strings.Repeat("  - *a\n", 50_000),
			"rules.yml: bounds: YAML aliases expand to too much text: without aliases the text would have more than"},
		"nested template": {"groups:\n- name: g\n  rules:\n  - alert: a\n    expr: up\n    annotations: {a: '" +
			strings.Repeat("{{if 1}}", 250_000) + strings.Repeat("{{end}}", 250_000) + "'}",
			"groups.rules.annotations.a: the template has 3750000 bytes; the maximum is 65536"},
		"repetitions": {"groups:\n- name: g\n  rules:\n  - record: a\n    expr: up{a=~'(" + strings.Repeat("ab",
			500) + "){1000}'}", "query too complex"},
		"too large": {strings.Repeat("#", maxFileBytes+1), "rules.yml: is larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			path := filepath.Join(r.dir, "rules.yml")
			require.NoError(t, os.WriteFile(path, []byte(c.text), 0o600))
			_, err := New(r.store, r.options())
			require.ErrorIs(t, err, errRuleFile)
			require.ErrorContains(t, err, c.told)

			r.file("groups: [{name: good, rules: [{record: a, expr: up}]}]")
			ruler, err := New(r.store, r.options())
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, []byte(c.text), 0o600))
			require.ErrorContains(t, ruler.Reload(), c.told)
			groups, err := ruler.Groups(t.Context(), testTenant)
			require.NoError(t, err)
			require.Len(t, groups, 1)
			require.Equal(t, "good", groups[0].Name())
		})
	}
}

// TestFileNameIsUTF8 checks that a file whose name isn't UTF-8 is rejected. The name would be a label value of
// Prometheus' metrics of groups, which panic in this case.
func TestFileNameIsUTF8(t *testing.T) {
	r := newRig(t)
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, "a\xff.yml"),
		[]byte("groups: [{name: g, rules: [{record: a, expr: up}]}]"), 0o600))
	_, err := New(r.store, r.options())
	require.ErrorIs(t, err, errRuleFile)
	require.ErrorContains(t, err, "isn't valid UTF-8")
}

// TestNoFileMatches checks that a pattern without matches is logged at the start and whenever the files are read again.
func TestNoFileMatches(t *testing.T) {
	r := newRig(t)
	o := r.options()
	o.Sources = []Source{{Tenant: testTenant, Glob: filepath.Join(r.dir, "none", "*.yml")}}
	var said bytes.Buffer
	o.Logger = slog.New(slog.NewTextHandler(&said, nil))
	ruler, err := New(r.store, o)
	require.NoError(t, err)
	require.NoError(t, ruler.Reload())
	require.Equal(t, 2, strings.Count(said.String(), "level=WARN"), said.String())
	require.Contains(t, said.String(), filepath.Join("none", "*.yml"))
}

// TestReload checks that reloading adds, changes and removes groups while rules are evaluated, and that the series of a
// removed rule end.
func TestReload(t *testing.T) {
	r := newRig(t)
	r.file("groups: [{name: g, interval: 1s, rules: [{record: a, expr: vector(1)}, {record: b, expr: vector(2)}]}]")
	o := r.options()
	o.SettleTime, o.Now = 0, time.Now
	ruler, err := New(r.store, o)
	require.NoError(t, err)
	ctx, cancel := contextOf(t)
	ended := make(chan struct{})
	go func() { ruler.Run(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	groups := func() (names []string) {
		for _, g := range ruler.Retriever(ctx).RuleGroups() {
			for _, rule := range g.Rules() {
				names = append(names, g.Name()+"/"+rule.Name())
			}
		}
		return names
	}
	require.Eventually(t, ruler.isEvaluating, time.Minute, time.Millisecond)
	require.Equal(t, []string{"g/a", "g/b"}, groups())
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, "rules.yml"), []byte(
		"groups: [{name: f, rules: [{record: c, expr: up}]}, {name: g, rules: [{record: a, expr: vector(1)}]}]"),
		0o600))
	require.NoError(t, ruler.Reload())
	require.Equal(t, []string{"f/c", "g/a"}, groups())
	require.NoError(t, os.Remove(filepath.Join(r.dir, "rules.yml")))
	require.NoError(t, ruler.Reload())
	require.Empty(t, groups())
}
