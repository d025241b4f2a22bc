package kairosdb

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cassia-db/cassia/adapter/importer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const widthMS = 21 * dayMS

// fakeKeyspace is a keyspace in memory.
type fakeKeyspace struct {
	rows map[string][]Row
	// points are the points of rows by key.
	points map[string][]Point
	// damaged holds the keys of rows that start with a damaged point, broken the keys of unreadable rows.
	damaged, broken map[string]bool
	// lost holds errors of rows with a damaged index entry, by metric.
	lost map[string]error
}

func newFake() *fakeKeyspace {
	return &fakeKeyspace{
		rows: map[string][]Row{}, points: map[string][]Point{}, damaged: map[string]bool{}, broken: map[string]bool{},
		lost: map[string]error{},
	}
}

// put adds a point to the row where KairosDB would store it.
func (k *fakeKeyspace) put(metric, typ string, tags map[string]string, p Point) (key string) {
	row := p.TimeMS - int64(math.Abs(float64(p.TimeMS)))%widthMS
	key = fmt.Sprint(metric, row, typ, tags)
	if _, ok := k.points[key]; !ok {
		k.rows[metric] = append(k.rows[metric], Row{
			Metric: metric, TimeMS: row, Type: typ, IsNumber: typ == "long" || typ == "double", Tags: tags,
			Key: []byte(key),
		})
	}
	k.points[key] = append(k.points[key], p)
	slices.SortStableFunc(k.points[key], func(a, b Point) int { return int(a.TimeMS - b.TimeMS) })
	return key
}

func (k *fakeKeyspace) Metrics(context.Context) ([]string, error) {
	return slices.Sorted(maps.Keys(k.rows)), nil
}

func (k *fakeKeyspace) Rows(_ context.Context, metric string, minMS, maxMS int64) iter.Seq2[[]Row, error] {
	return func(yield func([]Row, error) bool) {
		if err := k.lost[metric]; err != nil && !yield(nil, err) {
			return
		}
		byTime := map[int64][]Row{}
		for _, r := range k.rows[metric] {
			if r.TimeMS <= maxMS && r.TimeMS+widthMS > minMS {
				byTime[r.TimeMS] = append(byTime[r.TimeMS], r)
			}
		}
		for _, at := range slices.Sorted(maps.Keys(byTime)) {
			if !yield(byTime[at], nil) {
				return
			}
		}
	}
}

var errBroken = errors.New("the cluster is gone")

func (k *fakeKeyspace) Points(_ context.Context, r *Row, minMS, maxMS int64) iter.Seq2[Point, error] {
	return func(yield func(Point, error) bool) {
		if k.broken[string(r.Key)] {
			yield(Point{}, errBroken)
			return
		}
		if k.damaged[string(r.Key)] && !yield(Point{}, &DamageError{errors.New("a strange column")}) {
			return
		}
		for _, p := range k.points[string(r.Key)] {
			if p.TimeMS >= minMS && p.TimeMS <= maxMS && !yield(p, nil) {
				return
			}
		}
	}
}

// stored holds the values of batches by series and time.
type stored map[string]map[int64]float64

func (s stored) add(t *testing.T, b importer.Batch) {
	for _, series := range b.Series {
		name := series.Labels.String()
		if s[name] == nil {
			s[name] = map[int64]float64{}
		}
		require.True(t, slices.IsSorted(series.Samples.T), "%s", name)
		for i, at := range series.Samples.T {
			s[name][at] = series.Samples.V[i]
		}
	}
}

func readBatches(t *testing.T, s *Source, after string) (all []importer.Batch) {
	t.Helper()
	for b, err := range s.Batches(context.Background(), after) {
		require.NoError(t, err)
		all = append(all, b)
	}
	return all
}

// textOf returns batches as comparable texts.
func textOf(batches []importer.Batch) []string {
	all := make([]string, len(batches))
	for i, b := range batches {
		for _, series := range b.Series {
			all[i] += fmt.Sprintln(series.Labels, series.Samples.T, series.Samples.V)
		}
		all[i] += fmt.Sprintln(b.Skipped, b.Done, b.Position)
	}
	return all
}

