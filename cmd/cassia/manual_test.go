package main

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cli"
)

var rewriteManual = flag.Bool("rewrite", false, "write what the manual has from the program, instead of comparing it")

const manualDir = "../internal/manual/"

// requireManual wants a page to be what the program says, or makes it so.
func requireManual(t *testing.T, page, want string) {
	t.Helper()
	if *rewriteManual {
		require.NoError(t, os.WriteFile(manualDir+page, []byte(want), 0o644))
		return
	}
	got, err := os.ReadFile(manualDir + page)
	require.NoError(t, err)
	require.Equal(t, want, string(got), "%s isn't what the program says: go test ./cmd/cassia -run TestManual -rewrite", page)
}

// The page of flags is written from the command line's declaration: go test ./cmd/cassia -run TestManualFlags -rewrite.
func TestManualFlags(t *testing.T) {
	app, _ := newApplication()
	requireManual(t, "flags.md", cli.FlagsPage(app.Model(), variables))
}
