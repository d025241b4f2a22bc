package storage

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/pebble"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/soak"
)

// damagedStore is a small store of two tenants with all kinds of data: sealed days in several files, late samples,
// rollups, and staged samples. Its process was stopped or killed.
type damagedStore struct {
	fs     *pebble.CrashableFS
	now    time.Time
	killed bool
	look   bool                           // true if the store is opened ReadOnly
	want   map[string]map[string][]sample // samples by tenant and series
	shown  map[string][]string            // results of the method others, by tenant
}

const damagedDir = "db"

func (d *damagedStore) options() Options {
	o := DefaultOptions()
	o.ReadOnly = d.look
	o.Now = func() time.Time { return d.now }
	o.Partitions = 2
	return o
}

func (d *damagedStore) open(fs *pebble.CrashableFS) (*pebble.Engine, *Store, error) {
	o := pebble.DefaultOptions()
	o.FS, o.CacheBytes, o.MemTableBytes, o.BlockBytes, o.ReserveBytes, o.ReadOnly = fs, 1<<20, 1<<20, 1<<10, 0, d.look
	eng, err := pebble.Open(damagedDir, o)
	if err != nil {
		return nil, nil, err
	}
	s, err := Open(context.Background(), eng, d.options())
	if err == nil {
		if err = s.WaitReady(context.Background()); err == nil {
			return eng, s, nil
		}
		_ = s.Close()
	}
	return nil, nil, fmt.Errorf("%w (%v)", err, eng.Close())
}

func newDamagedStore(t *testing.T, killed bool) *damagedStore {
	d := &damagedStore{
		fs: pebble.NewCrashableFS(), now: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC), killed: killed,
		want: map[string]map[string][]sample{}, shown: map[string][]string{},
	}
	eng, s, err := d.open(d.fs)
	require.NoError(t, err)
	ts := &testStore{Store: s, t: t, eng: eng}
	rng := rand.New(rand.NewPCG(3, 4))
	write := func(tenant string, from, to time.Duration, step time.Duration) {
		for i := range 8 {
			ls := labels.FromStrings(
				labels.MetricName, fmt.Sprintf("metric_%d", i%3), "instance", fmt.Sprintf("host-%d", i),
			)
			var list []sample
			for at := from; at < to; at += step {
				list = append(list, sample{d.now.Add(-at).UnixMilli(), rng.Float64()})
			}
			slices.Reverse(list)
			ts.write(tenant, ls, list...)
			if d.want[tenant] == nil {
				d.want[tenant] = map[string][]sample{}
			}
			all := append(d.want[tenant][ls.String()], list...)
			sortSamples(all)
			d.want[tenant][ls.String()] = all
			b := ts.NewBatch(tenant)
			ref, err := b.Define(nil, ls)
			require.NoError(t, err)
			trace := labels.FromStrings("trace_id", fmt.Sprintf("%016x", rng.Uint64()))
			require.NoError(t, b.Exemplar(ref, exemplar.Exemplar{Labels: trace, Value: rng.Float64(), Ts: list[0].t}))
			require.NoError(t, b.Commit(t.Context()))
			ts.QueueMetadata(
				tenant, []byte(ls.Get(labels.MetricName)), "gauge", nil, []byte(strings.Repeat("what it tells ", 20)),
			)
		}
		s.metadata.write()
	}
	write("a", 26*time.Hour, 60*time.Hour, 5*time.Minute)
	write("b", 26*time.Hour, 40*time.Hour, 5*time.Minute)
	require.NoError(t, s.SealAll(t.Context()))
	require.NoError(t, eng.CompactAll(t.Context()))
	write("a", 5*time.Hour, 26*time.Hour, 5*time.Minute)
	write("a", 30*time.Hour+time.Second, 31*time.Hour, 5*time.Minute) // late
	require.NoError(t, s.SealAll(t.Context()))
	counted, err := s.countWindows(t.Context())
	require.NoError(t, err)
	require.Positive(t, counted)
	if !killed { // When Pebble is opened, it moves the contents of its log to a sorted table.
		require.NoError(t, s.Close())
		require.NoError(t, eng.Close())
		eng, s, err = d.open(d.fs)
		require.NoError(t, err)
		ts.Store, ts.eng = s, eng
	}
	write("b", time.Minute, 3*time.Hour, time.Minute)
	if killed {
		d.waitNoted(t)
		whole := d.fs.Crash(0, rand.New(rand.NewPCG(1, 1)))
		require.NoError(t, s.Close())
		require.NoError(t, eng.Close())
		d.fs = whole
		return d
	}
	require.NoError(t, s.Close())
	require.NoError(t, eng.Close())
	return d
}

