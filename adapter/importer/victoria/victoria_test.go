package victoria

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter/importer"
	"github.com/cassia-db/cassia/adapter/importer/fetch"
	"github.com/cassia-db/cassia/adapter/importer/lines"
)

// builder encodes the native format.
type builder struct{ bytes.Buffer }

func newBuilder(minMS, maxMS int64) *builder {
	b := &builder{}
	for _, t := range []int64{minMS, maxMS} {
		_ = binary.Write(&b.Buffer, binary.BigEndian, uint64(t<<1)^uint64(t>>63))
	}
	return b
}

func (b *builder) field(field []byte) {
	_ = binary.Write(&b.Buffer, binary.BigEndian, uint32(len(field)))
	b.Write(field)
}

// encodeInts encodes all integers after the first one, in the given encoding.
func encodeInts(t testing.TB, kind byte, all []int64) (out []byte) {
	var step int64
	for i := 1; i < len(all); i++ {
		d := all[i] - all[i-1]
		switch kind {
		case kindConst:
		case kindDeltaConst:
			if i == 1 {
				out = binary.AppendVarint(out, d)
			}
		case kindDelta, kindZstdDelta:
			out = binary.AppendVarint(out, d)
		default:
			out = binary.AppendVarint(out, d-step)
			step = d
		}
	}
	if kind == kindZstdDelta || kind == kindZstdDelta2 {
		z, err := zstd.NewWriter(nil)
		require.NoError(t, err)
		out = z.EncodeAll(out, nil)
		require.NoError(t, z.Close())
	}
	return out
}

func block(t testing.TB, timesKind, valuesKind, precision byte, scale int64, times, values []int64) (out []byte) {
	for _, v := range []int64{times[0], times[len(times)-1], values[0]} {
		out = binary.AppendVarint(out, v)
	}
	out = binary.AppendVarint(binary.AppendUvarint(out, uint64(len(times))), scale)
	out = append(out, timesKind, valuesKind, precision)
	for _, part := range [][]byte{encodeInts(t, timesKind, times), encodeInts(t, valuesKind, values)} {
		out = append(binary.AppendUvarint(out, uint64(len(part))), part...)
	}
	return out
}

func samplesOf(t testing.TB, s importer.Source, after string) (lines []string, positions []string) {
	for b, err := range s.Batches(t.Context(), after) {
		require.NoError(t, err)
		positions = append(positions, b.Position)
		for _, series := range b.Series {
			for i, at := range series.Samples.T {
				lines = append(
					lines, fmt.Sprintf("%s %d %016x", series.Labels, at, math.Float64bits(series.Samples.V[i])),
				)
			}
		}
	}
	slices.Sort(lines)
	return lines, positions
}

// TestNative checks that every kind of block is decoded.
func TestNative(t *testing.T) {
	t.Parallel()
	b := newBuilder(-5, 10_000)
	var want []string
	add := func(
		name string, ls labels.Labels, timesKind, valuesKind, precision byte, scale int64, times, values []int64,
		floats []float64,
	) {
		b.field([]byte(name))
		b.field(block(t, timesKind, valuesKind, precision, scale, times, values))
		for i, at := range times {
			if at >= -5 && at <= 10_000 {
				want = append(want, fmt.Sprintf("%s %d %016x", ls, at, math.Float64bits(floats[i])))
			}
		}
	}
	up := labels.FromStrings("__name__", "up", "job", "a")
	add("up\x01job\x01a\x01", up, kindDeltaConst, kindConst, 64, 0,
		[]int64{0, 15, 30}, []int64{1, 1, 1}, []float64{1, 1, 1})
	add("up\x01job\x01a\x01", up, kindDelta2, kindDelta, 64, -2, []int64{-6, -5, 100, 10_000, 10_001},
		[]int64{1, -22, math.MaxInt64 - 1, math.MaxInt64, math.MinInt64},
		[]float64{0.01, -0.22, math.Float64frombits(0x7ff0000000000002), math.Inf(1), math.Inf(-1)})
	long, longValues, floats := make([]int64, 8192), make([]int64, 8192), make([]float64, 8192)
	for i := range long {
		long[i], longValues[i] = int64(i)+int64(i%3), int64(i*i%977)
		floats[i] = float64(longValues[i]) * 1e3
	}
	slices.Sort(long)
	add("a\x000b\x001c\x002\x01\x002x\x01\x001\x01",
		labels.FromStrings("__name__", "a\x00b\x01c\x02", "\x02x", "\x01"), kindZstdDelta2, kindZstdDelta, 64, 3, long,
		longValues, floats)
	add("\x01job\x01b\x01", labels.FromStrings("job", "b"), kindConst, kindDelta2, 64, 0, []int64{7}, []int64{5},
		[]float64{5})
	slices.Sort(want)
	path := filepath.Join(t.TempDir(), "native")
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
	s := &Native{Path: path, Selection: importer.Everything()}
	plan, err := s.Plan(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, -5, plan.MinMS)
	got, positions := samplesOf(t, s, "")
	require.Equal(t, want, got)
	require.Len(t, positions, 1)
	at, err := parsePosition(positions[0])
	require.NoError(t, err)
	require.EqualValues(t, b.Len(), at.Bytes)
	got, _ = samplesOf(t, s, positions[0])
	require.Empty(t, got)
	got, _ = samplesOf(t, &Native{Path: "-", Stdin: &b.Buffer, Selection: importer.Everything()}, "")
	require.Equal(t, want, got)
}

