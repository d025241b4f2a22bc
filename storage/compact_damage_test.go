package storage

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/ended"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// longRow is a long chunk as the engine has it.
type longRow struct {
	pagedPartition

	key   engine.Key
	value []byte
}

// firstLong returns the first long chunk of a metric at a resolution.
func (ts *testStore) firstLong(res rollup.Resolution, metric string) *longRow {
	ts.t.Helper()
	chunks := engine.Key{engine.Int(format.KindChunk)}
	for _, p := range ts.pagedPartitions("default") {
		if p.res != res || p.key[3].Text != metric {
			continue
		}
		for row, err := range ts.eng.Scan(context.Background(), engine.Range{Table: format.TableOf(res), Partition: p.key, From: chunks, To: chunks}) {
			require.NoError(ts.t, err)
			if rollup.IsLong(row.Value) {
				return &longRow{p, row.Clustering.Clone(), bytes.Clone(row.Value)}
			}
		}
	}
	require.Fail(ts.t, "no long chunk")
	return nil
}

// putLong has another value stand in the place of a long chunk.
func (ts *testStore) putLong(l *longRow, value []byte) {
	ts.t.Helper()
	require.NoError(ts.t, ts.eng.Write(context.Background(), []engine.Batch{{Table: format.TableOf(l.res), Partition: l.partition(), Mutations: []engine.Mutation{
		{Op: engine.Clear, Clustering: l.key, To: l.key}, {Clustering: l.key, Timestamp: 1, Value: value},
	}}}))
}

func (l *longRow) partition() engine.Key { return l.pagedPartition.key }

// warned asks for all at a resolution, and returns the warnings.
func (ts *testStore) warned(res rollup.Resolution) (map[string]string, []string) {
	ts.t.Helper()
	var told []string
	q := wholeQuery("default", res)
	q.Warn = func(err error) { told = append(told, err.Error()) }
	a, err := answerTo(ts.t.Context(), ts.Store, q)
	require.NoError(ts.t, err)
	return a, told
}

// TestDamagedLongChunks damages a long chunk at some bytes: a query names it, other series answer, and so does check; a
// compaction after late samples loses nothing. Once it is mended all is as before.
func TestDamagedLongChunks(t *testing.T) {
	t.Parallel()
	for _, res := range []rollup.Resolution{rollup.FiveMinutes, rollup.OneHour} {
		m := newCompactModel(t, 6, rowsOnly)
		m.compacts("first")
		whole, told := m.warned(res)
		require.Empty(t, told)
		l := m.firstLong(res, "up")
		damaged := [][]byte{l.value[:len(l.value)/2], {3}, {}, []byte("no chunk")}
		for _, at := range []int{0, 1, len(l.value) / 3, len(l.value) / 2, len(l.value) - 1} {
			bad := bytes.Clone(l.value)
			bad[at] ^= 0x11
			damaged = append(damaged, bad)
		}
		for i, bad := range damaged {
			about := fmt.Sprint(res, " ", i)
			m.putLong(l, bad)
			m.again()
			got, told := m.warned(res)
			require.NotEmpty(t, told, about)
			for _, text := range told {
				require.Contains(t, text, `"up"`, about)
				require.NotContains(t, text, "\n", about)
			}
			differ := 0
			for name, want := range whole {
				if got[name] != want {
					differ++
					require.Contains(t, name, `"up"`, about)
				}
			}
			require.LessOrEqual(t, differ, 1, about)
			require.NotEmpty(t, m.problems(), about)

			m.some("0123", float64(10+i), overAgo-30*time.Hour+time.Duration(1+i)*time.Second)
			sealed := m.SealAll(t.Context())
			stats, err := m.compactAll(t.Context(), func() {})
			t.Log(about, ": sealing: ", sealed, "; compacting: ", stats, err)
			m.putLong(l, l.value)
			m.again()
			require.NoError(t, m.SealAll(t.Context()))
			m.compacts(about)
			whole, told = m.warned(res)
			require.Empty(t, told, about)
			m.compare(about)
			l = m.firstLong(res, "up")
		}
	}
}

// TestLateSamplesBesideADamagedLongChunk seals samples that came late into a day whose long chunk can't be read. All
// are sealed, rollups lose nothing else, and Check, reads and deletes go on. Once it is mended all is as it was, and
// what came late beside it.
func TestLateSamplesBesideADamagedLongChunk(t *testing.T) {
	t.Parallel()
	for _, res := range []rollup.Resolution{rollup.FiveMinutes, rollup.OneHour} {
		for name, damage := range map[string]func(value []byte) []byte{
			"its head": func(value []byte) []byte { return value[:len(value)/2] },
			"its chunk": func(value []byte) []byte {
				value[len(value)-1] ^= 1
				return value
			},
		} {
			t.Run(fmt.Sprint(res, " ", name), func(t *testing.T) {
				t.Parallel()
				lateBesideALongChunk(t, res, damage)
			})
		}
	}
}