// waitNoted waits until the engine has recorded the length of its log, which it does once per second.
func (d *damagedStore) waitNoted(t *testing.T) {
	names, err := d.fs.List(damagedDir)
	require.NoError(t, err)
	slices.Sort(names)
	log := ""
	for _, name := range names {
		if strings.HasSuffix(name, ".log") {
			log = name
		}
	}
	info, err := d.fs.Stat(damagedDir + "/" + log)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		f, err := d.fs.Open(damagedDir + "/SYNCED")
		if err != nil {
			return false
		}
		defer f.Close()
		text, err := io.ReadAll(f)
		return err == nil && strings.Contains(string(text), fmt.Sprintf(`"name":%q,"bytes":%d`, log, info.Size()))
	}, time.Minute, 10*time.Millisecond)
}

// answers reads all samples of a tenant. told contains the texts of the warnings.
func (d *damagedStore) answers(s *Store, tenant string) (got map[string][]sample, told []string, err error) {
	found, err := s.Select(context.Background(), query.Query{
		Tenant: tenant, MinT: -format.MaxTime, MaxT: format.MaxTime,
		Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, ".+")},
		Warn:     func(err error) { told = append(told, err.Error()) },
	})
	if err != nil {
		return nil, nil, err
	}
	got = map[string][]sample{}
	for _, series := range found {
		var samples chunk.Samples
		if err := series.Samples(&samples); err != nil {
			return nil, told, err
		}
		for i, at := range samples.T {
			got[series.Labels.String()] = append(got[series.Labels.String()], sample{at, samples.V[i]})
		}
	}
	return got, told, nil
}

