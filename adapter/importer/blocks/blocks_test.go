package blocks

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter/importer"
	"github.com/cassia-db/cassia/storage/chunk"
)

var start = time.Date(2026, 3, 1, 22, 0, 0, 0, time.UTC).UnixMilli()

// series is a series that a test writes to a block.
type series struct {
	labels  labels.Labels
	samples chunk.Samples
}

// write creates a block of series with Prometheus' writer.
func write(t testing.TB, dir string, list ...series) string {
	t.Helper()
	w, err := tsdb.NewBlockWriter(promslog.NewNopLogger(), dir, 1000*3600*1000)
	require.NoError(t, err)
	defer func() { require.NoError(t, w.Close()) }()
	app := w.Appender(t.Context())
	for _, s := range list {
		for i, at := range s.samples.T {
			_, err := app.Append(0, s.labels, at, s.samples.V[i])
			require.NoError(t, err)
		}
		for _, h := range s.samples.H {
			_, err := app.AppendHistogram(0, s.labels, h.T, h.Int, h.Float)
			require.NoError(t, err)
		}
	}
	require.NoError(t, app.Commit())
	id, err := w.Flush(t.Context())
	require.NoError(t, err)
	return filepath.Join(dir, id.String())
}

// floats returns a series of n samples with an interval of one minute.
func floats(name string, from int64, n int) series {
	s := series{labels: labels.FromStrings(labels.MetricName, "up", "host", name)}
	for i := range n {
		v := float64(i % 100)
		switch i % 500 {
		case 17:
			v = math.Float64frombits(value.StaleNaN)
		case 18:
			v = math.Inf(-1)
		}
		s.samples.AppendFloat(from+int64(i)*60_000, 0, v)
	}
	return s
}

// readAll reads a source from a position, and returns the samples of each series and the positions of the batches.
func readAll(
	t testing.TB, s *Source, after string,
) (got map[string]*chunk.Samples, positions []string, skipped []importer.Skip) {
	t.Helper()
	got = map[string]*chunk.Samples{}
	for b, err := range s.Batches(t.Context(), after) {
		require.NoError(t, err)
		for _, x := range b.Series {
			name := x.Labels.String()
			if got[name] == nil {
				got[name] = &chunk.Samples{}
			}
			got[name].AppendAll(x.Samples)
		}
		positions, skipped = append(positions, b.Position), append(skipped, b.Skipped...)
		require.InDelta(t, 0.5, b.Done, 0.5)
	}
	return got, positions, skipped
}

func open(t testing.TB, o Options) *Source {
	t.Helper()
	if o.Selection.MinMS == 0 {
		o.Selection.MinMS, o.Selection.MaxMS = math.MinInt64, math.MaxInt64
	}
	s := New(o)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	_, err := s.Plan(t.Context())
	require.NoError(t, err)
	return s
}

func equal(t testing.TB, want, got *chunk.Samples) {
	t.Helper()
	require.NotNil(t, got)
	require.Equal(t, want.Len(), got.Len())
	require.True(t, got.Covers(want), "want %v, got %v", want, got)
}

