package relabeling

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/config"
	"github.com/stretchr/testify/require"
)

// prometheusAccepts returns nil if Prometheus accepts rules in its section remote_write, otherwise its error. promtool
// uses the same parser.
func prometheusAccepts(rules string) error {
	indented := "\n    " + rules
	_, err := config.Load("remote_write:\n- url: http://localhost/write\n  write_relabel_configs:"+indented+"\n",
		slog.New(slog.DiscardHandler))
	return err
}

// TestRulesArePrometheus checks that exactly the rules that Prometheus accepts are accepted.
func TestRulesArePrometheus(t *testing.T) {
	for _, c := range []struct {
		rules string
		ok    bool
	}{
		{`[]`, true},
		{`- {source_labels: [__name__], regex: go_.*, action: drop}`, true},
		{`- {source_labels: [__name__], regex: go_.*, action: DROP}`, true},
		{`- {regex: pod, action: labeldrop}`, true},
		{`- {regex: pod, action: labeldrop, target_label: x}`, false},
		{`- {source_labels: [a, b], separator: "-", target_label: c}`, true},
		{`- {source_labels: [a], target_label: "${1}_x"}`, true},
		{`- {source_labels: [a], target_label: "mit blank"}`, true},
		{`- {source_labels: [a]}`, false},
		{`- {source_labels: [a], regex: "(", action: keep}`, false},
		{`- {source_labels: [a], action: hashmod, target_label: x}`, false},
		{`- {source_labels: [a], action: hashmod, modulus: 7, target_label: x}`, true},
		{`- {source_labels: [a], action: keepequal, target_label: b}`, true},
		{`- {source_labels: [a], action: keepequal, target_label: b, regex: x}`, false},
		{`- {source_labels: [a], action: lowercase, target_label: b, replacement: x}`, false},
		{`- {source_labels: [a], action: forget}`, false},
		{`- {source_label: [a], action: drop}`, false},
		{`- {source_labels: [a], action: drop, action: keep}`, false},
		{`- {regex: "a_(.*)", action: labelmap, replacement: "b_$1"}`, true},
		{`-`, false},
		{`- {action: ""}`, false},
		{`- {source_labels: a}`, false},
		{`{source_labels: [a]}`, false},
	} {
		theirs := prometheusAccepts(c.rules)
		require.Equal(t, c.ok, theirs == nil, "%s: %v", c.rules, theirs)
		for _, text := range []string{
			c.rules,
			"write_relabel_configs:\n  " + c.rules,
			"tenants:\n  a:\n    write_relabel_configs:\n      " + c.rules,
		} {
			if text == c.rules && strings.HasPrefix(text, "{") {
				continue // a file with keys instead of a list
			}
			_, err := Parse([]byte(text))
			require.Equal(t, c.ok, err == nil, "%s: %v, Prometheus: %v", text, err, theirs)
			if err != nil {
				require.ErrorIs(t, err, errBadRules)
				require.NotContains(t, err.Error(), "relabel.plain")
			}
		}
	}
}

func TestFiles(t *testing.T) {
	table, err := Parse([]byte(`
write_relabel_configs:
- {source_labels: [__name__], regex: a, action: drop}
- {source_labels: [__name__], regex: b, action: drop}
tenants:
  none: {write_relabel_configs: []}
  nothing:
  own:
    write_relabel_configs:
    - {regex: pod, action: labeldrop}
`))
	require.NoError(t, err)
	require.Equal(t, 2, table.RulesOf("anybody").Len())
	require.Nil(t, table.RulesOf("none"))
	require.Nil(t, table.RulesOf("nothing"))
	require.Equal(t, []string{`{regex: "pod", action: labeldrop}`}, table.RulesOf("own").texts)
	again, err := Parse([]byte("- " + table.RulesOf("x").texts[0] + "\n- " + table.RulesOf("x").texts[1]))
	require.NoError(t, err, "rules are shown as they could be written")
	require.True(t, again.everybody.isSame(table.everybody))
	require.Nil(t, (*Table)(nil).RulesOf("anybody"))

	empty, err := Parse(nil)
	require.NoError(t, err)
	require.Nil(t, empty.RulesOf("anybody"))

	for text, want := range map[string]string{
		"default: []":         "line 1: unknown key default",
		"tenants:\n  a/b: {}": "a/b",
		"tenants:\n  a: []":   "line 2",
		"- {action: labeldrop, regex: a}\n- action: drop\n  regex: '('":                                           "line 3, rule 2: error parsing regexp: missing closing )",
		"- {action: labeldrop, regex: a}\n-\n  action: dropp":                                                     "line 3, rule 2: unknown relabel action \"dropp\"",
		"- {action: labeldrop, regex: a}\n- action: drop\n  regx: a":                                              "line 3, rule 2: unknown key regx",
		"- {action: labeldrop, regex: a}\n- action: drop\n  source_labels: a":                                     "line 3, rule 2: cannot unmarshal",
		"write_relabel_configs: []\ntenants:\n  a:\n    write_relabel_configs:\n    - {action: drop, regex: '*'}": "line 5, tenant a, rule 1: error parsing regexp",
		"- {action: labeldrop, regex: a}\n\n- {source_labels: [a]}":                                               "line 3, rule 2: relabel configuration for replace action requires 'target_label'",
		"- &a {source_labels: [a]}\n- *a":                                                                         "line 1, rule 1: relabel configuration",
		"[]\n---\n[]":                                                                                             "more than one document",
		"- {source_labels: [a]}":                                                                                  "rule 1: relabel configuration for replace action requires 'target_label'",
		"tenants: {a: {rules: []}}":                                                                               "unknown key rules",
		strings.Repeat("#", MaxFile+1):                                                                            "bytes; the maximum is 4194304",
		strings.Repeat("- {action: labeldrop}\n", maxRules+1):                                                     "rules; the maximum is 1000",
		"- &a {regex: '" + strings.Repeat("x", 1000) + "', action: labeldrop}\n" + strings.Repeat("- *a\n", 100_000): "without aliases the text would have more than 4194304 bytes",
		"- &a {regex: 'x{100}', action: labeldrop}\n" + strings.Repeat("- *a\n", 100_000):                            "more than 1000 rules",
		"- &a {regex: 'x{1000}', action: labeldrop}\n" + strings.Repeat("- *a\n", 10):                                "regular expressions too large",
		"- {regex: '(" + strings.Repeat("ab", 500) + "){1000}', action: labeldrop}":                                  "regular expressions too large",
		"tenants:\n  a:\n    write_relabel_configs: [{source_labels: [a]}]":                                          "tenant a, rule 1",
	} {
		_, err := Parse([]byte(text))
		require.ErrorIs(t, err, errBadRules)
		require.ErrorContains(t, err, want, fmt.Sprintf("%.60s", text))
		require.NotContains(t, err.Error(), "\n")
	}
}
