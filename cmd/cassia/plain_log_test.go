package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
)

func TestLogNamesNoPackages(t *testing.T) {
	var text bytes.Buffer
	log := slog.New(plainLog{slog.NewTextHandler(&text, nil)}).With("component", "storage")
	log.Error("writing", "err", fmt.Errorf("tenant a: %w", storage.ErrOverloaded), "n", 1)
	log.Error("writing", "err", storage.ErrNotReady.Error(), "at", "storage: a directory")
	require.Contains(t, text.String(), `msg=writing component=storage err="tenant a: too many writes are waiting" n=1`)
	require.Contains(t, text.String(),
		`err="the head is still being rebuilt from the staging log" at="storage: a directory"`)
}