// TestRead checks that overlapping blocks are read completely, in batches of a few series, and that each position
// yields the remaining batches.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	var a, b []series
	want := map[string]*chunk.Samples{}
	for i := range 7 {
		all := floats(fmt.Sprint("h", i), start, 4000)
		first, second := series{
			labels: all.labels, samples: chunk.Samples{T: all.samples.T[:2500], V: all.samples.V[:2500]},
		},
			series{labels: all.labels, samples: chunk.Samples{T: all.samples.T[2000:], V: all.samples.V[2000:]}}
		a = append(a, first)
		if i != 3 {
			b = append(b, second)
			want[all.labels.String()] = &all.samples
		} else {
			want[all.labels.String()] = &first.samples
		}
	}
	hist := series{labels: labels.FromStrings(labels.MetricName, "request_seconds")}
	hist.samples.AppendFloat(start, 0, 1)
	for i := range 200 {
		h := chunk.Histogram{T: start + int64(i+1)*60_000}
		if i < 100 {
			h.Int = tsdbutil.GenerateTestHistogram(int64(i))
		} else {
			h.Float = tsdbutil.GenerateTestFloatHistogram(int64(i))
		}
		if i == 50 {
			h.Int = &histogram.Histogram{Sum: math.Float64frombits(value.StaleNaN)}
		}
		hist.samples.AppendHistogram(h)
	}
	a = append(a, hist)
	write(t, dir, a...)
	write(t, dir, b...)
	s := open(t, Options{Dirs: []string{dir}, BatchBytes: 40_000})
	got, positions, skipped := readAll(t, s, "")
	require.Empty(t, skipped)
	require.Greater(t, len(positions), 5)
	require.Len(t, got, 8)
	for name, samples := range want {
		equal(t, samples, got[name])
	}
	h := got[hist.labels.String()]
	require.Len(t, h.H, 200)
	require.Len(t, h.T, 1)
	require.True(t, value.IsStaleNaN(h.H[50].Int.Sum))
	for i := range h.H {
		if i != 50 {
			h.H[i].Int, h.H[i].Float = withoutHint(h.H[i])
			require.Equal(t, hist.samples.H[i], h.H[i])
		}
	}
	for i := range positions { // Each position must yield the remaining batches.
		rest, later, _ := readAll(t, s, positions[i])
		require.Equal(t, positions[i+1:], append([]string{}, later...), "after %s", positions[i])
		n, all := 0, 0
		for name := range got {
			all += got[name].Len()
			if rest[name] != nil {
				n += rest[name].Len()
			}
		}
		require.Less(t, n, all)
		if i == len(positions)-1 {
			require.Zero(t, n)
		}
	}
}

// withoutHint returns a histogram without its counter reset hint, like the histograms of the tests.
func withoutHint(h chunk.Histogram) (*histogram.Histogram, *histogram.FloatHistogram) {
	if h.Int != nil {
		h.Int.CounterResetHint = histogram.UnknownCounterReset
	}
	if h.Float != nil {
		h.Float.CounterResetHint = histogram.UnknownCounterReset
	}
	return h.Int, h.Float
}

// TestResumeWithNewBlocks resumes after all blocks have been read. The samples of a new block that starts earlier are
// read, and nothing is read after a compaction that added no samples.
func TestResumeWithNewBlocks(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, floats("a", start, 3000))
	_, positions, _ := readAll(t, open(t, Options{Dirs: []string{dir}}), "")
	end := positions[len(positions)-1]
	late := floats("b", start+1500*60_000, 2000)
	write(t, dir, late)
	got, positions, _ := readAll(t, open(t, Options{Dirs: []string{dir}}), end)
	equal(t, &late.samples, got[late.labels.String()])
	require.Less(t, got[floats("a", 0, 0).labels.String()].Len(), 3000, "the days before need not be read again")

	end = positions[len(positions)-1]
	compactor, err := tsdb.NewLeveledCompactor(t.Context(), nil, promslog.NewNopLogger(), []int64{1e9}, nil, nil)
	require.NoError(t, err)
	found, err := find([]string{dir})
	require.NoError(t, err)
	dirs := []string{found[0].dir, found[1].dir}
	_, err = compactor.Compact(dir, dirs, nil)
	require.NoError(t, err)
	for _, d := range dirs {
		require.NoError(t, os.RemoveAll(d))
	}
	got, _, _ = readAll(t, open(t, Options{Dirs: []string{dir}}), end)
	require.Empty(t, got)
}

// TestSelection selects a part of the time range and of the series, adds labels, and omits deleted samples.
func TestSelection(t *testing.T) {
	dir := t.TempDir()
	a, b := floats("a", start, 3000), floats("b", start, 3000)
	one := write(t, dir, a, b)
	opened, err := tsdb.OpenBlock(nil, one, nil, nil)
	require.NoError(t, err)
	host := labels.MustNewMatcher(labels.MatchEqual, "host", "a")
	require.NoError(t, opened.Delete(t.Context(), a.samples.T[1000], a.samples.T[1200], host))
	require.NoError(t, opened.Close())
	sel := importer.Selection{
		Matchers: [][]*labels.Matcher{{host}}, MinMS: a.samples.T[900], MaxMS: a.samples.T[2000],
		Add: []labels.Label{{Name: "cluster", Value: "x"}},
	}
	got, _, _ := readAll(t, open(t, Options{Dirs: []string{one}, Selection: sel}), "")
	require.Len(t, got, 1)
	want := chunk.Samples{
		T: append(a.samples.T[900:1000:1000], a.samples.T[1201:2001]...),
		V: append(a.samples.V[900:1000:1000], a.samples.V[1201:2001]...),
	}
	equal(t, &want, got[`{__name__="up", cluster="x", host="a"}`])
}

