package pebble

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/soak"
)

// repairable is a directory with tables in multiple levels, parts of tables, and a log, and earlier copies of it.
type repairable struct {
	dir, folder string
	// older is a copy of the directory from the time of the backup. before is a copy from the time when an earlier
	// process had the directory open.
	older, before string
	rows          map[string]int
}

func newMendable(t *testing.T) *repairable {
	b := newBackedUp(t)
	b.write()
	m := &repairable{
		dir: b.dir, folder: b.folder, older: filepath.Join(t.TempDir(), "older"),
		before: filepath.Join(t.TempDir(), "before"),
	}
	require.NoError(t, b.e.Checkpoint(m.before))
	require.NoError(t, b.e.Close())
	var err error
	o := DefaultOptions()
	o.BlockBytes, o.IngestBytes = 4<<10, 50_000 // Blocks are small, because Pebble tries every bit of a damaged one.
	b.e, err = Open(b.dir, o)
	require.NoError(t, err)
	require.NoError(t, b.e.Write(ctx, sealedRows(500, 1)))
	rng := rand.New(rand.NewPCG(1, 1))
	for slot := range int64(3) {
		for part := range int64(slotParts) {
			for seq := range int64(slotRows) {
				batch := stageBatch(seq, string(randomBytes(rng, 1000)))
				batch[0].Partition = slotPartition(slot, part)
				require.NoError(t, b.e.Write(ctx, batch))
			}
		}
	}
	require.NoError(t, b.e.CompactAll(ctx))
	sealSlot(t, b.e, 1)
	require.Eventually(t, func() bool { return slotBytes(t, b.e, 1) == 0 }, waitAtMost, pollEvery)
	b.write()
	require.NoError(t, b.e.Write(ctx, stageBatch(1000, "in the log")))
	_, err = b.backup(ctx, "a", 0)
	require.NoError(t, err)
	require.NoError(t, b.e.Checkpoint(m.older))
	b.write()
	require.NoError(t, b.e.Write(ctx, stageBatch(1001, "in the log only")))
	m.rows = countTables(t, b.e)
	require.NoError(t, b.e.Close())
	b.e, err = Open(filepath.Join(t.TempDir(), "another"), DefaultOptions()) // The cleanup closes this engine.
	require.NoError(t, err)
	return m
}

// countTables returns the number of readable rows per table.
func countTables(t *testing.T, e *Engine) map[string]int {
	rows := map[string]int{}
	count := func(name string, table *engine.Table, partition engine.Key) {
		rows[name] = 0
		r := engine.Range{Table: table, Partition: partition, Damaged: func(engine.Damage) {}}
		for _, err := range e.Scan(ctx, r) {
			require.NoError(t, err)
			rows[name]++
		}
	}
	count("raw", engine.Raw, sealedPartition)
	count("r5m", engine.R5m, sealedPartition)
	count("stage", engine.Stage, stageBatch(0, "")[0].Partition)
	for slot := range int64(3) {
		for part := range int64(slotParts) {
			count(fmt.Sprint("slot ", slot, part), engine.Stage, slotPartition(slot, part))
		}
	}
	return rows
}

// kindOfName returns the kind of a file.
func kindOfName(name string) string {
	if ext := filepath.Ext(name); ext == ".sst" || ext == ".log" {
		return ext[1:]
	}
	if strings.HasPrefix(name, "marker.") {
		return strings.Join(strings.Split(name, ".")[:2], ".")
	}
	kind, _, _ := strings.Cut(name, "-")
	return kind
}

// olderCopy replaces a file with the file of the same name in an older copy of the directory or, if there is none, with
// the files of the same kind.
func olderCopy(t *testing.T, dir, name, older string) {
	b, err := os.ReadFile(filepath.Join(older, name))
	if err == nil {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
		return
	}
	entries, err := os.ReadDir(older)
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(dir, name)))
	for _, e := range entries {
		if kindOfName(e.Name()) == kindOfName(name) && kindOfName(name) != "sst" {
			b, err := os.ReadFile(filepath.Join(older, e.Name()))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, e.Name()), b, 0o600))
		}
	}
}

// rewrite returns a damage that changes the content of a file.
func rewrite(change func([]byte) []byte) func(t *testing.T, m *repairable, dir, name string) {
	return func(t *testing.T, _ *repairable, dir, name string) {
		b, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), change(b), 0o600))
	}
}

