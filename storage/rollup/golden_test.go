package rollup

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew; only for formats that no release has written")

// goldenBuckets returns the buckets of the golden files. They use every column and every encoding of it at least once.
func goldenBuckets(t testing.TB) map[string]*Buckets {
	golden := map[string]*Buckets{}
	build := func(name string, s *chunk.Samples) {
		var b Buckets
		AppendEvery(&b, s, fiveMinutes)
		golden[name] = b.slice(0, min(24, len(b.End)))
	}
	for _, sh := range append(usualShapes(), unusualShapes()...) {
		build("floats "+sh.name, sh.floats(300, 7))
		build("ragged "+sh.name, sh.ragged(120, 7))
	}
	build("one sample", &chunk.Samples{T: []int64{-1}, V: []float64{0.5}})
	build("histograms", histograms(t, 120, 7, false, false))
	build("odd histograms", histograms(t, 120, 7, true, true))
	layouts := goldenLayouts()
	build("layouts of histograms", layouts)
	build("histograms without sums", layouts)
	dropped := *golden["histograms without sums"]
	dropped.Histograms = slices.Clone(dropped.Histograms)
	dropped.DropHistogramSums()
	golden["histograms without sums"] = &dropped
	deltas := &chunk.Samples{}
	for i := range int64(60) {
		deltas.AppendFloat(startMS+i*intervalMS, startMS+(i-1)*intervalMS, float64(i%7))
	}
	build("starts", deltas)
	build("starts of restarts", withStarts(unusualShapes()[0].floats(300, 7), "restarts", 7))
	build("overlapping starts", withStarts(usualShapes()[0].floats(300, 7), "overlapping", 7))
	build("any starts of histograms", withStarts(histograms(t, 120, 7, true, true), "any", 7))
	var sketched Buckets
	AppendStored(&sketched, usualShapes()[7].floats(480, 7), "m", fiveMinutes)
	golden["sketches"] = &sketched
	var hours Buckets
	AppendEvery(&hours, usualShapes()[7].floats(2000, 7), oneHour)
	golden["low sums"] = &hours
	return golden
}

// goldenLayouts returns histograms with different bounds or a finer schema after a reset, in separate buckets and among
// floats.
func goldenLayouts() *chunk.Samples {
	s := &chunk.Samples{}
	for i := range int64(30) {
		at := startMS + i*6*intervalMS
		h := histogramOf([]int64{i, 5, 30 - i}, int32(3-i%4), 0.001, 0)
		switch {
		case i >= 10 && i < 20:
			h = histogramOf([]int64{i, 5, 30 - i}, histogram.CustomBucketsSchema, 0, 0)
			h.CustomValues[2] += float64(i % 3)
		case i%4 == 3:
			s.AppendFloat(at, 0, float64(i))
			continue
		}
		s.AppendHistogram(chunk.Histogram{T: at, Float: h.ToFloat(nil)})
	}
	s.Normalize()
	return s
}

// TestGolden requires that the chunks of all releases are decoded to the original buckets, and that the bytes of the
// current format are unchanged. A golden file has one line per bucket, and the chunk's bytes in hex.
func TestGolden(t *testing.T) {
	golden := goldenBuckets(t)
	for name, b := range golden {
		path := filepath.Join("testdata", "golden", fmt.Sprintf("v%d %s.txt", chunkFormat, name))
		path = strings.ReplaceAll(path, " ", "-")
		if *rewrite {
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(
				t, os.WriteFile(path, []byte(goldenText(b, AppendChunk(nil, b, b.End[0]-b.Start[0], 9))), 0o644),
			)
		}
		require.FileExists(t, path, "write it with -rewrite")
	}
	paths, err := filepath.Glob("testdata/golden/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	there := uint32(0)
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			file, err := os.ReadFile(path)
			require.NoError(t, err)
			var encoded []byte
			for line := range strings.Lines(string(file)) {
				if x, ok := strings.CutPrefix(strings.TrimSpace(line), "chunk "); ok {
					b, err := hex.DecodeString(x)
					require.NoError(t, err)
					encoded = append(encoded, b...)
				}
			}
			var got Buckets
			require.NoError(t, Decode(encoded, AllColumns, &got))
			require.Equal(t, string(file), goldenText(&got, encoded))
			var e envelope
			require.NoError(t, e.parse(encoded))
			there |= e.there
			if encoded[0] == chunkFormat {
				require.Equal(
					t, hex.EncodeToString(encoded), hex.EncodeToString(AppendChunk(nil, &got, e.Width, e.Version)),
					"the format has changed: it needs a new number, so that old chunks stay readable",
				)
			}
		})
	}
	for id := range columnsEnd {
		require.NotZero(t, there&(1<<id), "no golden file has column %d: add buckets with it to goldenBuckets", id)
	}
}

func goldenText(b *Buckets, encoded []byte) string {
	var out strings.Builder
	for i := range b.End {
		fmt.Fprintln(&out, bucketText(b, i))
	}
	for rest := encoded; len(rest) > 0; rest = rest[min(32, len(rest)):] {
		fmt.Fprintf(&out, "chunk %x\n", rest[:min(32, len(rest))])
	}
	return out.String()
}