func lateBesideALongChunk(t *testing.T, res rollup.Resolution, damage func(value []byte) []byte) {
	m := &unreadModel{deleteModel: newCompactModel(t, 6, rowsOnly), res: res}
	m.compacts("first")
	l := m.firstLong(res, "up")
	interval, isLong := format.LongStart(l.key[2].Int)
	require.True(t, isLong)
	day := time.UnixMilli(interval).UTC().Format(time.RFC3339)
	m.putLong(l, damage(bytes.Clone(l.value)))
	m.series = m.labels[slices.IndexFunc(m.labels, func(ls labels.Labels) bool { return format.SeriesIDOf(ls).String() == l.key[1].Text })]
	m.again()
	m.rawAre("damaged")
	late := m.now.UnixMilli() - interval - 12*time.Hour.Milliseconds()
	m.some("0123", 5, time.Duration(late)*time.Millisecond)
	m.some("0123", 6, time.Duration(late)*time.Millisecond-72*time.Hour)
	m.seals()
	damaged := func(of rollup.Resolution, series string) bool { return of == res && series == m.series.String() }
	m.rawAre("sealed")
	m.bucketsAre("sealed", damaged)
	m.isNamed("sealed", true)
	require.Contains(t, strings.Join(m.problems(), "\n"), day)

	stats, err := m.compactAll(t.Context(), func() {})
	require.NoError(t, err)
	require.Positive(t, stats.Left)
	m.bucketsAre("compacted", damaged)
	m.deleteOver()
	require.NoError(t, m.WorkOffDeletes(t.Context(), "default"))
	require.NoError(t, m.CleanTombstones(t.Context(), "default"))
	require.Zero(t, m.openDeletes())
	m.bucketsAre("cleaned", damaged)
	m.isNamed("cleaned", true)

	m.putLong(l, l.value)
	m.again()
	m.compare("mended")
	m.compacts("mended")
}

// again closes the store and opens it, damaged or not.
func (m *deleteModel) again() {
	m.t.Helper()
	require.NoError(m.t, m.Store.Close())
	m.Store = openReady(m.t, m.testStore.eng, m.testStore.opts)
}

// TestCompactedNoteIsDamaged removes or damages the note of which windows are compacted: they are looked through again,
// and stay as they are.
func TestCompactedNoteIsDamaged(t *testing.T) {
	t.Parallel()
	m := newCompactModel(t, 6, nil)
	m.compacts("first")
	tenant := engine.Key{engine.Text("default")}
	for _, value := range []string{"", "no JSON", `{"windows":7}`, `{"windows":{"1":"x"}}`, `{}`, `null`} {
		_, before, err := m.readCompacted(t.Context(), "default")
		require.NoError(t, err)
		ok, _, err := m.testStore.eng.CompareAndSet(t.Context(), engine.Store, compactedPartition, tenant, before, []byte(value))
		require.NoError(t, err)
		require.True(t, ok)
		m.reopen()
		list, err := oldestFirst(m.Compactable(t.Context(), func() {}))
		require.NoError(t, err)
		require.NotEmpty(t, list, value)
		long := m.longChunks("default")
		require.Zero(t, m.compacts(value), value)
		require.Equal(t, long, m.longChunks("default"))
		list, err = oldestFirst(m.Compactable(t.Context(), func() {}))
		require.NoError(t, err)
		require.Empty(t, list, value)
	}
}

// TestWindowsAreCompactedAgain lists windows again whose marks change, and no others.
func TestWindowsAreCompactedAgain(t *testing.T) {
	t.Parallel()
	m := newCompactModel(t, 6, nil)
	m.compacts("first")
	m.some("1", 7, overAgo+time.Minute)
	require.NoError(t, m.SealAll(t.Context()))
	at := m.now.Add(-overAgo - time.Minute).UnixMilli()
	list, err := oldestFirst(m.Compactable(t.Context(), func() {}))
	require.NoError(t, err)
	require.Len(t, list, 2)
	for _, c := range list {
		require.True(t, c.Again)
		require.True(t, c.StartMS < at && at <= c.EndMS)
	}
	require.Positive(t, m.compacts("again").Series)
	m.compare("again")
}

// TestSettingsOfCompactedStores lists windows with long chunks.
func TestSettingsOfCompactedStores(t *testing.T) {
	t.Parallel()
	m := newCompactModel(t, 6, nil)
	m.compacts("first")
	have, _, err := readSettings(t.Context(), m.testStore.eng)
	require.NoError(t, err)
	require.NotEmpty(t, have.Long)
	require.True(t, m.rows.HasLong(have.Long[0]))
}

// TestViewsOfCompactedStores answers the same from views and from stores that are only read, which don't compact.
func TestViewsOfCompactedStores(t *testing.T) {
	t.Parallel()
	m := newCompactModel(t, 6, nil)
	m.compacts("first")
	m.some("1", 7, overAgo+time.Minute)
	require.NoError(t, m.SealAll(t.Context()))
	for res := range rollup.Resolution(resolutions) {
		want, err := answerTo(t.Context(), m.Store, wholeQuery("default", res))
		require.NoError(t, err)
		o := m.testStore.opts
		o.ReadOnly = true
		s, err := Open(t.Context(), engine.ReadOnly(unclosed{m.testStore.eng}), o)
		require.NoError(t, err)
		require.NoError(t, s.WaitReady(t.Context()))
		got, err := answerTo(t.Context(), s, wholeQuery("default", res))
		require.NoError(t, err)
		require.Empty(t, changed(want, got))
		require.False(t, s.Compacts())
		_, err = s.Compact(t.Context(), ended.OverWindow{Tenant: "default", Window: m.firstLong(rollup.FiveMinutes, "up").partition()[0].Int, Resolution: rollup.FiveMinutes}, func() {})
		require.Error(t, err)
		require.NoError(t, s.Close())

		v, err := OpenView(t.Context(), engine.ReadOnly(unclosed{m.testStore.eng}), o)
		require.NoError(t, err)
		_, err = v.s.Check(t.Context(), func(problem string) { t.Error(strings.TrimSpace(problem)) })
		require.NoError(t, err)
	}
}
