package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter/relabeling"
)

func TestRelabelFile(t *testing.T) {
	c, err := parse(t)
	require.NoError(t, err)
	table, err := c.LoadRelabeling()
	require.NoError(t, err)
	require.Nil(t, table.RulesOf("a"), "without a file there are no rules")

	file := filepath.Join(t.TempDir(), "rules.yml")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	write("write_relabel_configs: [{source_labels: [__name__], regex: go_.*, action: drop}]\ntenants: {free: {}}")
	c, err = parse(t, "--write.relabel-file="+file)
	require.NoError(t, err)
	table, err = c.LoadRelabeling()
	require.NoError(t, err)
	require.NotNil(t, table.RulesOf("a"))
	require.Nil(t, table.RulesOf("free"))

	for text, want := range map[string]string{
		"write_relabel_configs: [{action: burn}]":          "burn",
		strings.Repeat("# much\n", relabeling.MaxFile/7+1): "is larger than 4 MiB",
	} {
		write(text)
		_, err = c.LoadRelabeling()
		require.ErrorContains(t, err, "--write.relabel-file="+file)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "\n")
	}
	require.NoError(t, os.Remove(file))
	_, err = c.LoadRelabeling()
	require.ErrorContains(t, err, "no such file")
}
