package pebble

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

const (
	damagedPartitions = 12
	damagedRows       = 60
)

// layeredEngine has rows in several files over one another: most in the lowest level, newer ones between them above.
func layeredEngine(t testing.TB) *vfs.MemFS {
	mem := vfs.NewMem()
	e := openOn(t, mem, func(o *Options) { o.BlockBytes = 1 << 10 })
	put := func(n, seq int64) {
		b := stageBatch(seq, layeredValue(n, seq))
		b[0].Partition = engine.Key{engine.Int(n), engine.Int(0)}
		require.NoError(t, e.Write(ctx, b))
	}
	for layer := range int64(3) {
		for n := range int64(damagedPartitions) {
			for seq := range int64(damagedRows) {
				if layer == 0 && seq%7 != 0 || layer == 1 && seq%7 == 0 || layer == 2 && seq%11 == 0 {
					put(n, seq)
				}
			}
		}
		if layer == 0 {
			require.NoError(t, e.Compact(ctx))
		} else {
			require.NoError(t, e.db.Flush())
		}
	}
	require.NoError(t, e.Close())
	return mem
}

func layeredValue(n, seq int64) string {
	return strings.Repeat(fmt.Sprintf("%d of %d, %x ", seq, n, rand.New(rand.NewPCG(uint64(n), uint64(seq))).Uint64()), 4)
}

func tablesOf(t testing.TB, mem *vfs.MemFS) (names []string) {
	all, err := mem.List("data")
	require.NoError(t, err)
	for _, name := range all {
		if strings.HasSuffix(name, ".sst") {
			names = append(names, name)
		}
	}
	return names
}

// flip turns the bits of a byte.
func flip(t testing.TB, mem *vfs.MemFS, path string, at int64) {
	f, err := mem.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	b := make([]byte, 1)
	_, err = f.ReadAt(b, at)
	require.NoError(t, err)
	b[0] ^= 0x5a
	_, err = f.WriteAt(b, at)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// Whatever byte of a sorted file turns, a scan that skips damage yields each row as it was written, or names a gap
// that it lies in; Verify finds it.
func TestScanSkipsDamage(t *testing.T) {
	whole := layeredEngine(t)
	rng := rand.New(rand.NewPCG(1, 2))
	partial := 0
	for range 40 {
		mem := vfs.NewMem()
		names, err := whole.List("data")
		require.NoError(t, err)
		require.NoError(t, mem.MkdirAll("data", 0o755))
		for _, name := range names {
			require.NoError(t, vfs.CopyAcrossFS(whole, "data/"+name, mem, "data/"+name))
		}
		tables := tablesOf(t, mem)
		name := tables[rng.IntN(len(tables))]
		info, err := mem.Stat("data/" + name)
		require.NoError(t, err)
		at := rng.Int64N(info.Size())
		flip(t, mem, "data/"+name, at)
		about := fmt.Sprintf("byte %d of %s, which has %d", at, name, info.Size())

		e := openOn(t, mem)
		missing := 0
		for n := range int64(damagedPartitions) {
			missing += scanAround(t, e, n, about)
		}
		if missing > 0 && missing < damagedPartitions*damagedRows/2 {
			partial++
		}
		var problems []string
		_, _, err = e.VerifyFiles(ctx, func(problem string) { problems = append(problems, problem) })
		require.NoError(t, err)
		require.Len(t, problems, 1, about)
		require.Contains(t, problems[0], name, about)
		require.Equal(t, problems, e.DamagedFiles(), about)
		require.NoError(t, e.Close())
	}
	require.Greater(t, partial, 8, "most damage takes few rows")
}

// scanAround scans a partition and returns how many of its rows are missing.
func scanAround(t testing.TB, e *Engine, n int64, about string) int {
	seen, gaps := map[int64]bool{}, []engine.Damage{}
	for row, err := range e.Scan(ctx, engine.Range{
		Table: engine.Stage, Partition: engine.Key{engine.Int(n), engine.Int(0)},
		Damaged: func(d engine.Damage) { gaps = append(gaps, d) },
	}) {
		require.NoError(t, err, about)
		seq := row.Clustering[1].Int
		require.Equal(t, layeredValue(n, seq), string(row.Value), about)
		require.False(t, seen[seq], about)
		seen[seq] = true
	}
	missing := 0
	for seq := range int64(damagedRows) {
		if seen[seq] {
			continue
		}
		missing++
		named := false
		for _, g := range gaps {
			require.ErrorIs(t, g.Err, engine.ErrCorrupt)
			named = named || (g.After == nil || g.After[1].Int < seq) && (g.Before == nil || seq < g.Before[1].Int)
		}
		require.True(t, named, "%s: row %d of partition %d is missing, gaps are %v", about, seq, n, gaps)
	}
	return missing
}