func skipsOf(batches []importer.Batch) map[string]int {
	out := map[string]int{}
	for _, b := range batches {
		for _, s := range b.Skipped {
			out[s.What+": "+s.Why] += s.Samples
		}
	}
	return out
}

func newOptions(k *fakeKeyspace) Options {
	return Options{
		Keyspace: k, WidthMS: widthMS, Mapping: DefaultMapping(), Select: importer.Everything(),
		Now: func() time.Time { return time.UnixMilli(52 * sliceMS) },
	}
}

// randomKeyspace fills a keyspace and returns the expected result.
func randomKeyspace(r *rand.Rand) (*fakeKeyspace, stored) {
	k, want := newFake(), stored{}
	types := []string{"long", "double"}
	for m := range 3 {
		metric := fmt.Sprint("metric.", m)
		for n := range 4 {
			tags := map[string]string{"host": fmt.Sprint("h", n)}
			if n == 3 {
				tags["disk"] = "sda"
			}
			ls := labels.NewBuilder(labels.FromMap(tags))
			ls.Set("__name__", fmt.Sprint("metric_", m))
			name := ls.Labels().String()
			want[name] = map[int64]float64{}
			// Points are at the boundaries of rows, slices and days, and in between.
			for range 60 {
				at := (r.Int64N(12)-1)*sliceMS + (r.Int64N(3)-1)*dayMS + r.Int64N(5) - 2
				if r.IntN(2) == 0 {
					at += r.Int64N(sliceMS)
				}
				if _, ok := want[name][at]; ok {
					continue
				}
				v := r.NormFloat64()
				want[name][at] = v
				k.put(metric, types[r.IntN(2)], tags, Point{TimeMS: at, Value: v})
			}
		}
	}
	return k, want
}

// TestEverythingComesOnce checks that every sample is read once for any bounds, and that each position resumes with the
// rest.
func TestEverythingComesOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 1))
		k, want := randomKeyspace(r)
		s := New(newOptions(k))
		s.pieceSamples, s.o.BatchBytes = 3+r.IntN(40), 1+r.IntN(5000)
		plan, err := s.Plan(context.Background())
		require.NoError(t, err)
		require.EqualValues(t, 12, plan.Series)

		batches := readBatches(t, s, "")
		got, n := stored{}, 0
		for _, b := range batches {
			got.add(t, b)
			for _, series := range b.Series {
				n += series.Samples.Len()
				require.GreaterOrEqual(t, series.Samples.T[0], plan.MinMS)
				require.LessOrEqual(t, series.Samples.T[series.Samples.Len()-1], plan.MaxMS)
			}
		}
		require.Equal(t, want, got, "seed %d", seed)
		all := 0
		for _, series := range want {
			all += len(series)
		}
		require.Equal(t, all, n, "no sample comes twice")
		require.Empty(t, skipsOf(batches))
		texts := textOf(batches)
		require.Equal(t, texts, textOf(readBatches(t, s, "")), "the same each time")
		for range 10 {
			i := r.IntN(len(batches))
			require.Equal(t, texts[i+1:], textOf(readBatches(t, s, batches[i].Position)),
				"seed %d after %s", seed, batches[i].Position)
		}
	}
}

// TestSelections checks that samples are selected by time and by matchers, and that labels are added.
func TestSelections(t *testing.T) {
	t.Parallel()
	k, want := randomKeyspace(rand.New(rand.NewPCG(99, 1)))
	o := newOptions(k)
	o.Select.MinMS, o.Select.MaxMS = sliceMS+5*dayMS+1, 5*sliceMS-1
	o.Select.Matchers = [][]*labels.Matcher{{
		labels.MustNewMatcher(labels.MatchRegexp, "__name__", "metric_[01]"),
		labels.MustNewMatcher(labels.MatchEqual, "disk", ""),
	}}
	o.Select.Add = []labels.Label{{Name: "cluster", Value: "a"}}
	got := stored{}
	for _, b := range readBatches(t, New(o), "") {
		got.add(t, b)
	}
	chosen := stored{}
	for m := range 2 {
		for n := range 3 {
			samples := maps.Clone(want[fmt.Sprintf(`{__name__="metric_%d", host="h%d"}`, m, n)])
			maps.DeleteFunc(samples, func(at int64, _ float64) bool {
				return at < o.Select.MinMS || at > o.Select.MaxMS
			})
			chosen[fmt.Sprintf(`{__name__="metric_%d", cluster="a", host="h%d"}`, m, n)] = samples
		}
	}
	require.Equal(t, chosen, got)
}

