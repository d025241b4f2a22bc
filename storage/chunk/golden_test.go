package chunk

import (
	"bufio"
	"encoding/hex"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew; only for formats that no release has written")

// goldenSamples returns the samples of the golden files. They use each encoding at least once.
func goldenSamples(t testing.TB) map[string]*Samples {
	golden := map[string]*Samples{}
	for _, sh := range shapes() {
		golden["floats "+sh.name] = sh.samples(20, 7)
	}
	golden["one float"] = &Samples{T: []int64{-1}, V: []float64{math.Pi}}
	golden["histograms"] = histogramSeries(t, 60, 7, false, false)
	golden["histograms with starts"] = histogramSeries(t, 60, 7, false, true)
	golden["float histograms"] = histogramSeries(t, 60, 7, true, false)
	golden["float histograms with starts"] = histogramSeries(t, 60, 7, true, true)
	both := histogramSeries(t, 20, 8, false, false)
	both.AppendFloat(startMS-1, startMS-2, 1)
	both.AppendFloat(startMS+20*intervalMS, 0, 2)
	golden["floats and histograms"] = both
	blocks := &Samples{}
	for i := range int64(2 * blockSamples) {
		blocks.AppendFloat(i, 0, float64(i/blockSamples))
	}
	golden["two blocks"] = blocks
	return golden
}

// TestGolden checks that the chunks written by each release decode to the original samples, and that the current
// version still encodes to the same bytes. A golden file has one line per sample, and the chunk's bytes in hexadecimal.
func TestGolden(t *testing.T) {
	for name, samples := range goldenSamples(t) {
		path := filepath.Join("testdata", "golden", fmt.Sprintf("v%d %s.txt", chunkVersion, name))
		path = strings.ReplaceAll(path, " ", "-")
		if *rewrite {
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, goldenText(samples), 0o644))
		}
		require.FileExists(t, path, "write it with -rewrite")
	}
	paths, err := filepath.Glob("testdata/golden/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			samples, chunk := parseGolden(t, path)
			var got Samples
			require.NoError(t, Decode(chunk, &got))
			requireSame(t, samples, &got)
			if chunk[0] == chunkVersion {
				require.Equal(t, hex.EncodeToString(chunk), hex.EncodeToString(AppendChunk(nil, samples)),
					"the format has changed: it needs a new version, so that old chunks stay readable")
			}
		})
	}
}

func goldenText(s *Samples) []byte {
	var out strings.Builder
	for i, at := range s.T {
		fmt.Fprintf(&out, "float %d %d %#016x %v\n", at, startOf(s.ST, i), math.Float64bits(s.V[i]), s.V[i])
	}
	for _, h := range s.H {
		fmt.Fprintf(&out, "histogram %x\n", AppendHistogramBytes(nil, h))
	}
	for b := AppendChunk(nil, s); len(b) > 0; b = b[min(32, len(b)):] {
		fmt.Fprintf(&out, "chunk %x\n", b[:min(32, len(b))])
	}
	return []byte(out.String())
}

func parseGolden(t *testing.T, path string) (*Samples, []byte) {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	s, chunk := &Samples{}, []byte{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		kind, rest, _ := strings.Cut(lines.Text(), " ")
		switch kind {
		case "float":
			var at, st int64
			var bits uint64
			_, err := fmt.Sscanf(rest, "%d %d %v", &at, &st, &bits)
			require.NoError(t, err)
			s.AppendFloat(at, st, math.Float64frombits(bits))
		case "histogram":
			b, err := hex.DecodeString(rest)
			require.NoError(t, err)
			h, err := ParseHistogram(b)
			require.NoError(t, err)
			s.AppendHistogram(h)
		case "chunk":
			b, err := hex.DecodeString(rest)
			require.NoError(t, err)
			chunk = append(chunk, b...)
		default:
			t.Fatalf("unknown line %q", kind)
		}
	}
	require.NoError(t, lines.Err())
	return s, chunk
}