// TestDamageAtRandomPlaces changes single bytes at random places of a store's files. Each time, either the store opens,
// and every answer is right or names the missing samples, or it fails to open with a one-line error that names a
// remedy. Check and Examine must detect the damage. A ReadOnly store must behave in the same way.
func TestDamageAtRandomPlaces(t *testing.T) {
	t.Parallel()
	seed, places := soak.Seed(t), soak.Times(t, 200)
	if testing.Short() {
		places = soak.Fewer(places / 10)
	}
	stores := []*damagedStore{newDamagedStore(t, false), newDamagedStore(t, true)}
	for _, d := range stores {
		eng, s, err := d.open(d.fs.Crash(0, rand.New(rand.NewPCG(1, 1))))
		require.NoError(t, err)
		for tenant, want := range d.want {
			got, told, err := d.answers(s, tenant)
			require.NoError(t, err)
			require.Empty(t, told)
			require.Equal(t, want, got)
			d.shown[tenant], told, err = d.others(s, tenant)
			require.NoError(t, err)
			require.Empty(t, told)
			require.NotEmpty(t, d.shown[tenant])
		}
		require.NoError(t, s.Close())
		require.NoError(t, eng.Close())
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	outcomes := map[string]int{}
	for i := range places {
		d := stores[i%len(stores)]
		fs := d.fs.Crash(0, rng)
		name, at, size := turnByte(t, fs, rng)
		about := fmt.Sprintf("killed %v, byte %d of %s, which has %d", d.killed, at, name, size)
		kind := name[strings.LastIndexAny(name, "-.")+1:]
		if !strings.Contains(name, ".") {
			kind, _, _ = strings.Cut(name, "-")
		}
		looked := *d
		looked.look = true
		outcome := looked.outcome(t, fs, "looked at, "+about)
		if i%4 < 2 { // A start detects the same damage as ReadOnly stores.
			require.Equal(t, d.outcome(t, fs, about), outcome, about)
		}
		outcomes[kind+": "+outcome]++
	}
	for _, what := range slices.Sorted(maps.Keys(outcomes)) {
		t.Logf("%4d %s", outcomes[what], what)
	}
}

// turnByte changes bits of a byte in one of the files. It usually chooses a sorted table, where each byte has the same
// probability.
func turnByte(t *testing.T, fs *pebble.CrashableFS, rng *rand.Rand) (name string, at, size int64) {
	names, err := fs.List(damagedDir)
	require.NoError(t, err)
	slices.Sort(names)
	current := slices.MaxFunc(
		slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.HasPrefix(name, "MANIFEST-") }),
		strings.Compare,
	)
	// Damage in a manifest before the current one has no effect.
	names = slices.DeleteFunc(names, func(name string) bool {
		return strings.HasPrefix(name, "MANIFEST-") && name != current
	})
	sizes, tables := map[string]int64{}, int64(0)
	for _, name := range names {
		info, err := fs.Stat(damagedDir + "/" + name)
		require.NoError(t, err)
		if sizes[name] = info.Size(); strings.HasSuffix(name, ".sst") {
			tables += info.Size()
		}
	}
	if rng.IntN(5) < 3 {
		left := rng.Int64N(tables)
		for _, n := range names {
			if name = n; strings.HasSuffix(n, ".sst") {
				if left -= sizes[n]; left < 0 {
					break
				}
			}
		}
	} else {
		for name = names[rng.IntN(len(names))]; sizes[name] == 0; {
			name = names[rng.IntN(len(names))]
		}
	}
	size = sizes[name]
	f, err := fs.OpenReadWrite(damagedDir+"/"+name, "test")
	require.NoError(t, err)
	at = rng.Int64N(size)
	b := make([]byte, 1)
	_, err = f.ReadAt(b, at)
	require.NoError(t, err)
	b[0] ^= byte(1 + rng.IntN(255))
	_, err = f.WriteAt(b, at)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
	return name, at, size
}

// outcome opens a damaged store, checks its answers, and returns the kind of the result.
func (d *damagedStore) outcome(t *testing.T, fs *pebble.CrashableFS, about string) string {
	eng, s, err := d.open(fs)
	if err != nil {
		requireHelp(t, err, about)
		return "refused"
	}
	defer func() {
		require.NoError(t, s.Close(), about)
		require.NoError(t, eng.Close(), about)
	}()
	what := "right"
	for tenant, want := range d.want {
		got, told, err := d.answers(s, tenant)
		if err != nil {
			requireHelp(t, err, about)
			what = "an answer refused"
			continue
		}
		if what == "right" && len(told) > 0 {
			what = "named"
		}
		requireNamed(t, want, got, told, about)
		shown, told, err := d.others(s, tenant)
		if err != nil {
			requireHelp(t, err, about)
		} else if len(told) == 0 {
			require.Equal(t, d.shown[tenant], shown, about)
		}
	}
	var problems []string
	_, err = s.Check(t.Context(), func(problem string) { problems = append(problems, problem) })
	require.NoError(t, err, about)
	require.NotEmpty(t, problems, about)
	for _, problem := range problems {
		require.NotContains(t, problem, "\n", about)
		require.Regexp(t, namesPlace, problem, about)
	}
	unreadable := 0
	_, _, err = eng.VerifyFiles(t.Context(), func(error) { unreadable++ })
	require.NoError(t, err, about)
	require.Positive(t, unreadable, about)
	return what
}

// namesPlace matches problems reported by Check that name the location of the damage.
var namesPlace = regexp.MustCompile(`table|metric|window|slot|^file `)

// requireHelp requires an error to consist of one line that names a remedy.
func requireHelp(t *testing.T, err error, about string) {
	require.Regexp(t, `cassia (restore|check)`, err.Error(), about)
	require.NotContains(t, err.Error(), "\n", about)
}

