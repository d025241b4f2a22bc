package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMetadataFlags(t *testing.T) {
	c, shown, err := parseRules(t, "--metadata.from=http://prometheus:9090",
		"--metadata.from=team-a=https://ops:secret@other/prometheus", "--metadata.http.config.file=login.yml")
	require.NoError(t, err)
	require.Len(t, c.Metadata.Sources, 2)
	require.Equal(t, "default", c.Metadata.Sources[0].Tenant)
	require.Equal(t, "team-a", c.Metadata.Sources[1].Tenant)
	require.Equal(t, "login.yml", c.Metadata.HTTPConfigFile)
	require.Contains(t, shown, "metadata.from=http://prometheus:9090,team-a=https://ops:xxxxx@other/prometheus")
	require.NotContains(t, shown, "secret")

	for flags, told := range map[string]string{
		"--metadata.from=prometheus:9090":                                              "--metadata.from: must be a URL such as",
		"--metadata.from=a/b=http://ops:secret@x":                                      "--metadata.from: ",
		"--metadata.from=http://ops:secret@[":                                          "must be a URL such as",
		"--metadata.from=http://ops:secret@a --target=read --storage.engine=cassandra": "doesn't receive samples; set it on a process with all or write",
	} {
		_, _, err := parseRules(t, strings.Fields(flags)...)
		require.ErrorContains(t, err, told, flags)
		require.NotContains(t, err.Error(), "secret")
	}
}
