package main

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/alecthomas/kingpin/v2"
	"github.com/stretchr/testify/require"
)

// TestEveryFlagStandsInTheReadme holds as soon as there is a README.
func TestEveryFlagStandsInTheReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	require.NoError(t, err)
	app := kingpin.New("cassia", "")
	subcommands(app)
	for _, flag := range app.GetCommand("serve").Model().Flags {
		require.Contains(t, string(readme), "--"+flag.Name, "say in README.md what the flag does")
	}
}