// TestWhatIsLeftOut checks that skipped data is reported and counted once, however series are split.
func TestWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	k := newFake()
	tags := map[string]string{"host": "a"}
	for i := range int64(10) {
		k.put("m", "long", tags, Point{TimeMS: i * 1000, Value: float64(i), IsRounded: i > 7})
		k.put("m", "double", tags, Point{TimeMS: i * 1000, Value: float64(i - i%2)})
		k.put("m", "kairos_string", tags, Point{TimeMS: i * 1000})
		k.put("text", "kairos_string", tags, Point{TimeMS: i * dayMS})
	}
	k.damaged[k.put("m", "double", tags, Point{TimeMS: 20_000, Value: 1})] = true
	k.put("z", "long", tags, Point{TimeMS: 1})
	k.lost["z"] = &DamageError{errors.New("a strange key")}
	for _, most := range []int{1000, 30, 3} {
		s := New(newOptions(k))
		s.pieceSamples = most
		plan, err := s.Plan(context.Background())
		require.NoError(t, err)
		require.Equal(t, "3 KairosDB metrics, 2 rows of type kairos_string skipped", plan.Words)
		require.EqualValues(t, 2, plan.Series)
		batches := readBatches(t, s, "")
		got := stored{}
		for _, b := range batches {
			got.add(t, b)
		}
		want := map[int64]float64{20_000: 1}
		for i := range int64(10) {
			want[i*1000] = float64(i)
		}
		require.Equal(t, want, got[`{__name__="m", host="a"}`])
		skipped := skipsOf(batches)
		// A piece that is read again in parts returns the damaged point once per part.
		require.Positive(t, skipped[`m{host="a"}: a strange column`])
		delete(skipped, `m{host="a"}: a strange column`)
		require.Equal(t, map[string]int{
			"points of type kairos_string of metric m: the values are not numbers":    10,
			"points of type kairos_string of metric text: the values are not numbers": 10,
			"index: a strange key": 0,
			`m{host="a"}: integers above 2^53 are rounded to floating-point precision and imported`:              0,
			`m{host="a"}: more than one point has the same timestamp, with different types; the largest is kept`: 5,
		}, skipped, "pieces of %d", most)
	}
}

