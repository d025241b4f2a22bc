package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/manual"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// runnable is a block of code of the manual that is marked "sh run", or "sh run server" where a server must use ./data.
type runnable struct {
	text   string
	server bool
}

func runnables(text string) (blocks []runnable) {
	var open *runnable
	for line := range strings.Lines(text) {
		switch {
		case open != nil && strings.HasPrefix(line, "```"):
			blocks, open = append(blocks, *open), nil
		case open != nil:
			open.text += line
		case strings.HasPrefix(line, "```sh run"):
			open = &runnable{server: strings.Contains(line, "server")}
		}
	}
	return blocks
}

// Commands of the manual that are marked as such are run, page by page, in a folder with a store, a text to import and blocks.
func TestManualRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers: leave -short out")
	}
	t.Parallel()
	program := builtCassia(t)
	ran := 0
	for _, topic := range manual.Topics() {
		blocks := runnables(manualPage(t, topic+".md"))
		if len(blocks) == 0 {
			continue
		}
		ran += len(blocks)
		t.Run(topic, func(t *testing.T) { runPage(t, program, blocks) })
	}
	require.Greater(t, ran, 10)
}

func runPage(t *testing.T, program string, blocks []runnable) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	dir := t.TempDir()
	address, err := promrig.FreeAddress()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(program, filepath.Join(dir, "cassia")))
	shell := func(text string) {
		// Places of a machine in the text are folders here.
		text = strings.NewReplacer("localhost:9201", address, "/mnt/backups", dir+"/backups", "/var/lib/prometheus/data", dir+"/prometheus").Replace(text)
		cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", text)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s\n%s", text, out)
	}
	var om strings.Builder
	fmt.Fprintf(&om, "# TYPE up gauge\n# TYPE demo gauge\n")
	for _, metric := range []string{"up", "demo"} {
		for ago := 120; ago > 0; ago-- {
			fmt.Fprintf(&om, "%s{job=\"node\"} 1 %d\n", metric, time.Now().Add(-time.Duration(ago)*time.Minute).Unix())
		}
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "metrics.om"), []byte(om.String()+"# EOF\n"), 0o600))
	shell("cassia import openmetrics --storage.path=data --retention.raw=30d metrics.om; cassia export --storage.path=data --format=blocks --output=prometheus/")

	var server *promrig.Process
	stop := func() {
		if server != nil {
			require.NoError(t, server.Terminate(time.Minute))
			server = nil
		}
	}
	defer func() {
		if server != nil {
			server.Kill()
		}
	}()
	for _, b := range blocks {
		switch {
		case !b.server:
			stop()
		case server == nil:
			server, err = promrig.StartReady(ctx, promrig.Cassia(program, dir, address, "--no-self-monitoring"))
			require.NoError(t, err)
		}
		shell(b.text)
	}
	stop()
}
