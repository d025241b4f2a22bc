package storage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/cache"
	"github.com/cassia-db/cassia/storage/counts"
	"github.com/cassia-db/cassia/storage/ended"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/retention"
)

// countedDays writes and seals days of series, the last of which is today.
func (ts *testStore) countedDays(days int) {
	ts.t.Helper()
	for d := range days {
		ts.writeSeries("ann", 10*d, 100+20*d, time.Hour)
		if d < days-1 {
			ts.now = ts.now.Add(day)
		}
	}
	require.NoError(ts.t, ts.SealAll(ts.t.Context()))
}

func (ts *testStore) uncounted() []ended.OverWindow {
	ts.t.Helper()
	list, err := oldestFirst(ts.Counts().Uncounted(ts.t.Context(), func() {}))
	require.NoError(ts.t, err)
	return list
}

// TestCountsAreStoredWholeOrNot fails each write and each scan of counting, and ends it between any two pieces: what
// stands then is right.
func TestCountsAreStoredWholeOrNot(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"fail", "lose", "scan", "cancel"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			var left countdown
			ts, _ := openFaultyStore(t, func(op faultengine.Op) faultengine.Action {
				if op.Kind == map[bool]faultengine.Kind{true: faultengine.Scan, false: faultengine.Write}[kind == "scan"] &&
					left.hit() {
					if kind == "lose" {
						return faultengine.Lose(nil)
					}
					return faultengine.FailAfter(1, nil)
				}
				return faultengine.Pass()
			}, func(o *Options) { o.Retention = 0 })
			ts.countedDays(3)
			failed, whole := 0, false
			for at := 1; !whole; at++ {
				ctx, cancel := context.WithCancel(t.Context())
				n := 0
				between := func() {
					if n++; kind == "cancel" && n == at {
						cancel()
					}
				}
				if kind != "cancel" {
					left.Store(int64(at))
				}
				list, err := oldestFirst(ts.Counts().Uncounted(ctx, func() {}))
				for i := 0; i < len(list) && err == nil; i++ {
					_, err = ts.Counts().CountWindow(ctx, list[i], between)
				}
				whole = err == nil && (left.Load() > 0 || kind == "cancel" && n < at)
				cancel()
				left.Store(0)
				ts.requireCounts("ann", rand.New(rand.NewPCG(1, uint64(at))))
				ts.check()
				if err != nil {
					failed++
				}
				if !whole { // Begun anew from the start.
					ts.forgetCounts()
				}
			}
			require.Greater(t, failed, map[string]int{"fail": 1, "lose": 1, "scan": 20, "cancel": 10}[kind])
			require.Empty(t, ts.uncounted())
		})
	}
}

// forgetCounts removes all rows of counts, and what the process remembers of them.
func (ts *testStore) forgetCounts() {
	ts.t.Helper()
	windows, err := ts.windowsOf(ts.t.Context(), "ann", format.FirstWindow(0), format.LastWindow(0))
	require.NoError(ts.t, err)
	for _, w := range windows {
		require.NoError(ts.t, ts.eng.Drop(ts.t.Context(), engine.Catalog, format.CountsPartition(w, "ann")))
	}
	ts.known, ts.cache = ended.Memory{}, cache.New(1<<20)
	ts.openQuerier()
}

// TestWindowsThatChangeAreNotCounted has samples come late, or the window be dropped, while its series are counted.
func TestWindowsThatChangeAreNotCounted(t *testing.T) {
	t.Parallel()
	for _, dropped := range []bool{false, true} {
		t.Run(fmt.Sprint("dropped=", dropped), func(t *testing.T) {
			t.Parallel()
			ts := openTestStore(t, func(o *Options) { o.Retention = 3 * day })
			ts.countedDays(3)
			u, once := ts.uncounted()[0], false
			n, err := ts.Counts().CountWindow(t.Context(), u, func() {
				switch {
				case once:
				case dropped:
					ts.passes(ts.now.Add(12 * day))
				default:
					ts.writeSeries("ann", 500, 503, 2*day+time.Hour)
					require.NoError(t, ts.SealAll(t.Context()))
				}
				once = true
			})
			require.NoError(t, err)
			require.Zero(t, n)
			require.True(t, once)
			require.Empty(t, ts.countKeys("ann", u.Window))
			ts.requireCounts("ann", rand.New(rand.NewPCG(1, 1)))
			ts.countWindows()
			ts.requireCounts("ann", rand.New(rand.NewPCG(1, 2)))
		})
	}
}

