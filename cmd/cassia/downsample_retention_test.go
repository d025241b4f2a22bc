package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// TestRetentionTable checks the output for windows that are kept, hidden and deleted.
func TestRetentionTable(t *testing.T) {
	at := func(day int) time.Time { return time.Date(2026, 5, day, 0, 0, 0, 0, time.UTC) }
	window := func(res rollup.Resolution, tenant string, end int, keep int) storage.WindowInfo {
		k := storage.WindowInfo{Tenant: tenant, Resolution: res, Start: at(end - 1), End: at(end)}
		if keep > 0 {
			k.Hidden = at(end + keep)
			k.Goes = at(end + keep + 7)
		}
		return k
	}
	kept := []storage.WindowInfo{
		window(rollup.Raw, "ann", 1, 3), window(rollup.Raw, "ann", 2, 3), window(rollup.Raw, "ann", 9, 3),
		window(rollup.Raw, "ann", 11, 3), window(rollup.Raw, "bob", 1, 3), window(rollup.OneHour, "ann", 30, 0),
	}
	kept[1].Unrolled = 12
	now := at(12)
	fields := func(line string) string { return strings.Join(strings.Fields(line), " ") }
	var b bytes.Buffer
	require.NoError(t, writeRetention(&b, kept, nil, now))
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	require.Equal(t, []string{
		"RESOLUTION TENANT WINDOWS FROM UNTIL HIDDEN TO DELETE NOW NEXT TO DELETE ON WITHOUT ROLLUPS",
		`raw "ann" 4 2026-04-30 2026-05-11 1 2 until 2026-05-09 2026-05-19 1`,
		`raw "bob" 1 2026-04-30 2026-05-01 0 1 - - 0`,
		`1h "ann" 1 2026-05-29 2026-05-30 0 0 - never 0`,
	}, []string{fields(lines[0]), fields(lines[1]), fields(lines[2]), fields(lines[3])})

	b.Reset()
	require.NoError(t, writeWindows(&b, kept, nil, now))
	lines = strings.Split(strings.TrimSpace(b.String()), "\n")
	require.Len(t, lines, 7)
	require.Equal(t,
		`raw "ann" 2026-05-01 2026-05-02 now 12 seals without rollups, which are created first`, fields(lines[2]))
	require.Equal(t, `raw "ann" 2026-05-08 2026-05-09 2026-05-19, already hidden`, fields(lines[3]))
	require.Equal(t, `raw "ann" 2026-05-10 2026-05-11 2026-05-21`, fields(lines[4]))
	require.Equal(t, `1h "ann" 2026-05-29 2026-05-30 never`, fields(lines[6]))

	// The new retention hides windows that were visible before. They are deleted a week later at the earliest.
	changes := []retention.Change{{Tenant: "ann", Resolution: rollup.Raw, To: at(9), Goes: at(19)}}
	b.Reset()
	require.NoError(t, writeWindows(&b, kept, changes, now))
	lines = strings.Split(strings.TrimSpace(b.String()), "\n")
	require.Equal(t,
		`raw "ann" 2026-05-01 2026-05-02 2026-05-19, would be hidden 12 seals without rollups, which are created first`,
		fields(lines[2]))
	require.Equal(t, `raw "ann" 2026-05-08 2026-05-09 2026-05-19, would be hidden`, fields(lines[3]))
	require.Equal(t, `raw "ann" 2026-05-10 2026-05-11 2026-05-21`, fields(lines[4]))
	require.Equal(t, `raw "bob" 2026-04-30 2026-05-01 now`, fields(lines[5]))
	b.Reset()
	require.NoError(t, writeRetention(&b, kept, changes, now))
	require.Equal(t, `raw "ann" 4 2026-04-30 2026-05-11 3 0 until 2026-05-01 2026-05-19 1`,
		fields(strings.Split(b.String(), "\n")[1]))
}
