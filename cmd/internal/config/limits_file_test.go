package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLimitsFile(t *testing.T) {
	c, err := parse(t)
	require.NoError(t, err)
	table, err := c.LoadLimits()
	require.NoError(t, err)
	require.Zero(t, table.LimitsOf("a"))
	require.False(t, c.Lifecycle || c.Federation)

	name := filepath.Join(t.TempDir(), "limits.yaml")
	c, err = parse(t, "--limits.file="+name, "--web.enable-lifecycle", "--tenants.federation")
	require.NoError(t, err)
	require.True(t, c.Lifecycle && c.Federation)
	_, err = c.LoadLimits()
	require.EqualError(t, err, "--limits.file="+name+": no such file or directory")
	require.NoError(t, os.WriteFile(name, []byte("tenants: {a: {queries: 3}}"), 0o600))
	table, err = c.LoadLimits()
	require.NoError(t, err)
	require.EqualValues(t, 3, table.LimitsOf("a").Queries)
	require.NoError(t, os.WriteFile(name, []byte("tenants: {a: {queries: 3, querys: 4}}"), 0o600))
	_, err = c.LoadLimits()
	require.ErrorContains(t, err, `line 1: unknown key "querys"`)
}
