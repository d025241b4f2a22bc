package pebble

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

const (
	damagedPartitions = 12
	damagedRows       = 60
)

// layeredEngine returns the files of an engine with overlapping tables: most rows are in the lowest level, and newer
// rows with keys between them in levels above.
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
			require.NoError(t, e.CompactAll(ctx))
		} else {
			require.NoError(t, e.db.Flush())
		}
	}
	require.NoError(t, e.Close())
	return mem
}

func layeredValue(n, seq int64) string {
	return strings.Repeat(
		fmt.Sprintf("%d of %d, %x ", seq, n, rand.New(rand.NewPCG(uint64(n), uint64(seq))).Uint64()), 4,
	)
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

// flipByte inverts the bits of a byte.
func flipByte(t testing.TB, mem *vfs.MemFS, path string, at int64) {
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

// turnByte returns a copy of a directory in which one byte of a sorted file is changed, the name of the file, and a
// description of the byte.
func turnByte(t testing.TB, whole *vfs.MemFS, rng *rand.Rand) (mem *vfs.MemFS, name, about string) {
	t.Helper()
	mem = copyOf(t, whole)
	tables := tablesOf(t, mem)
	name = tables[rng.IntN(len(tables))]
	info, err := mem.Stat("data/" + name)
	require.NoError(t, err)
	at := rng.Int64N(info.Size())
	flipByte(t, mem, "data/"+name, at)
	return mem, name, fmt.Sprintf("byte %d of %s, which has %d", at, name, info.Size())
}

// TestScanSkipsDamage changes random bytes of sorted files, one at a time. A scan that skips damage yields each row
// unchanged, or reports a gap that contains it. Verify detects the damage.
func TestScanSkipsDamage(t *testing.T) {
	whole := layeredEngine(t)
	rng := rand.New(rand.NewPCG(1, 2))
	partial := 0
	for range 40 {
		mem, name, about := turnByte(t, whole, rng)

		e := openOn(t, mem)
		missing := 0
		for n := range int64(damagedPartitions) {
			missing += scanAround(t, e, n, about)
		}
		if missing > 0 && missing < damagedPartitions*damagedRows/2 {
			partial++
		}
		var problems []string
		_, _, err := e.VerifyFiles(ctx, func(problem error) { problems = append(problems, problem.Error()) })
		require.NoError(t, err)
		require.Len(t, problems, 1, about)
		require.Contains(t, problems[0], name, about)
		require.Equal(t, problems, e.DamagedFiles(), about)
		require.NoError(t, e.Close())
	}
	require.Greater(t, partial, 8, "most damage takes few rows")
}

func copyOf(t testing.TB, whole *vfs.MemFS) *vfs.MemFS {
	mem := vfs.NewMem()
	names, err := whole.List("data")
	require.NoError(t, err)
	require.NoError(t, mem.MkdirAll("data", 0o755))
	for _, name := range names {
		require.NoError(t, vfs.CopyAcrossFS(whole, "data/"+name, mem, "data/"+name))
	}
	return mem
}

// TestScanSkipsDamagedIndexes damages the index of a file's blocks, so that their rows are unknown. A scan reports a
// gap wherever the file may have rows.
func TestScanSkipsDamagedIndexes(t *testing.T) {
	whole := layeredEngine(t)
	missing := 0
	for _, name := range tablesOf(t, whole) {
		mem := copyOf(t, whole)
		for _, h := range indexesOf(t, mem, "data/"+name) {
			flipByte(t, mem, "data/"+name, int64(h.Offset+h.Length/2))
		}
		e := openOn(t, mem)
		for n := range int64(damagedPartitions) {
			missing += scanAround(t, e, n, name)
		}
		var problems []string
		_, _, err := e.VerifyFiles(ctx, func(problem error) { problems = append(problems, problem.Error()) })
		require.NoError(t, err)
		require.Len(t, problems, 1, name)
		require.Contains(t, problems[0], name)
		require.NoError(t, e.Close())
	}
	require.Positive(t, missing)
}

// TestDamagedFilesOfAllReads checks that DamagedFiles also reports damage found by a scan that doesn't skip damage,
// like the scan of a seal, until the damaged file is deleted.
func TestDamagedFilesOfAllReads(t *testing.T) {
	whole := layeredEngine(t)
	for _, name := range tablesOf(t, whole) {
		mem := copyOf(t, whole)
		h := indexesOf(t, mem, "data/"+name)[0]
		flipByte(t, mem, "data/"+name, int64(h.Offset+h.Length/2))
		e := openOn(t, mem)
		failed := 0
		for n := range int64(damagedPartitions) {
			if _, err := scanUpTo(e, n); err != nil {
				failed++
			}
		}
		require.True(t, failed > 0 || len(e.DamagedFiles()) > 0, "Open may have read the block of %s", name)
		problems := e.DamagedFiles()
		require.Len(t, problems, 1, name)
		require.Regexp(t, "^file "+name+` is damaged: block \d+/\d+: crc32c checksum mismatch`, problems[0])
		require.NoError(t, e.db.Excise(ctx, pebbledb.KeyRange{Start: []byte{0}, End: []byte{0xff}}))
		require.Empty(t, e.DamagedFiles(), name)
		require.NoError(t, e.Close())
	}
}

// indexesOf returns the positions of the index blocks of a sorted file.
func indexesOf(t testing.TB, mem *vfs.MemFS, path string) []block.Handle {
	f, err := mem.Open(path)
	require.NoError(t, err)
	readable, err := sstable.NewSimpleReadable(f)
	require.NoError(t, err)
	r, err := sstable.NewReader(ctx, readable, tableReaderOptions())
	require.NoError(t, err)
	l, err := r.Layout()
	require.NoError(t, err)
	require.NotEmpty(t, l.Index)
	require.NoError(t, r.Close())
	return l.Index
}

// TestKeysInWords checks that damaged ranges are printed with the fields of their keys, even if a key has only some.
func TestKeysInWords(t *testing.T) {
	key := appendPartition(nil, engine.Catalog, engine.Key{
		engine.Int(-3), engine.Int(0), engine.Text("team a"), engine.Int(2), engine.Text("job"), engine.Int(0),
	})
	require.Equal(t, `catalog window=-3 resolution=0 tenant="team a" kind=2 label="job" salt=0`, keyInWords(key))
	require.Equal(t, `catalog window=-3 resolution=0`, keyInWords(key[:4]))
	stage := appendKey(appendPartition(nil, engine.Stage, engine.Key{engine.Int(1), engine.Int(2)}),
		engine.Stage.Clustering, engine.Key{engine.Text("0123456789abcdef"), engine.Int(7)})
	require.Equal(t, "stage slot=1 partition=2 writer=30313233343536373839616263646566 seq=7", keyInWords(stage))
	require.Equal(t, "the beginning", keyInWords(nil))
	require.Equal(t, "ff00", keyInWords([]byte{0xff, 0}))
}

// TestDamagedRanges checks that adjacent ranges are joined, and that a later verification of a file replaces the ranges
// of an earlier one.
func TestDamagedRanges(t *testing.T) {
	var d damaged
	r := func(start, end string, table uint64) badRange {
		b := badRange{start: []byte(start), table: table}
		if end != "" {
			b.end = []byte(end)
		}
		return b
	}
	spans := func(start, end string) (found []string) {
		for _, b := range d.rangesWithin([]byte(start), []byte(end)) {
			found = append(found, string(b.start)+"-"+string(b.end))
		}
		return found
	}
	require.True(t, d.isNew(1))
	d.put(1, []badRange{r("b", "d", 1), r("k", "m", 1)})
	d.put(2, []badRange{r("c", "f", 2), r("m", "n", 2)})
	require.False(t, d.isNew(1))
	require.Equal(t, []string{"b-f", "k-n"}, spans("a", "z"))
	require.Equal(t, []string{"k-n"}, spans("f", "z"))
	require.Empty(t, spans("f", "k"))
	d.put(3, []badRange{r("e", "", 3)})
	require.Equal(t, []string{"b-"}, spans("a", "z"), "up to the end")
	d.put(3, nil)
	d.put(1, nil)
	require.Equal(t, []string{"c-f", "m-n"}, spans("a", "z"))
}

// scanAround scans a partition, skips damage, and returns the number of missing rows.
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
