package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestVersion checks that the version of a program built from source is the content of the file VERSION.
func TestVersion(t *testing.T) {
	file, err := os.ReadFile("../../VERSION")
	require.NoError(t, err)
	require.Equal(t, strings.TrimSpace(string(file)), buildVersion().Cassia)
	require.Contains(t, versionText(), "cassia, version "+buildVersion().Cassia+" (")
}
