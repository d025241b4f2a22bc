package storage_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
)

func TestPlainTextHasNoPackages(t *testing.T) {
	for text, want := range map[string]string{
		storage.ErrOverloaded.Error():                                  "too many writes are waiting",
		fmt.Errorf("data: %w: no room", engine.ErrUnavailable).Error(): "data: unavailable: no room",
		"storage: engine: pebble: a: storage: b":                       "a: b",
		"two things; engine: closed (format: malformed blob)":          "two things; closed (malformed blob)",
		"tenant: is set more than once":                                "tenant: is set more than once",
		"cassandra: login failed":                                      "cassandra: login failed",
		`no series {job="storage: x"}, the storage: full`:              `no series {job="storage: x"}, the storage: full`,
		"": "",
	} {
		require.Equal(t, want, storage.PlainText(text), text)
	}
	err := fmt.Errorf("data: %w", engine.ErrUnavailable)
	require.EqualError(t, storage.PlainError(err), "data: unavailable")
	require.ErrorIs(t, storage.PlainError(err), engine.ErrUnavailable)
	require.NoError(t, storage.PlainError(nil))
}
