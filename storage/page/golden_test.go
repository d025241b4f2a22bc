package page

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew; only for formats that no release has written")

// formatHint explains why a page of a golden file may be unreadable.
const formatHint = "if package rollup or chunk has other fields now, such as those of a new column of buckets, pages " +
	"need a new version: see cuttings.go"

// goldenPages has a function per golden file, by its name, that returns the head and the values of the page.
func goldenPages(t testing.TB) map[string]func() (Head, [][]byte) {
	golden := map[string]func() (Head, [][]byte){}
	for _, k := range kinds {
		name := []string{"labels", "chunks", "rollups"}[k]
		golden[name+" of one rollout"] = func() (Head, [][]byte) { return headOf(k), usualValues(k, 24, 1) }
		golden["odd "+name] = func() (Head, [][]byte) {
			h, values := headOf(k), [][]byte(nil)
			for _, v := range append(oddValues(t, k, 1), usualValues(k, 4, 2)...) {
				if len(v) < 300 {
					values = append(values, v)
					h.At = append(h.At, byte(3*len(values)))
				}
			}
			return h, values
		}
	}
	return golden
}

// TestGolden checks that the pages written by each release return their values, and that the current version still
// encodes to the same bytes. A golden file has a line for the head, one per value, and the page's bytes, all in
// hexadecimal.
func TestGolden(t *testing.T) {
	for name, make := range goldenPages(t) {
		path := filepath.Join(
			"testdata", "golden", strings.ReplaceAll(fmt.Sprintf("v%d %s.txt", pageVersion, name), " ", "-"),
		)
		if *rewrite {
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, goldenText(make()), 0o644))
		}
		require.FileExists(t, path, "write it with -rewrite")
	}
	paths, err := filepath.Glob("testdata/golden/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			h, values, page := parseGolden(t, path)
			p, err := Parse(page)
			require.NoError(t, err, formatHint)
			require.Equal(t, h, p.Head())
			require.Equal(t, len(values), p.Len())
			for i, v := range values {
				got, err := p.AppendValue(nil, i)
				require.NoError(t, err, formatHint)
				require.Equal(t, hex.EncodeToString(v), hex.EncodeToString(got))
			}
			if page[0] == pageVersion {
				require.Equal(t, hex.EncodeToString(page), hex.EncodeToString(Append(nil, h, values)),
					"the format has changed: it needs a new version, so that old pages stay readable")
			}
		})
	}
}

func goldenText(h Head, values [][]byte) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "head %02x %x %x\n", byte(h.Kind), h.Labels, h.At)
	for _, v := range values {
		fmt.Fprintf(&out, "value %x\n", v)
	}
	for b := Append(nil, h, values); len(b) > 0; b = b[min(48, len(b)):] {
		fmt.Fprintf(&out, "page %x\n", b[:min(48, len(b))])
	}
	return out.Bytes()
}

func parseGolden(t *testing.T, path string) (h Head, values [][]byte, page []byte) {
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	lines := bufio.NewScanner(bytes.NewReader(content))
	lines.Buffer(nil, len(content))
	for lines.Scan() {
		name, rest, _ := strings.Cut(lines.Text(), " ")
		var parts [][]byte
		for part := range strings.SplitSeq(rest, " ") {
			b, err := hex.DecodeString(part)
			require.NoError(t, err)
			parts = append(parts, b)
		}
		switch name {
		case "head":
			h = Head{Kind: Kind(parts[0][0]), Labels: string(parts[1])}
			if len(parts[2]) > 0 {
				h.At = parts[2]
			}
		case "value":
			values = append(values, parts[0])
		case "page":
			page = append(page, parts[0]...)
		default:
			t.Fatalf("unknown line %q", name)
		}
	}
	require.NoError(t, lines.Err())
	return h, values, page
}
