package exporter

import (
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
)

// inBlocks returns the samples that Prometheus' own reader finds in a folder of blocks.
func inBlocks(t *testing.T, dir string, ms ...*labels.Matcher) held {
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "wal"), 0o777)) // the reader expects it while there are no blocks
	db, err := tsdb.OpenDBReadOnly(dir, t.TempDir(), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	q, err := db.Querier(math.MinInt64, math.MaxInt64)
	require.NoError(t, err)
	defer func() { require.NoError(t, q.Close()) }()
	if len(ms) == 0 {
		ms = []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, ".+")}
	}
	out := held{}
	set := q.Select(t.Context(), true, nil, ms...)
	for set.Next() {
		ls, it := set.At().Labels(), set.At().Iterator(nil)
		for typ := it.Next(); typ != chunkenc.ValNone; typ = it.Next() {
			switch typ {
			case chunkenc.ValFloat:
				at, v := it.At()
				out.float(ls, at, it.AtST(), v)
			case chunkenc.ValHistogram:
				at, h := it.AtHistogram(nil)
				out.histogram(t, ls, chunk.Histogram{T: at, ST: it.AtST(), Int: h})
			default:
				at, h := it.AtFloatHistogram(nil)
				out.histogram(t, ls, chunk.Histogram{T: at, ST: it.AtST(), Float: h})
			}
		}
		require.NoError(t, it.Err())
	}
	require.NoError(t, set.Err())
	return out.sort()
}

func newFolder(t *testing.T, path string) *Folder {
	f, err := NewFolder(path)
	require.NoError(t, err)
	return f
}

// TestBlocks exports all samples and reads them back bit by bit with Prometheus' own reader.
func TestBlocks(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	samples := mixed(t, s)
	want := stored(t, s, "default", math.MinInt64, math.MaxInt64)
	for _, width := range append(blockWidths, dayMS) {
		dir := filepath.Join(t.TempDir(), "new", "folder")
		o := everything()
		o.BlockWidth, o.StartTimestamps = width, true
		stats, err := Blocks(t.Context(), s, o, newFolder(t, dir))
		require.NoError(t, err)
		require.EqualValues(t, samples, stats.Samples)
		require.Len(t, want, stats.Series)
		require.Zero(t, stats.LeftOut)
		same(t, want, inBlocks(t, dir))

		db, err := tsdb.OpenDBReadOnly(dir, t.TempDir(), slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		blocks, err := db.Blocks()
		require.NoError(t, err)
		require.Len(t, blocks, stats.Files)
		for i, b := range blocks {
			m := b.Meta()
			require.Equal(t, floorDiv(m.MinTime, width), floorDiv(m.MaxTime-1, width), "in one multiple of the width")
			require.Zero(t, i > 0 && blocks[i-1].Meta().MaxTime > m.MinTime, "apart")
			require.Zero(t, i > 0 && blocks[i-1].Meta().ULID.Compare(m.ULID) >= 0, "named in order")
		}
		require.NoError(t, db.Close())
	}
}

// TestBlocksWithoutStarts checks that an export in encodings that older readers support omits and counts start
// timestamps, and changes nothing else.
func TestBlocksWithoutStarts(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	mixed(t, s)
	dir := t.TempDir()
	stats, err := Blocks(t.Context(), s, everything(), newFolder(t, dir))
	require.NoError(t, err)
	require.EqualValues(t, 9+5, stats.LeftOut.StartTimestamps)
	want := stored(t, s, "default", math.MinInt64, math.MaxInt64)
	for series, lines := range want {
		for i, line := range lines {
			at, rest, _ := strings.Cut(line, " ")
			_, rest, _ = strings.Cut(rest, " ")
			want[series][i] = at + " 0 " + rest
		}
	}
	same(t, want.sort(), inBlocks(t, dir))
}

// TestBlocksOfSelectors checks that an export with two overlapping selectors and a time range contains each selected
// series once.
func TestBlocksOfSelectors(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	mixed(t, s)
	o := everything()
	o.MinT, o.MaxT = midnight-dayMS, midnight
	o.Selectors = [][]*labels.Matcher{
		{labels.MustNewMatcher(labels.MatchEqual, "job", "a")},
		{labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, "requests.*")},
	}
	dir := t.TempDir()
	_, err := Blocks(t.Context(), s, o, newFolder(t, dir))
	require.NoError(t, err)
	want := stored(t, s, "default", o.MinT, o.MaxT, o.Selectors[0]...)
	for series, lines := range stored(t, s, "default", o.MinT, o.MaxT, o.Selectors[1]...) {
		want[series] = lines
	}
	delete(want, `{__name__="old", job="a"}`)
	require.Len(t, want, 3)
	got := inBlocks(t, dir)
	for series := range want { // without start timestamps
		require.Len(t, got[series], len(want[series]), series)
	}
	require.Len(t, got, len(want))
}

// TestPromtoolReadsBlocks checks that promtool lists and analyzes the exported blocks.
func TestPromtoolReadsBlocks(t *testing.T) {
	t.Parallel()
	promtool := os.Getenv("CASSIA_TEST_PROMTOOL")
	if promtool == "" {
		t.Skip("CASSIA_TEST_PROMTOOL names no promtool")
	}
	s := newStore(t)
	mixed(t, s)
	dir := t.TempDir()
	stats, err := Blocks(t.Context(), s, everything(), newFolder(t, dir))
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), promtool, "tsdb", "list", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, stats.Files+1, strings.Count(string(out), "\n"), "%s", out)
	out, err = exec.CommandContext(t.Context(), promtool, "tsdb", "analyze", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "Total Series: ")
}

// TestFolder checks that folders with other files are rejected and that the files of a killed export are replaced.
func TestFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, partialFolder, "01ABC", "chunks"), 0o777))
	s := newStore(t)
	mixed(t, s)
	f := newFolder(t, dir)
	o := everything()
	o.Tenant = "nobody"
	_, err := Blocks(t.Context(), s, o, f)
	require.ErrorIs(t, err, ErrNothing)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "something"), nil, 0o600))
	_, err = NewFolder(dir)
	require.ErrorContains(t, err, "isn't empty (something); export to a new folder")
}

// TestResetsStandInChunks checks that the headers of chunks have exactly the senders' reset hints.
func TestResetsStandInChunks(t *testing.T) {
	t.Parallel()
	var s chunk.Samples
	for i, hint := range []histogram.CounterResetHint{
		histogram.UnknownCounterReset, histogram.UnknownCounterReset, histogram.CounterReset,
		histogram.UnknownCounterReset,
	} {
		h := tsdbutil.GenerateTestFloatHistogram(int64(i % 3)) // the last one is lower
		h.CounterResetHint = hint
		s.AppendHistogram(chunk.Histogram{T: int64(i), Float: h})
	}
	metas, err := new(encoder).encode(&s)
	require.NoError(t, err)
	var headers []chunkenc.CounterResetHeader
	for _, m := range metas {
		headers = append(headers, m.Chunk.(*chunkenc.FloatHistogramChunk).GetCounterResetHeader())
	}
	require.Equal(t, []chunkenc.CounterResetHeader{
		chunkenc.UnknownCounterReset, chunkenc.CounterReset, chunkenc.UnknownCounterReset,
	}, headers)
}