// TestLessPrecise decodes blocks with reduced precision: times are rounded and must ascend.
func TestLessPrecise(t *testing.T) {
	t.Parallel()
	b := newBuilder(0, 100)
	encoded := block(t, kindDelta, kindConst, 20, 0, []int64{10, 9, 50, 40, 41}, []int64{1, 1, 1, 1, 1})
	b.field([]byte("a\x01"))
	b.field(encoded)
	got, _ := samplesOf(t, &Native{Path: "-", Stdin: &b.Buffer, Selection: importer.Everything()}, "")
	one := math.Float64bits(1)
	var want []string
	for _, at := range []int64{10, 10, 41, 41, 41} {
		want = append(want, fmt.Sprintf(`{__name__="a"} %d %016x`, at, one))
	}
	require.Equal(t, want, got)
}

func TestNativeSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	good := newBuilder(0, 100)
	good.field([]byte("a\x01"))
	good.field(block(t, kindConst, kindConst, 64, 0, []int64{1}, []int64{1}))
	with := func(name string, block []byte) []byte {
		b := newBuilder(0, 100)
		b.field([]byte(name))
		b.field(block)
		return b.Bytes()
	}
	for _, c := range []struct {
		in   []byte
		want string
	}{
		{nil, "the input ends within a record: it is truncated, or not VictoriaMetrics' native format"},
		{[]byte(`{"metric":{"__name__":"a"},"values":[1],"timestamps":[2]}`), "not VictoriaMetrics' native format, or damaged"},
		{good.Bytes()[:good.Len()-1], "victoria: record at byte 16: the input ends within a record"},
		{append(slices.Clone(good.Bytes()), 0, 0, 0, 1, 'a'), "the input ends within a record: it is truncated, or not VictoriaMetrics' native format"},
		{append(slices.Clone(good.Bytes()), 0xff, 0, 0, 1), "record of 4278190081 bytes"},
		{with("a", nil), "the name of a series"},
		{with("a\x01b\x01", nil), "the name of a series"},
		{with("a\x00\x01", nil), "the name of a series"},
		{with("a\x01b\x01c\x01b\x01d\x01", nil), `has the label "b" twice`},
		{with("a\x01", []byte{1}), "the head of a block"},
		{with("a\x01", block(t, 9, kindConst, 64, 0, []int64{1, 2}, []int64{1, 2})), "integers of unknown type 9, perhaps from a newer VictoriaMetrics; export JSON lines with /api/v1/export instead"},
		{with("a\x01", block(t, kindConst, kindConst, 0, 0, []int64{1}, []int64{1})), "the lengths of a block"},
		{with("a\x01", block(t, kindConst, kindConst, 64, 1<<20, []int64{1}, []int64{1})), "the head of a block"},
		{with("a\x01", block(t, kindDelta, kindConst, 64, 0, []int64{5, 2, 9}, []int64{1, 1, 1})), "the times of a block"},
		{
			with("a\x01", append(block(t, kindConst, kindConst, 64, 0, []int64{1}, []int64{1}), 0)),
			"the lengths of a block",
		},
	} {
		var err error
		for _, e := range (&Native{
			Path: "-", Stdin: bytes.NewReader(c.in), Selection: importer.Everything(),
		}).Batches(t.Context(), "") {
			err = e
		}
		require.ErrorContains(t, err, c.want)
		require.Equal(t, 1, strings.Count(err.Error()+"\n", "\n"))
	}
}

// TestNativeResumes checks that a run resumes after the samples before a truncated record, and that an input whose part
// before the position has changed is read from its start.
func TestNativeResumes(t *testing.T) {
	t.Parallel()
	b := newBuilder(0, 100)
	var ends []int
	for i := range int64(3) {
		b.field([]byte("a\x01"))
		b.field(block(t, kindConst, kindConst, 64, 0, []int64{i}, []int64{i + 1}))
		ends = append(ends, b.Len())
	}
	read := func(in []byte, after string) (batches []importer.Batch, samples int, err error) {
		for b, err := range (&Native{
			Path: "-", Stdin: bytes.NewReader(in), Selection: importer.Everything(),
		}).Batches(t.Context(), after) {
			if err != nil {
				return batches, samples, err
			}
			for _, s := range b.Series {
				samples += s.Samples.Len()
			}
			batches = append(batches, b)
		}
		return batches, samples, nil
	}
	first, n, err := read(b.Bytes()[:ends[2]-1], "")
	require.ErrorContains(t, err, "truncated")
	require.Equal(t, 2, n)
	after := first[len(first)-1].Position
	for _, c := range []struct {
		change    int // index of the changed byte
		samples   int
		restarted bool
	}{{-1, 1, false}, {7, 2, true}, {ends[2] - 2, 1, false}} {
		in := bytes.Clone(b.Bytes())
		if c.change >= 0 {
			in[c.change] ^= 2
		}
		second, n, _ := read(in, after)
		require.Equal(t, c.restarted, second[0].Restarted, c.change)
		if c.change < ends[1] {
			require.Equal(t, c.samples, n, c.change)
		}
	}
}