// TestMendEveryKindOfFile damages each file of a directory, one at a time, in each way, and repairs it with and without
// a backup. No file is deleted, and either all rows can be read again or the remaining damage is reported. Without a
// backup, a table's damage loses only its own rows. It runs a random quarter of the cases; soak tests run all.
func TestMendEveryKindOfFile(t *testing.T) {
	t.Parallel()
	m := newMendable(t)
	ways := map[string]func(t *testing.T, m *repairable, dir, name string){
		"deleted": func(t *testing.T, _ *repairable, dir, name string) {
			require.NoError(t, os.Remove(filepath.Join(dir, name)))
		},
		"emptied":          rewrite(func(b []byte) []byte { return nil }),
		"cut by half":      rewrite(func(b []byte) []byte { return b[:len(b)/2] }),
		"zeroed":           rewrite(func(b []byte) []byte { return make([]byte, len(b)) }),
		"longer":           rewrite(func(b []byte) []byte { return append(b, bytes.Repeat([]byte("x"), 5000)...) }),
		"older":            func(t *testing.T, m *repairable, dir, name string) { olderCopy(t, dir, name, m.older) },
		"of a run before":  func(t *testing.T, m *repairable, dir, name string) { olderCopy(t, dir, name, m.before) },
		"one byte changed": rewrite(func(b []byte) []byte { return changed(b) }),
	}
	entries, err := os.ReadDir(m.dir)
	require.NoError(t, err)
	kinds := map[string]int{}
	rng := rand.New(rand.NewPCG(soak.Seed(t), 0))
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		kinds[kindOfName(e.Name())]++
		for _, way := range slices.Sorted(maps.Keys(ways)) {
			damage := ways[way]
			for _, hasBackup := range []bool{false, true} {
				if soak.Times(t, 1) == 1 && rng.IntN(4) > 0 {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/backup=%v", e.Name(), way, hasBackup), func(t *testing.T) {
					dir := filepath.Join(t.TempDir(), "data")
					require.NoError(t, os.CopyFS(dir, os.DirFS(m.dir)))
					damage(t, m, dir, e.Name())
					m.requireMended(t, dir, e.Name(), way, hasBackup)
				})
			}
		}
	}
	for _, kind := range []string{
		"LOCK", "MANIFEST", "OPTIONS", "SYNCED", "log", "marker.format-version", "marker.manifest", "sst",
	} {
		require.Positive(t, kinds[kind], kind)
	}
	require.Greater(t, kinds["sst"], 3)
}

func changed(b []byte) []byte {
	if len(b) > 0 {
		b[len(b)/2] ^= 0x55
	}
	return b
}

func (m *repairable) requireMended(t *testing.T, dir, name, way string, hasBackup bool) {
	before := namesIn(t, dir)
	spares := Spares(m.folder)
	if !hasBackup {
		spares = noSpares
	}
	stats, err := Repair(t.Context(), spares, dir, false)
	require.NoError(t, err)
	require.Subset(
		t, append(namesIn(t, dir), namesIn(t, filepath.Join(dir, asideFolder))...), before, "files are missing",
	)
	require.Empty(t, stats.Lost)
	_, inBackup := os.Stat(filepath.Join(m.folder, "a", name))
	missing := false
	switch kind := kindOfName(name); {
	case kind == "sst":
		missing = len(stats.Left) > 0
		require.False(t, missing && hasBackup && inBackup == nil, stats.Left)
	case kind == "MANIFEST" && len(stats.Left) > 0:
		require.Contains(t, stats.Left[0], "MANIFEST-", way)
		return // The remedy is to restore a complete backup.
	case kind == "log" && len(stats.Left) > 0:
		require.Contains(t, stats.Left[0], "--give-up-log")
		stats, err = Repair(t.Context(), spares, dir, true)
		require.NoError(t, err)
		missing = true
	}
	if !missing {
		require.Empty(t, stats.Left)
	}
	e, err := Open(dir, DefaultOptions())
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	rows := countTables(t, e)
	if !missing {
		require.Equal(t, m.rows, rows, "mended: %v", stats.Mended)
		return
	}
	for table, n := range rows {
		require.LessOrEqual(t, n, m.rows[table], "rows that were deleted are back")
	}
	if kindOfName(name) == "sst" {
		require.Contains(t, strings.Join(stats.Left, "\n"), name)
		problems := 0
		_, _, err = e.VerifyFiles(ctx, func(problem error) {
			require.ErrorContains(t, problem, name)
			problems++
		})
		require.NoError(t, err)
		require.Positive(t, problems)
	}
}

func namesIn(t *testing.T, dir string) (names []string) {
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return slices.Sorted(slices.Values(names))
}
