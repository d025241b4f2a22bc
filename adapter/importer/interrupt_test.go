package importer_test

import (
	"context"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter/importer"
	"github.com/cassia-db/cassia/adapter/importer/lines"
)

// TestInterruptible interrupts an import from a pipe whose writer stays silent: it ends after the samples so far.
func TestInterruptible(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		source := lines.New(lines.Options{Path: "-", Stdin: r, Format: lines.OpenMetrics})
		for _, err := range source.Batches(ctx, "") {
			ended <- err
		}
	}()
	_, err = w.WriteString("a 1 1\n")
	require.NoError(t, err)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// TestInterruptibleReadsAll reads a whole pipe.
func TestInterruptibleReadsAll(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	in := importer.Interruptible(t.Context(), r)
	go func() {
		_, _ = w.WriteString("some text")
		_ = w.Close()
	}()
	text, err := io.ReadAll(in)
	require.NoError(t, err)
	require.Equal(t, "some text", string(text))
	require.NoError(t, in.Close())
}
