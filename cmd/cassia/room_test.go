package main

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/doctor"
)

func TestLittleRoomIsLoggedOnce(t *testing.T) {
	const mib = 1 << 20
	var text strings.Builder
	log, level := slog.New(slog.NewTextHandler(&text, nil)), doctor.OK
	for _, free := range []int64{100000, 100000, 3000, 2900, 511, 400, 2000, 100000} {
		level = logRoom(log, level, doctor.LevelOf(free*mib, 1000000*mib))
	}
	var levels []string
	for line := range strings.Lines(text.String()) {
		_, rest, _ := strings.Cut(line, "level=")
		name, _, _ := strings.Cut(rest, " ")
		levels = append(levels, name)
	}
	require.Equal(t, []string{"WARN", "ERROR", "WARN", "INFO"}, levels, text.String())
	require.Equal(t, doctor.OK, doctor.LevelOf(0, 0), "a system that can't tell")
}