func TestCollisionsAreRefused(t *testing.T) {
	t.Parallel()
	k := newFake()
	k.put("cpu.usage", "long", map[string]string{"host": "a", "id": "1"}, Point{TimeMS: 1})
	k.put("cpu.usage", "long", map[string]string{"host": "a", "id": "2"}, Point{TimeMS: widthMS + 1})
	k.put("cpu.usage", "double", map[string]string{"host": "a", "id": "2"}, Point{TimeMS: 5})
	k.put("cpu_usage", "long", map[string]string{"host": "b"}, Point{TimeMS: 1})
	k.put("cpu-usage", "long", map[string]string{"host": "b"}, Point{TimeMS: 1})
	o := newOptions(k)
	var err error
	o.Mapping, err = ParseMapping([]byte("drop_tags: [id]\nmetrics: [{name: cpu_usage, to: other}]"))
	require.NoError(t, err)
	s := New(o)
	_, err = s.Plan(context.Background())
	require.ErrorIs(t, err, errCollision)
	require.EqualError(t, err,
		`kairosdb: the mapping merges multiple series into one: cpu.usage{host="a", id="1"} and cpu.usage{host="a", id="2"} would both become {__name__="cpu_usage", host="a"}`)
	require.Equal(t, []Metric{
		{"cpu-usage", "cpu_usage", 1, []Tag{{"host", "host"}}},
		{"cpu.usage", "cpu_usage", 1, []Tag{{"host", "host"}, {"id", ""}}},
		{"cpu_usage", "other", 1, []Tag{{"host", "host"}}},
	}, s.Mappings())
	for b, err := range New(o).Batches(context.Background(), "") {
		require.ErrorIs(t, err, errCollision)
		require.Empty(t, b)
	}

	o.Mapping = DefaultMapping()
	_, err = New(o).Plan(context.Background())
	require.ErrorContains(t, err,
		`cpu-usage{host="b"} and cpu_usage{host="b"} would both become {__name__="cpu_usage", host="b"}`)
	o.Select.Matchers = [][]*labels.Matcher{{labels.MustNewMatcher(labels.MatchEqual, "host", "a")}}
	_, err = New(o).Plan(context.Background())
	require.NoError(t, err, "what isn't wanted doesn't collide")

	k.put("m", "long", map[string]string{"__name__": "x"}, Point{TimeMS: 1})
	o.Select.Matchers = nil
	_, err = New(o).Plan(context.Background())
	require.ErrorIs(t, err, errMapping)
	require.ErrorIs(t, err, errCollision)
	require.ErrorContains(t, err, `m{__name__="x"}: tag "__name__" would become label "__name__"`)
}

func TestErrorsEndTheImport(t *testing.T) {
	t.Parallel()
	k, _ := randomKeyspace(rand.New(rand.NewPCG(7, 1)))
	k.broken[k.put("metric.1", "long", map[string]string{"host": "x"}, Point{TimeMS: 3 * sliceMS})] = true
	s := New(newOptions(k))
	s.o.BatchBytes = 1
	var err error
	n := 0
	for _, err = range s.Batches(context.Background(), "") {
		n++
	}
	require.ErrorIs(t, err, errBroken)
	require.Greater(t, n, 3)

	ctx, cancel := context.WithCancel(context.Background())
	s = New(newOptions(newFake()))
	cancel()
	for _, err := range s.Batches(ctx, "") {
		require.ErrorIs(t, err, context.Canceled)
	}
	for _, text := range []string{"x", `{"slice_end_ms":5}`, `{"step":9}`} {
		for _, err := range s.Batches(context.Background(), text) {
			require.ErrorIs(t, err, errPosition)
		}
	}
	for range New(newOptions(k)).Batches(context.Background(), "") {
		break // TestMain checks that no goroutine keeps running.
	}
}

// TestWhatCameSince checks that a resumed import finds points that KairosDB received since, also in completed slices
// unless they had ended long before they were read.
func TestWhatCameSince(t *testing.T) {
	t.Parallel()
	k := newFake()
	o := newOptions(k)
	now := 10*int64(sliceMS) + 1
	o.Now = func() time.Time { return time.UnixMilli(now) }
	for slice := range int64(10) {
		for _, metric := range []string{"a", "b"} {
			k.put(metric, "long", map[string]string{"host": "x"}, Point{TimeMS: slice*sliceMS + 5})
		}
	}
	batches := readBatches(t, New(o), "")
	require.Len(t, batches, 1)
	require.Len(t, batches[0].Series, 20)
	now += dayMS
	k.put("a", "long", map[string]string{"host": "x"}, Point{TimeMS: 10*sliceMS + 5})
	k.put("a", "long", map[string]string{"host": "w"}, Point{TimeMS: 9*sliceMS + 6})
	again := stored{}
	for _, b := range readBatches(t, New(o), batches[0].Position) {
		again.add(t, b)
	}
	require.Equal(t, stored{
		`{__name__="a", host="w"}`: {9*sliceMS + 6: 0},
		`{__name__="a", host="x"}`: {9*sliceMS + 5: 0, 10*sliceMS + 5: 0},
		`{__name__="b", host="x"}`: {9*sliceMS + 5: 0},
	}, again)
}
