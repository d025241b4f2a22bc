package exporter

import (
	"bytes"
	"context"
	encodingcsv "encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/value"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
)

// floatsOf returns the floats of a tenant, without start timestamps and converted by change.
func floatsOf(t *testing.T, s *storage.Store, change func(v float64) (float64, bool)) held {
	list, err := s.Select(t.Context(), query.Query{Tenant: "default", MinT: math.MinInt64, MaxT: math.MaxInt64})
	require.NoError(t, err)
	out, r := held{}, newRun(s, everything())
	for _, series := range list {
		samples, err := r.read(&source{Labels: series.Labels, kept: []*query.SelectedSeries{series}})
		require.NoError(t, err)
		for i, at := range samples.T {
			if v, ok := change(samples.V[i]); ok {
				out.float(series.Labels, at, 0, v)
			}
		}
	}
	return out.sort()
}

func usualNaN(v float64) (float64, bool) {
	if math.IsNaN(v) {
		return math.Float64frombits(value.NormalNaN), !value.IsStaleNaN(v)
	}
	return v, true
}

// inOpenMetrics parses text with Prometheus' parser and adds the samples to out.
func inOpenMetrics(t *testing.T, text []byte, out held) {
	p := textparse.NewOpenMetricsParser(text, labels.NewSymbolTable())
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		if entry == textparse.EntrySeries {
			var ls labels.Labels
			p.Labels(&ls)
			_, at, v := p.Series()
			require.NotNil(t, at)
			out.float(ls, *at, 0, v)
		}
	}
}

// TestOpenMetrics exports all samples and parses them with Prometheus' parser.
func TestOpenMetrics(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	mixed(t, s)
	for metric, m := range map[string]format.Metadata{
		"requests_total": {Type: "counter", Help: "How many \\ there \"were\"\nin all."}, "started": {Type: "counter"},
		"strange": {Type: "gauge", Unit: "s", Help: "é"}, "old": {Type: "histogram", Help: "No TYPE for it."},
	} {
		s.QueueMetadata("default", []byte(metric), m.Type, []byte(m.Unit), []byte(m.Help))
	}
	require.Eventually(t, func() bool { // metadata is written asynchronously
		found, err := s.Metadata(t.Context(), "default", "", 0)
		return err == nil && len(found) == 4
	}, time.Minute, 10*time.Millisecond)
	var text bytes.Buffer
	stats, err := Text(t.Context(), s, OpenMetrics, everything(), &text)
	require.NoError(t, err)
	want := floatsOf(t, s, usualNaN)
	got := held{}
	inOpenMetrics(t, text.Bytes(), got)
	same(t, want, got.sort())
	require.Len(t, want, stats.Series)
	require.EqualValues(t, text.Len(), stats.Bytes)
	out := stats.LeftOut
	require.Equal(t,
		LeftOut{Histograms: 341, HistogramSeries: 10, Stale: 1, NaNs: 1, StartTimestamps: 9 + 5, Example: out.Example},
		out)
	require.Contains(t, out.Example, "latency")
	require.True(t, strings.HasSuffix(text.String(), "\n# EOF\n"))
	require.Contains(t, text.String(),
		"# TYPE requests counter\n# HELP requests How many \\\\ there \\\"were\\\"\\nin all.\nrequests_total{")
	require.Contains(t, text.String(), "# TYPE started counter\nstarted_total{")
	require.Contains(t, text.String(), "# TYPE strange gauge\n# HELP strange é\nstrange{")
	require.Contains(t, text.String(), "# HELP old No TYPE for it.\nold{")
	require.NotContains(t, text.String(), "TYPE old")

	// Each daily file is complete by itself.
	dir := t.TempDir()
	folded, err := TextFolder(t.Context(), s, OpenMetrics, everything(), newFolder(t, dir))
	require.NoError(t, err)
	require.Equal(t, stats.Samples, folded.Samples)
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Len(t, files, folded.Files)
	require.Contains(t, files, filepath.Join(dir, "1969-12-31.om"), "the midnight ends a day")
	got = held{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		inOpenMetrics(t, text, got)
	}
	same(t, want, got.sort())
}