// TestCountsGoWithTheirWindow drops counts with what they are about.
func TestCountsGoWithTheirWindow(t *testing.T) {
	t.Parallel()
	for _, tenants := range []int{1, 2} {
		ts := openTestStore(t, func(o *Options) {
			o.Retention, o.TenantRetention = 3*day, map[string]retention.Durations{
				"long": {Raw: 90 * day, FiveMinutes: 90 * day, OneHour: 90 * day},
			}
		})
		for d := range 3 {
			ts.writeSeries("ann", 10*d, 100+20*d, time.Hour)
			if tenants == 2 {
				ts.writeSeries("long", 0, 5, time.Hour)
			}
			ts.now = ts.now.Add(day)
		}
		require.NoError(t, ts.SealAll(t.Context()))
		list := ts.uncounted()
		require.Equal(t, 3*tenants, ts.countWindows())
		require.NotEmpty(t, ts.countKeys("ann", list[0].Window))
		ts.passes(ts.now.Add(12 * day))
		for _, u := range list {
			require.Equal(t, u.Tenant == "ann", len(ts.countKeys(u.Tenant, u.Window)) == 0)
		}
	}
}

// TestCutShortImportsAreNotCounted leaves windows to a later time in which an import failed: it may go on writing under
// the mark that it has.
func TestCutShortImportsAreNotCounted(t *testing.T) {
	t.Parallel()
	waiting := 0
	for at := 1; ; at++ {
		f, failed := openFailingImport(t, faultengine.Fail, at)
		f.now = f.now.Add(2 * day)
		list := f.uncounted()
		for _, u := range list {
			missing, err := f.listUnrolledExcept(t.Context(), "t", u.Window, nil)
			require.NoError(t, err)
			require.Empty(t, missing)
		}
		n := len(list)
		f.countWindows()
		_, err := f.Import(t.Context(), "t", f.list())
		require.NoError(t, err)
		_, problem, err := f.wrongCounts(t.Context(), "t", rand.New(rand.NewPCG(1, uint64(at))))
		require.NoError(t, err)
		require.Empty(t, problem)
		require.Positive(t, f.countWindows(), "it has other marks")
		require.Positive(t, f.requireCounts("t", rand.New(rand.NewPCG(2, uint64(at)))))
		if !failed {
			break
		}
		if n < 2 {
			waiting++
		}
	}
	require.Positive(t, waiting)
}

// TestDamagedCountsAreNamedAndCountedAnew changes each row of counts: labels answer, the damage is named once, and
// Check finds it. Counting anew mends it.
func TestDamagedCountsAreNamedAndCountedAnew(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) { o.Retention = 0 })
	ts.countedDays(4)
	ts.countWindows()
	window := ts.period.RawWindowAt(ts.now.Add(-2 * day).UnixMilli())
	keys := ts.countKeys("ann", window)
	require.Len(t, keys, 3)
	rng := rand.New(rand.NewPCG(1, 4))
	for i, key := range keys {
		var value []byte
		for row, err := range ts.eng.Scan(t.Context(), engine.Range{Table: engine.Catalog, Partition: format.CountsPartition(window, "ann"), From: engine.Key{engine.Text(key)}, To: engine.Key{engine.Text(key)}}) {
			require.NoError(t, err)
			value = append(value, row.Value...)
		}
		value[rng.IntN(len(value))] ^= 1 << rng.IntN(8)
		require.NoError(
			t,
			ts.eng.Write(
				t.Context(),
				[]engine.Batch{
					{
						Table:     engine.Catalog,
						Partition: format.CountsPartition(window, "ann"),
						Mutations: []engine.Mutation{{
							Clustering: engine.Key{
								engine.Text(key),
							}, Timestamp: ts.period.WindowEnd(window)*1000 - 1, Value: value,
						}},
					},
				},
			),
		)
		var problems []string
		_, err := ts.Check(t.Context(), func(problem string) { problems = append(problems, problem) })
		require.NoError(t, err)
		require.Len(t, problems, 1)
		require.Contains(t, problems[0], key)
		ts.closeUnchecked()
		ts.open()
		for range 3 {
			ts.requireCounts("ann", rng)
			_, err := ts.Counts().CountSeries(t.Context(), counts.SeriesQuery{Tenant: "ann", Window: window, Limit: 1})
			require.NoError(t, err)
		}
		require.Equal(t, 1, ts.Damaged(), "row %d", i)
		list := ts.uncounted()
		require.Len(t, list, 1)
		require.True(t, list[0].Again)
		require.Equal(t, 1, ts.countWindows())
		require.Empty(t, ts.uncounted())
		ts.check()
	}
	ts.requireCounts("ann", rng)
}

