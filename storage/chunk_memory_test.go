package storage

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/query"
)

// rawScans returns the number of scans of raw chunks since the last call.
func (c *scanCounter) rawScans() int { return c.since(engine.Raw) + c.since(engine.RawPages) }

func readSamples(t *testing.T, s *query.SelectedSeries) (list []sample) {
	t.Helper()
	var found chunk.Samples
	require.NoError(t, s.Samples(&found))
	for i, at := range found.T {
		list = append(list, sample{at, found.V[i]})
	}
	return list
}

// TestChunksAreKept reads the same series repeatedly. Their chunks must be read from the engine once, and again only
// after a seal, late samples, a delete, or a drop.
func TestChunksAreKept(t *testing.T) {
	t.Parallel()
	counter := countScans(memory.New())
	ts := &testStore{t: t, opts: DefaultOptions(), now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), memory: counter}
	ts.opts.Now = func() time.Time { return ts.now }
	ts.opts.Partitions, ts.opts.Retention = 1, 20*24*time.Hour
	ts.opts.seams.still = true // Deletes must not be processed in the background while the test moves the clock.
	ts.open()
	t.Cleanup(ts.close)
	noon := ts.now.UnixMilli()
	series := func(i int) labels.Labels {
		return labels.FromStrings(labels.MetricName, "m", "job", fmt.Sprint("j", i))
	}
	// has queries twice, and compares the answers with an answer without cached chunks. want is the expected number of
	// samples.
	has := func(want int) {
		t.Helper()
		got := ts.all("ann")
		n := 0
		for _, list := range got {
			n += len(list)
		}
		require.Equal(t, want, n)
		require.Positive(t, counter.rawScans(), "something was written")
		require.Equal(t, got, ts.all("ann"))
		require.Zero(t, counter.rawScans(), "chunks were read again")
		kept, rows := ts.Querier, ts.rows
		ts.openRows(&settings{}) // The cache of page ids would hide scans.
		ts.openQuerier()
		require.Equal(t, got, ts.all("ann"))
		require.Positive(t, counter.rawScans())
		ts.Querier, ts.rows = kept, rows
	}
	for i := range 20 {
		ts.write("ann", series(i), sample{noon - 5*format.HourMS, 1})
	}
	require.NoError(t, ts.SealAll(t.Context()))
	has(20)
	ts.write("ann", series(3), sample{noon - 5*format.HourMS + 60_000, 2}) // Late.
	require.NoError(t, ts.SealAll(t.Context()))
	has(21)
	ts.write("ann", series(3), sample{noon - 60*format.HourMS, 3}) // In a slot that had no chunks.
	require.NoError(t, ts.SealAll(t.Context()))
	has(22)
	require.NoError(t, ts.Delete(
		t.Context(), "ann", noon-6*format.HourMS, noon, labels.MustNewMatcher(labels.MatchEqual, "job", "j7"),
	))
	require.Len(t, ts.all("ann"), 19, "the delete is about what is kept, too")
	require.NoError(t, ts.CleanTombstones(t.Context(), "ann"))
	has(21)
	ts.passes(ts.now.Add(60 * day))
	counter.rawScans()
	require.Empty(t, ts.all("ann"), "dropped")
}

// TestChunksOfSomeSeriesAreKept reads single series, and then different sets of series that overlap with them. All
// answers must be right, and the chunks of single series must stay cached.
func TestChunksOfSomeSeriesAreKept(t *testing.T) {
	t.Parallel()
	counter := countScans(memory.New())
	ts := &testStore{t: t, opts: DefaultOptions(), now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), memory: counter}
	ts.opts.Now = func() time.Time { return ts.now }
	ts.opts.Partitions = 1
	ts.open()
	t.Cleanup(ts.close)
	at := ts.now.UnixMilli() - 5*format.HourMS
	const n = 128 // twice the max number of series of a scan whose result is cached
	for i := range n {
		ts.write("ann", labels.FromStrings(labels.MetricName, "m", "n", fmt.Sprintf("%03d", i)), sample{at, float64(i)})
	}
	require.NoError(t, ts.SealAll(t.Context()))
	asked := func(pattern string) {
		t.Helper()
		m := labels.MustNewMatcher(labels.MatchRegexp, "n", pattern)
		list, err := ts.Select(
			counted(t.Context()), query.Query{Tenant: "ann", MinT: at, MaxT: at, Matchers: []*labels.Matcher{m}},
		)
		require.NoError(t, err)
		want := 0
		for i := range n {
			if m.Matches(fmt.Sprintf("%03d", i)) {
				want++
			}
		}
		require.Len(t, list, want, pattern)
		for _, s := range list {
			i, err := strconv.Atoi(s.Labels.Get("n"))
			require.NoError(t, err)
			require.Equal(t, []sample{{at, float64(i)}}, readSamples(t, s), "%s", s.Labels)
		}
	}
	for range 3 {
		for i := range n {
			asked(fmt.Sprintf("%03d", i))
		}
		asked("0.*")
		asked(".*[1-4]")
		asked(".*[37]")
	}
	counter.rawScans()
	asked("003")
	require.Zero(t, counter.rawScans())
}

// TestUnreadableChunksArentKept reads unreadable chunks and readable chunks of other series. Only readable chunks may
// be cached.
func TestUnreadableChunksArentKept(t *testing.T) {
	t.Parallel()
	for _, table := range []*engine.Table{engine.Raw, engine.RawPages} {
		ts, eng := openUnreadableStore(t, func(*Options) {})
		at := ts.now.UnixMilli() - format.HourMS
		ts.write("ann", upLabels, sample{at, 1})
		require.NoError(t, ts.SealAll(t.Context()))
		ask := func() (told int) {
			list, err := ts.Select(t.Context(), query.Query{
				Tenant: "ann", MinT: at, MaxT: at, Matchers: []*labels.Matcher{equal(labels.MetricName, "up")},
				Warn: func(error) { told++ },
			})
			require.NoError(t, err)
			require.Len(t, list, 1)
			if samples := readSamples(t, list[0]); told == 0 {
				require.Equal(t, []sample{{at, 1}}, samples)
			}
			return told
		}
		_, err := ts.Select(
			t.Context(),
			query.Query{Tenant: "ann", MinT: at, MaxT: at, Matchers: []*labels.Matcher{equal(labels.MetricName, "up")}},
		)
		require.NoError(t, err) // The labels are cached.
		eng.table.Store(table)
		for range 3 {
			require.NotZero(t, ask(), "%s can't be read", table)
		}
		eng.table.Store(nil)
		require.Zero(t, ask())
		eng.table.Store(table)
		require.Zero(t, ask(), "%s is kept", table)
		eng.table.Store(nil)
	}
}
