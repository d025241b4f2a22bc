package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBenchShowsProgressOnATerminal checks that bench redraws one line on a terminal and clears it before the report.
func TestBenchShowsProgressOnATerminal(t *testing.T) {
	r := startServe(t, "--storage.path="+t.TempDir())
	var screen bytes.Buffer
	line := lineOnTerminal{&screen}
	c := &benchConfig{}
	app, _ := newApplication()
	declareBench(app.Command("try", ""), c)
	_, err := app.Parse([]string{
		"try", "--url=" + r.URL + "/api/v1/write", "--series=1000", "--duration=30m", "--rate=300000",
	})
	require.NoError(t, err)
	c.options.ProgressEvery, c.endProgress = time.Millisecond, line.clearLine
	require.NoError(t, c.run(context.Background(), time.Now(), io.Discard, line))
	shown := screen.String()
	require.NotContains(t, shown, "\n")
	require.Contains(t, shown, "samples acknowledged")
	require.True(t, strings.HasPrefix(shown, "\r\x1b[K") && strings.HasSuffix(shown, "\r\x1b[K"))
}