// FuzzNative checks that no input panics or exceeds the memory bound.
func FuzzNative(f *testing.F) {
	b := newBuilder(0, 100)
	b.field([]byte("a\x01b\x01c\x01"))
	b.field(block(f, kindZstdDelta, kindDelta2, 64, -1, []int64{1, 5, 9, 10}, []int64{1, 2, 9, 1}))
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, in []byte) {
		for b, err := range (&Native{
			Path: "-", Stdin: bytes.NewReader(in), Selection: importer.Everything(),
		}).Batches(t.Context(), "") {
			for _, s := range b.Series {
				require.LessOrEqual(t, s.Samples.Len(), maxRows*(1+len(in)/8))
			}
			if err != nil {
				return
			}
		}
	})
}

// TestAsVictoriaMetricsWritesIt checks that exports of the same series by VictoriaMetrics 1.150 in both formats yield
// the same samples.
func TestAsVictoriaMetricsWritesIt(t *testing.T) {
	t.Parallel()
	native, _ := samplesOf(
		t, &Native{Path: "testdata/victoria-metrics-1.150.native", Selection: importer.Everything()}, "",
	)
	text, _ := samplesOf(t, lines.New(lines.Options{
		Path: "testdata/victoria-metrics-1.150.jsonl", Format: lines.JSONLines, Selection: importer.Everything(),
	}), "")
	require.Equal(t, text, native)
	require.Len(t, native, 50+400+150+200+3+1+2+100+5)
	require.Contains(t, native, `{__name__="stale"} 1767225630000 7ff0000000000002`)
	require.Contains(t, native, `{__name__="special"} 1767225601000 fff0000000000000`)
	require.Contains(t, native, fmt.Sprintf(`{__name__="one"} 1767225600001 %016x`, math.Float64bits(42.5)))
}

// TestServer checks that all samples of a server are read day by day, in both formats.
func TestServer(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("testdata/victoria-metrics-1.150.jsonl")
	require.NoError(t, err)
	native, err := os.ReadFile("testdata/victoria-metrics-1.150.native")
	require.NoError(t, err)
	want, _ := samplesOf(t, &Native{Path: "-", Stdin: bytes.NewReader(native), Selection: importer.Everything()}, "")
	var asked []url.Values
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		asked = append(asked, r.Form)
		switch r.URL.Path {
		case "/select/0/prometheus/api/v1/export":
			if len(asked) == 1 { // the first response is truncated and requested again
				w.Header().Set("Content-Length", "100000")
				_, _ = w.Write(file[:1000])
				return
			}
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = z.Write(file)
			_ = z.Close()
		case "/api/v1/export/native":
			_, _ = w.Write(native)
		default:
			http.NotFound(w, r)
		}
	}))
	defer web.Close()
	for _, c := range []struct {
		path   string
		native bool
		asked  int
	}{{"/select/0/prometheus", false, 3}, {"/", true, 2}} {
		asked = nil
		u, err := fetch.ParseURL(web.URL+c.path, nil)
		require.NoError(t, err)
		sel := importer.Everything()
		sel.MinMS, sel.MaxMS = 1767225600000, 1767225600000+2*24*3600*1000
		sel.MinMS++
		sel.Matchers = [][]*labels.Matcher{
			{labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, "up|ramp")},
			{labels.MustNewMatcher(labels.MatchNotEqual, "job", "a")},
		}
		d := New(Options{
			Client: fetch.Client{HTTP: web.Client(), URL: u}, Native: c.native, Selection: sel, Width: 24 * time.Hour,
			Now: time.Now,
		})
		d.Wait = func(context.Context, time.Duration) error { return nil }
		got, positions := samplesOf(t, d, "")
		var chosen []string
		for _, line := range want {
			if !strings.Contains(line, " 1767225600000 ") &&
				(!strings.Contains(line, `job="a"`) || strings.Contains(line, `"up"`)) {
				chosen = append(chosen, line)
			}
		}
		require.Equal(t, chosen, got)
		require.Len(t, positions, 2)
		require.Len(t, asked, c.asked)
		require.Equal(t, []string{`{__name__=~"up|ramp"}`, `{job!="a"}`}, asked[0]["match[]"])
		require.Equal(t, "1767225599.001", asked[0].Get("start"))
		require.Equal(t, "1767312001.000", asked[0].Get("end"))
	}
}