// TestWrongCountsAreFound has Check compare counts with labels.
func TestWrongCountsAreFound(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) { o.Retention = 0 })
	ts.countedDays(3)
	ts.countWindows()
	window := ts.period.RawWindowAt(ts.now.Add(-day).UnixMilli())
	u, err := ts.Counts().CountedWindow(t.Context(), "ann", window)
	require.NoError(t, err)
	require.NotNil(t, u.Before)
	write := func(key engine.Key, value []byte) {
		require.NoError(
			t,
			ts.eng.Write(
				t.Context(),
				[]engine.Batch{
					{
						Table:     engine.Catalog,
						Partition: format.CountsPartition(window, "ann"),
						Mutations: []engine.Mutation{{
							Clustering: key, Timestamp: ts.period.WindowEnd(window)*1000 - 1, Value: value,
						}},
					},
				},
			),
		)
	}
	problems := 0
	found := func() int {
		problems = 0
		_, err := ts.Check(t.Context(), func(string) { problems++ })
		require.NoError(t, err)
		return problems
	}
	require.Zero(t, found())
	write(
		format.CountsChangeKey(u.Version, u.Before.State),
		format.AppendCountsChange(nil, format.CountsChange{Added: 1}),
	)
	require.Equal(t, 1, found())
	rows, err := format.EncodeCounts(&format.Counts{CountsHead: format.CountsHead{Series: 5}})
	require.NoError(t, err)
	write(format.CountsKey(u.Version, 0), rows[0])
	require.Equal(t, 2, found())
	write(format.CountsKey(u.Version, 2), rows[1])
	require.Equal(t, 3, found())
	write(engine.Key{engine.Text("odd")}, rows[1])
	require.Equal(t, 1, found(), "first what can be read")
	ts.forgetCounts()
	require.Zero(t, found())
}

// TestCountsWhereRowsVanish keeps counts for as long as all labels surely stand.
func TestCountsWhereRowsVanish(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) { o.Retention = 60 * day })
	ts.expireRows()
	ts.countedDays(10)
	list := ts.uncounted()
	require.Len(t, list, 7)
	first := list[0]
	require.Nil(t, first.Before, "labels of the one before may have vanished")
	require.Equal(t, 7, ts.countWindows())
	require.Zero(t, ts.countWindows())
	ts.requireCounts("ann", rand.New(rand.NewPCG(1, 1)))
	require.Equal(
		t, first.EndMS/1000+int64((7*day-time.Hour)/time.Second), ts.Counts().CountsExpiry(first.Window).Unix(),
	)
	ts.now = ts.now.Add(2 * day)
	require.Nil(t, ts.Counts().StoredCounts(t.Context(), first.Tenant, first.Window, first.Version))
	require.NotNil(t, ts.Counts().StoredCounts(t.Context(), list[6].Tenant, list[6].Window, list[6].Version))
	ts.requireCounts("ann", rand.New(rand.NewPCG(1, 2)))
}

// TestTwoProcessesCountTheSame has two processes over one engine count the same windows at once.
func TestTwoProcessesCountTheSame(t *testing.T) {
	t.Parallel()
	ts := openTestStore(t, func(o *Options) { o.Retention = 0 })
	ts.closeUnchecked()
	ts.memory = unclosed{memory.New()}
	ts.open()
	ts.countedDays(3)
	other := openReady(t, ts.eng, ts.opts)
	defer func() { require.NoError(t, other.Close()) }()
	lists := [][]ended.OverWindow{ts.uncounted()}
	second, err := oldestFirst(other.Counts().Uncounted(t.Context(), func() {}))
	require.NoError(t, err)
	lists = append(lists, second)
	require.Equal(t, lists[0], lists[1])
	for i, u := range lists[0] {
		_, err := ts.Counts().CountWindow(t.Context(), u, func() {
			_, err := other.Counts().CountWindow(t.Context(), lists[1][i], func() {})
			require.NoError(t, err)
		})
		require.NoError(t, err)
	}
	require.Empty(t, ts.uncounted())
	rest, err := oldestFirst(other.Counts().Uncounted(t.Context(), func() {}))
	require.NoError(t, err)
	require.Empty(t, rest)
	ts.requireCounts("ann", rand.New(rand.NewPCG(1, 1)))
	_, problem, err := other.wrongCounts(t.Context(), "ann", rand.New(rand.NewPCG(1, 2)))
	require.NoError(t, err)
	require.Empty(t, problem)
}