// TestJSONLines exports all samples. A reader like VictoriaMetrics' gets everything except the bits of NaNs, which are
// in nan_bits.
func TestJSONLines(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	mixed(t, s)
	path := filepath.Join(t.TempDir(), "all.jsonl")
	stats, err := TextFile(t.Context(), s, JSONLines, everything(), path)
	require.NoError(t, err)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.EqualValues(t, len(text), stats.Bytes)
	got, marked := held{}, held{}
	for line := range strings.Lines(string(text)) {
		var l struct {
			Metric     map[string]string `json:"metric"`
			Values     []any             `json:"values"`
			Timestamps []int64           `json:"timestamps"`
			Bits       map[string]string `json:"nan_bits"`
		}
		d := json.NewDecoder(strings.NewReader(line))
		d.UseNumber()
		require.NoError(t, d.Decode(&l))
		require.Len(t, l.Values, len(l.Timestamps))
		for i, x := range l.Values {
			var v float64
			switch x := x.(type) {
			case nil:
				v = math.Float64frombits(value.NormalNaN)
			case string:
				v, err = strconv.ParseFloat(x, 64)
			case json.Number:
				v, err = strconv.ParseFloat(x.String(), 64)
			}
			require.NoError(t, err)
			got.float(labels.FromMap(l.Metric), l.Timestamps[i], 0, v)
			if bits, ok := l.Bits[strconv.Itoa(i)]; ok {
				b, err := strconv.ParseUint(bits, 16, 64)
				require.NoError(t, err)
				v = math.Float64frombits(b)
			}
			marked.float(labels.FromMap(l.Metric), l.Timestamps[i], 0, v)
		}
	}
	same(t, floatsOf(t, s, func(v float64) (float64, bool) { v, _ = usualNaN(v); return v, true }), got.sort())
	same(t, floatsOf(t, s, func(v float64) (float64, bool) { return v, true }), marked.sort())
	require.Zero(t, stats.LeftOut.Stale+stats.LeftOut.NaNs)

	_, err = TextFile(t.Context(), s, JSONLines, everything(), path)
	require.ErrorContains(t, err, "exists")
}

func TestCSV(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	mixed(t, s)
	var text bytes.Buffer
	_, err := Text(t.Context(), s, CSV, everything(), &text)
	require.NoError(t, err)
	rows, err := encodingcsv.NewReader(&text).ReadAll()
	require.NoError(t, err)
	require.Equal(t, []string{"metric", "labels", "timestamp_ms", "value"}, rows[0])
	got := held{}
	for _, row := range rows[1:] {
		ls := map[string]string{}
		require.NoError(t, json.Unmarshal([]byte(row[1]), &ls))
		ls[labels.MetricName] = row[0]
		at, err := strconv.ParseInt(row[2], 10, 64)
		require.NoError(t, err)
		v := math.Float64frombits(value.StaleNaN)
		if row[3] != "stale" {
			v, err = strconv.ParseFloat(row[3], 64)
			require.NoError(t, err)
		}
		got.float(labels.FromMap(ls), at, 0, v)
	}
	want := floatsOf(t, s, func(v float64) (float64, bool) {
		if value.IsStaleNaN(v) {
			return v, true
		}
		return usualNaN(v)
	})
	same(t, want, got.sort())
}

// TestSeconds checks that Prometheus' parser, which multiplies and truncates, reads every millisecond exactly.
func TestSeconds(t *testing.T) {
	t.Parallel()
	check := func(ms int64) {
		text := string(appendSeconds(nil, ms))
		seconds, err := strconv.ParseFloat(text, 64)
		require.NoError(t, err)
		require.Equal(t, ms, int64(seconds*1000), text)
	}
	for ms := int64(-1100); ms < 1100; ms++ {
		check(ms)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		check(nowMS - rng.Int64N(4*nowMS))
	}
	require.Equal(t, "1777636800", string(appendSeconds(nil, nowMS)))
	require.Equal(t, "-0.001", string(appendSeconds(nil, -1)))
}

// failing is a writer that accepts left bytes and then fails.
type failing struct{ left int }

func (f *failing) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, errors.New("the disk is full")
	}
	return len(b), nil
}

// TestNoHalfFiles checks that a failed export leaves no file that looks complete.
func TestNoHalfFiles(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	mixed(t, s)
	_, err := Text(t.Context(), s, OpenMetrics, everything(), &failing{left: 10})
	require.ErrorContains(t, err, "the disk is full")

	dir := t.TempDir()
	o := everything()
	o.Tenant = "nobody"
	_, err = TextFile(t.Context(), s, OpenMetrics, o, filepath.Join(dir, "a.om"))
	require.ErrorIs(t, err, ErrNothing)
	o = everything()
	o.Selectors = [][]*labels.Matcher{{labels.MustNewMatcher(labels.MatchEqual, "kind", "gauge")}}
	_, err = TextFile(t.Context(), s, CSV, o, filepath.Join(dir, "a.csv"))
	require.ErrorIs(t, err, ErrNothing)
	require.ErrorContains(t, err, "native histograms, and 10 of them were skipped")
	ctx, cancel := context.WithCancel(t.Context())
	o = everything()
	o.Progress = func(Progress) { cancel() }
	_, err = TextFolder(ctx, s, JSONLines, o, newFolder(t, dir))
	require.ErrorIs(t, err, ctx.Err())
	_, err = Blocks(ctx, s, o, newFolder(t, dir))
	require.ErrorIs(t, err, ctx.Err())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}