// thanos adds Thanos' metadata to the meta.json of a block.
func thanos(t testing.TB, dir string, external map[string]string, resolution int64) {
	t.Helper()
	path := filepath.Join(dir, "meta.json")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var m map[string]any
	require.NoError(t, json.Unmarshal(text, &m))
	m["thanos"] = map[string]any{"labels": external, "downsample": map[string]any{"resolution": resolution}}
	text, err = json.Marshal(m)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o644))
}

// TestThanos checks which external labels the series of two replicas get, that the replicas are merged without the
// replica label, and that a block with an unsupported resolution is an error.
func TestThanos(t *testing.T) {
	dir := t.TempDir()
	a := floats("a", start, 1000)
	for _, replica := range []string{"0", "1"} {
		thanos(t, write(t, dir, a), map[string]string{"cluster": "c", "replica": replica, "__org_id__": "7"}, 0)
	}
	count := func(o Options) map[string]int {
		o.Dirs = []string{dir}
		got, positions, _ := readAll(t, open(t, o), "")
		n := map[string]int{}
		for name, s := range got {
			n[name] = s.Len()
		}
		for _, p := range positions {
			rest, _, _ := readAll(t, open(t, o), p)
			require.Less(t, len(rest), len(got)+1)
		}
		return n
	}
	require.Equal(t, map[string]int{
		`{__name__="up", cluster="c", host="a", replica="0"}`: 1000,
		`{__name__="up", cluster="c", host="a", replica="1"}`: 1000,
	},
		count(Options{BatchBytes: 5000}))
	require.Equal(
		t, map[string]int{`{__name__="up", cluster="c", host="a"}`: 1000}, count(Options{Without: []string{"replica"}}),
	)
	require.Equal(t, map[string]int{`{__name__="up", host="a"}`: 1000}, count(Options{NoExternal: true}))

	down := write(t, dir, a)
	thanos(t, down, nil, 60_000)
	_, err := New(Options{Dirs: []string{dir}, Selection: importer.Everything()}).Plan(t.Context())
	require.ErrorIs(t, err, errDownsampled)
	require.ErrorContains(t, err, down)
}

// TestDamage checks that a block that can't be opened stops the import before it starts, and that a damaged chunk is
// skipped and reported.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	_, err := New(Options{Dirs: []string{dir}}).Plan(t.Context())
	require.ErrorIs(t, err, errNoBlocks)
	a := floats("a", start, 3000)
	one := write(t, dir, a)
	path := filepath.Join(one, "chunks", "000001")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	text[60] ^= 255
	require.NoError(t, os.WriteFile(path, text, 0o644))
	got, _, skipped := readAll(t, open(t, Options{Dirs: []string{dir}}), "")
	require.NotEmpty(t, skipped)
	require.Contains(t, skipped[0].What, one)
	require.Contains(t, skipped[0].What, `host="a"`)
	n := got[a.labels.String()].Len()
	require.Less(t, n, 3000)
	require.Greater(t, n, 2000)
	require.True(t, a.samples.Covers(got[a.labels.String()]))

	require.NoError(t, os.Truncate(filepath.Join(one, "index"), 100))
	_, err = New(Options{Dirs: []string{dir}, Selection: importer.Everything()}).Plan(t.Context())
	require.ErrorIs(t, err, errDamaged)
	require.ErrorContains(t, err, one)
}

// TestDamageIsToldOnce reads a damaged chunk that spans two days: from before its start, from its middle, and only its
// second day. Each import reports it once.
func TestDamageIsToldOnce(t *testing.T) {
	dir := t.TempDir()
	one := write(t, dir, floats("a", start+90*60_000, 100)) // Half an hour before midnight.
	path := filepath.Join(one, "chunks", "000001")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	text[60] ^= 255
	require.NoError(t, os.WriteFile(path, text, 0o644))
	for _, from := range []int64{math.MinInt64, start + 95*60_000, start + 3*3600_000} {
		got, _, skipped := readAll(t,
			open(t, Options{Dirs: []string{dir}, Selection: importer.Selection{MinMS: from, MaxMS: math.MaxInt64}}), "")
		require.Empty(t, got)
		require.Len(t, skipped, 1, from)
	}
}
