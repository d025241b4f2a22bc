package config

import (
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/promql/ruler"
)

// parseRules parses flags. It also returns all flags as they are printed.
func parseRules(t *testing.T, args ...string) (*Config, string, error) {
	app := kingpin.New("cassia", "")
	cmd := app.Command("serve", "")
	c := RegisterFlags(cmd, 16<<30)
	if _, err := app.Parse(append([]string{"serve"}, args...)); err != nil {
		return nil, "", err
	}
	shown := ""
	for _, f := range cmd.Model().Flags {
		shown += f.Name + "=" + f.Value.String() + "\n"
	}
	return c, shown, c.Validate()
}

func TestRulesFlags(t *testing.T) {
	c, shown, err := parseRules(t, "--rule.files=a/*.yml", "--rule.files=team-a=b.yml", "--rule.external-label=zone=z1",
		"--alertmanager.url=https://ops:secret@alerts:9093/am/", "--alertmanager.url=http://other:9093")
	require.NoError(t, err)
	require.Equal(
		t, []ruler.Source{{Tenant: "default", Glob: "a/*.yml"}, {Tenant: "team-a", Glob: "b.yml"}}, c.Rules.Sources,
	)
	require.Equal(t, time.Minute, c.Rules.Interval)
	require.Equal(t, labels.FromStrings("zone", "z1"), c.Rules.ExternalLabels)
	require.Len(t, c.Rules.Alertmanagers, 2)
	require.Contains(t, shown, "alertmanager.url=https://ops:xxxxx@alerts:9093/am/,http://other:9093")
	require.NotContains(t, shown, "secret")

	for flags, told := range map[string]string{
		"--rule.files=":                                                "the pattern is empty",
		"--rule.files=a/b=c.yml":                                       "must be tenant=pattern, or a pattern without =",
		"--rule.evaluation-interval=0s":                                "from 1s to 1y",
		"--rule.evaluation-interval=10ms":                              "from 1s to 1y",
		"--rule.external-label=zone":                                   "must be name=value",
		"--rule.external-label=__name__=a":                             "must be name=value",
		"--alertmanager.url=alerts:9093":                               "must be a URL such as",
		"--alertmanager.url=http://a?b=secret":                         "must be a URL such as",
		"--rule.files=a.yml --target=write --storage.engine=cassandra": "answers no queries",
	} {
		_, _, err := parseRules(t, strings.Fields(flags)...)
		require.ErrorContains(t, err, told, flags)
	}
	_, _, err = parseRules(t, "--alertmanager.url=http://ops:secret@[")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")
	_, _, err = parseRules(t, "--rule.external-label=a=1", "--rule.external-label=a=2")
	require.ErrorContains(t, err, "the label already has a value")
}