// requireNamed requires a warning for every missing sample. The warning must name the time of the sample. If it names a
// metric, it must be the metric of the sample.
func requireNamed(t *testing.T, want, got map[string][]sample, told []string, about string) {
	warnings := make([]namedGap, len(told))
	for i, text := range told {
		warnings[i] = namedGapOf(text)
	}
	for series, list := range want {
		wanted, have := map[sample]bool{}, map[sample]bool{}
		for _, x := range list {
			wanted[x] = true
		}
		for _, x := range got[series] {
			if have[x] = true; !wanted[x] {
				require.Fail(t, "a sample that nobody wrote", "%s: %s %v", about, series, x)
			}
		}
		for _, x := range list {
			if !have[x] && !slices.ContainsFunc(warnings, func(g namedGap) bool { return g.names(series, x.t) }) {
				require.Fail(
					t, "a sample is missing without a word", "%s: %s at %d, told was only %q", about, series, x.t, told,
				)
			}
		}
	}
	for series := range got {
		require.Contains(t, want, series, about)
	}
}

// namedGap is a range of missing samples that a warning names.
type namedGap struct {
	metric   string // in the text of a series; "": any
	from, to time.Time
}

func namedGapOf(warning string) (g namedGap) {
	if _, metric, ok := strings.Cut(warning, `metric "`); ok {
		metric, _, _ = strings.Cut(metric, `"`)
		g.metric = `__name__="` + metric + `"`
	}
	if _, span, ok := strings.Cut(warning, ", from "); ok {
		var from, to string
		if n, _ := fmt.Sscanf(span, "%s to %s", &from, &to); n == 2 {
			g.from, _ = time.Parse(time.RFC3339, from)
			g.to, _ = time.Parse(time.RFC3339, strings.TrimRight(to, ":,"))
		}
	}
	return g
}

func (g *namedGap) names(series string, at int64) bool {
	return strings.Contains(series, g.metric) &&
		(g.from.IsZero() || g.to.IsZero() || g.from.UnixMilli() < at && at <= g.to.UnixMilli())
}

// others reads the other data that queries return: 5m and 1h buckets, the values of a label, exemplars, and metadata.
func (d *damagedStore) others(s *Store, tenant string) (shown []string, told []string, err error) {
	warn := func(err error) { told = append(told, err.Error()) }
	ctx := damage.WithWarnings(context.Background(), warn)
	q := query.Query{
		Tenant: tenant, MinT: -format.MaxTime, MaxT: format.MaxTime, Columns: rollup.AllColumns, Sorted: true,
		Warn:     warn,
		Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, ".+")},
	}
	for _, q.Resolution = range rollup.Resolutions {
		found, err := s.Select(ctx, q)
		if err != nil {
			return nil, told, err
		}
		var buf query.BucketBuffers
		for _, series := range found {
			var b rollup.Buckets
			if err := series.Buckets(&b, &buf); err != nil {
				return nil, told, err
			}
			for i, end := range b.End {
				shown = append(shown, fmt.Sprintf("%s at %d: %v, %v", series.Labels, end, b.Count[i], b.Max[i]))
			}
		}
	}
	exemplars, err := s.Exemplars(ctx, tenant, -format.MaxTime, format.MaxTime, q.Matchers)
	if err != nil {
		return nil, told, err
	}
	for _, e := range exemplars {
		shown = append(shown, fmt.Sprintf("%s %v", e.SeriesLabels, e.Exemplars))
	}
	metadata, err := s.Metadata(ctx, tenant, "", 0)
	if err != nil {
		return nil, told, err
	}
	for _, name := range slices.Sorted(maps.Keys(metadata)) {
		shown = append(shown, fmt.Sprintf("%s %v", name, metadata[name]))
	}
	q.Matchers, q.Resolution = nil, rollup.FiveMinutes
	values, err := s.LabelValues(ctx, "instance", q)
	return append(shown, values...), told, err
}
