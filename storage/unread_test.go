package storage

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/page"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
)

// unreadForms lists the places in which a test damages a chunk. The engine doesn't detect the damage.
var unreadForms = []string{"row", "value of an entry", "entry"}

// unreadModel is a store with an unreadable chunk of a series: the raw or 5m chunk of the slot of deletedAgo, or the 1h
// chunk of its day.
type unreadModel struct {
	*deleteModel

	res    rollup.Resolution
	series labels.Labels
	start  int64
}

// newUnread returns a model with samples in two slots of a day, and an unreadable chunk of a series of a group.
func newUnread(t *testing.T, res rollup.Resolution, form, group string) *unreadModel {
	change := func(o *Options) { o.Retention = 0 }
	if form == "row" {
		change = func(o *Options) { o.Retention = 0; rowsOnly(o) }
	}
	m := &unreadModel{deleteModel: newPagedModel(t, 12, change), res: res}
	m.some("0123", 3, deletedAgo, 5*time.Hour)
	m.some("1", deletedValue, deletedAgo+time.Minute)
	require.NoError(t, m.SealAll(t.Context()))
	m.damage(form, group, deletedAgo)
	return m
}

// damage makes the chunk of the first series of a group unreadable, in the slot or day that contains ago.
func (m *unreadModel) damage(form, group string, ago time.Duration) {
	m.t.Helper()
	at := slices.IndexFunc(
		m.labels, func(ls labels.Labels) bool { return ls.Get(labels.MetricName) == "up" && ls.Get("group") == group },
	)
	m.series = m.labels[at]
	slot := m.period.SlotOf(m.now.Add(-ago).UnixMilli())
	m.start = m.destinationsOf(slot)[m.res].start
	if form == "row" {
		m.damageRow(slot)
	} else {
		m.damageEntry(form == "entry")
	}
	m.testStore.damaged = true
	m.again()
}

// bad returns value with a byte raised. Engines keep the higher of two values with the same timestamp.
func (m *unreadModel) bad(value []byte) []byte {
	bad := slices.Clone(value)
	i := slices.IndexFunc(bad[20:], func(b byte) bool { return b < 0xff }) + 20
	bad[i] = 0xff
	if m.res == rollup.Raw {
		_, err := format.DecodeRawChunk(bad, nil, &chunk.Samples{})
		require.Error(m.t, err)
	} else {
		require.Error(m.t, rollup.Decode(bad, rollup.AllColumns, &rollup.Buckets{}))
	}
	return bad
}

func (m *unreadModel) damageRow(slot int64) {
	b := engine.Batch{
		Table:     format.TableOf(m.res),
		Partition: format.SeriesPartition(m.destinationsOf(slot)[m.res].window, "default", "up", 0),
	}
	chunks := engine.Key{engine.Int(format.KindChunk)}
	for row, err := range m.testStore.eng.Scan(
		context.Background(), engine.Range{Table: b.Table, Partition: b.Partition, From: chunks, To: chunks},
	) {
		require.NoError(m.t, err)
		k := row.Clustering
		timestamp := m.period.SlotEnd(slot) * 1000
		id, start := k[2].Text, k[1].Int
		if m.res != rollup.Raw {
			id, start = k[1].Text, k[2].Int
			timestamp = m.timestampOf(m.res, start, rollup.VersionOf(row.Value))
		}
		if id == format.SeriesIDOf(m.series).String() && start == m.start {
			b.Mutations = append(
				b.Mutations, engine.Mutation{Clustering: k.Clone(), Timestamp: timestamp, Value: m.bad(row.Value)},
			)
		}
	}
	require.Len(m.t, b.Mutations, 1)
	require.NoError(m.t, m.testStore.eng.Write(context.Background(), []engine.Batch{b}))
}

// damageEntry damages the value of an entry of a page, or the entry itself if cut is true. The page's checksum stays
// valid.
func (m *unreadModel) damageEntry(cut bool) {
	pages := m.pagesIn(m.pagedPartitions("default"))
	var builder labels.ScratchBuilder
	for _, p := range pages {
		if p.res != m.res || p.isLabels() || p.key[3].Text != "up" || p.clustering[tableOfPages(p.res)].Int != m.start {
			continue
		}
		parsed, err := page.Parse(p.value)
		require.NoError(m.t, err)
		of := slices.IndexFunc(pages, func(l storedPage) bool {
			return l.isLabels() && l.res == p.res && engine.Compare(l.key, p.key) == 0 &&
				l.clustering[4].Text == parsed.Head().Labels
		})
		require.GreaterOrEqual(m.t, of, 0)
		for i, row := range m.valuesOf(pages[of]) {
			ls, err := format.ParseLabels(row, "up", &builder)
			require.NoError(m.t, err)
			if !labels.Equal(ls, m.series) {
				continue
			}
			require.Nil(m.t, parsed.Head().At)
			values := m.valuesOf(p)
			values[i] = m.bad(values[i])
			bad := page.Append(nil, parsed.Head(), values)
			if cut {
				bad = cutUnknown(m.t, bad, i, len(values))
			}
			m.putPage(p, bad)
			return
		}
	}
	require.Fail(m.t, "the series has no entry")
}

// tableOfPages returns the index of field start in the clustering key of a table of pages.
func tableOfPages(res rollup.Resolution) int {
	if res == rollup.Raw {
		return 1
	}
	return 3
}

// cutUnknown changes the number of entry at of an encoded page from 1, which means that its value is stored whole, to
// an unknown number. b is the page with n entries. All other values must be cut.
func cutUnknown(t testing.TB, b []byte, at, n int) []byte {
	numbers, texts := chunk.FieldNumbers, chunk.FieldTexts
	if page.Kind(b[1]) == page.Rollups {
		numbers, texts = rollup.FieldNumbers, rollup.FieldTexts
	}
	column := 3 + page.LabelsIDLen + 1 + (2+numbers+texts+7)/8
	packed := (n + 7) / 8
	require.Equal(t, []byte{1, 0}, b[column:column+2])
	require.EqualValues(t, 1<<(at%8), b[column+2+at/8])
	ways := make([]byte, (2*n+7)/8)
	ways[2*at/8] = 2 << (2 * at % 8)
	bad := slices.Concat(b[:column], []byte{2, 0}, ways, b[column+2+packed:len(b)-4])
	bad = binary.LittleEndian.AppendUint32(bad, crc32.Checksum(bad, crc32.MakeTable(crc32.Castagnoli)))
	parsed, err := page.Parse(bad)
	require.NoError(t, err)
	for i := range n {
		_, err := parsed.AppendValue(nil, i)
		require.Equal(t, i == at, err != nil)
	}
	return bad
}

// rawAre requires answers to contain all samples, except those in the unreadable chunk.
func (m *unreadModel) rawAre(when string) {
	m.t.Helper()
	want := map[string][]sample{}
	for name, byTime := range m.want {
		for at, v := range byTime {
			if m.res == rollup.Raw && name == m.series.String() &&
				(at == m.now.Add(-deletedAgo).UnixMilli() || v == deletedValue) {
				continue
			}
			want[name] = append(want[name], sample{at, v})
		}
		slices.SortFunc(want[name], func(a, b sample) int { return int(a.t - b.t) })
	}
	asked := damagedStore{}
	got, _, err := asked.answers(m.Store, "default")
	require.NoError(m.t, err)
	for name := range want {
		require.Equal(m.t, want[name], got[name], "%s: %s", when, name)
	}
}

// bucketsAre requires rollups to include all samples, even those in unreadable chunks. It skips a series at a
// resolution if but returns true.
func (m *unreadModel) bucketsAre(when string, but func(res rollup.Resolution, series string) bool) {
	m.t.Helper()
	for _, res := range rollup.Resolutions {
		q := wholeQuery("default", res)
		found, err := m.Select(m.t.Context(), q)
		require.NoError(m.t, err)
		got := map[string]rollup.Buckets{}
		for _, s := range found {
			var b rollup.Buckets
			var buf query.BucketBuffers
			require.NoError(m.t, s.Buckets(&b, &buf))
			got[s.Labels.String()] = b
		}
		for name, byTime := range m.want {
			if but(res, name) {
				continue
			}
			var samples chunk.Samples
			for at, v := range byTime {
				samples.AppendFloat(at, 0, v)
			}
			samples.Normalize()
			var want rollup.Buckets
			rollup.AppendEvery(&want, &samples, res.Width())
			require.Equal(m.t, want.End, got[name].End, "%s: %s of %s", when, res, name)
			require.Equal(m.t, want.Count, got[name].Count, "%s: %s of %s", when, res, name)
			require.Equal(m.t, want.Max, got[name].Max, "%s: %s of %s", when, res, name)
			require.Equal(m.t, want.Sum, got[name].Sum, "%s: %s of %s", when, res, name)
		}
	}
}

func none(rollup.Resolution, string) bool { return false }

// isNamed requires that reads and Check report the unreadable chunk if named is true, and don't report it otherwise.
func (m *unreadModel) isNamed(when string, named bool) {
	m.t.Helper()
	m.again()
	_, told := m.warned(m.res)
	require.Equal(m.t, named, len(told) > 0, when)
	problems := m.problems()
	require.Equal(m.t, named, len(problems) > 0, "%s: %v", when, problems)
	for _, text := range append(told, problems...) {
		require.Contains(m.t, text, `"up"`, when)
	}
}

// counted returns the number of unreadable rows that were counted, of all tables.
func (m *unreadModel) counted() (n float64) {
	for res := rollup.Raw; res <= rollup.OneHour; res++ {
		n += testutil.ToFloat64(m.metrics.corrupt.WithLabelValues(format.TableOf(res).Name))
	}
	return n
}

// seals requires SealAll to seal all staged samples.
func (m *unreadModel) seals() {
	m.t.Helper()
	require.NoError(m.t, m.SealAll(m.t.Context()))
	for p := range m.Partitions() {
		left, err := m.Staged(m.t.Context(), p, 0)
		require.NoError(m.t, err)
		require.Empty(m.t, left)
	}
}

// eachUnread runs a test for each resolution and form.
func eachUnread(t *testing.T, f func(t *testing.T, res rollup.Resolution, form string)) {
	t.Parallel()
	for res := rollup.Raw; res <= rollup.OneHour; res++ {
		for _, form := range unreadForms {
			t.Run(fmt.Sprint(res, " ", form), func(t *testing.T) {
				t.Parallel()
				f(t, res, form)
			})
		}
	}
}

// TestLateSamplesBesideAnUnreadableChunk seals late samples, of the same series and of others, into the slot of an
// unreadable chunk, and into another slot of its day. All late samples must be sealed, and rollups must lose nothing.
// The chunk must be kept, and be reported by reads, by Check, and once by seals.
func TestLateSamplesBesideAnUnreadableChunk(t *testing.T) {
	eachUnread(t, func(t *testing.T, res rollup.Resolution, form string) {
		m := newUnread(t, res, form, "0")
		m.isNamed("damaged", true)
		m.rawAre("damaged")
		m.again()
		m.some("0123", 8, 5*time.Hour+time.Minute) // another slot of the day
		m.seals()
		named := m.counted()
		m.some("0123", 9, 5*time.Hour+2*time.Minute)
		m.seals()
		require.Equal(t, named, m.counted(), "named once")
		m.rawAre("sealed beside")
		damagedFine := func(of rollup.Resolution, series string) bool {
			return res == rollup.FiveMinutes && of == res && series == m.series.String()
		}
		m.bucketsAre("sealed beside", damagedFine)
		m.isNamed("sealed beside", res != rollup.OneHour || form == "entry") // A 1h chunk is recomputed.

		m.some("0123", 8, deletedAgo-20*time.Minute)
		m.seals()
		m.rawAre("sealed")
		m.bucketsAre("sealed", none)
		m.isNamed("sealed", res == rollup.Raw || form == "entry") // Rollups are recomputed.
		m.some("0123", 9, deletedAgo-20*time.Minute-time.Second)
		m.seals()
		m.rawAre("sealed again")
		m.bucketsAre("sealed again", func(of rollup.Resolution, series string) bool {
			return res == rollup.Raw && series == m.series.String()
		})
	})
}

// TestDeletesBesideAnUnreadableChunk deletes samples of the series with the unreadable chunk, or of others. The deleted
// samples must be removed, and the rollups recomputed. An unreadable raw chunk that the delete applies to must be kept,
// together with the delete.
func TestDeletesBesideAnUnreadableChunk(t *testing.T) {
	eachUnread(t, func(t *testing.T, res rollup.Resolution, form string) {
		for _, group := range []string{"0", "1"} {
			m := newUnread(t, res, form, group)
			m.deleteGroup()
			require.NoError(t, m.WorkOffDeletes(t.Context(), "default"))
			m.rawAre("worked off")
			left := func(of rollup.Resolution, series string) bool { // The delete doesn't apply to this series.
				return group == "0" && of == res && series == m.series.String()
			}
			m.bucketsAre("worked off", left)
			stays := res == rollup.Raw && group == "1"
			for range 2 {
				err := m.CleanTombstones(t.Context(), "default")
				require.Equal(t, stays, err != nil, "%v", err)
				if stays {
					require.ErrorIs(t, err, engine.ErrCorrupt)
					require.ErrorContains(t, err, "1 deletes were kept")
					require.ErrorContains(t, err, `"up"`)
				}
				require.Equal(t, stays, m.openDeletes() == 1)
				m.rawAre("cleaned")
				m.bucketsAre("cleaned", left)
				m.again()
			}
			m.isNamed("cleaned", res == rollup.Raw || form == "entry" || group == "0")
			m.some("0123", 8, deletedAgo-20*time.Minute)
			m.seals()
			m.rawAre("sealed")
			m.bucketsAre("sealed", none)
		}
	})
}

// TestCompactionBesideAnUnreadableChunk compacts windows with an unreadable chunk. The chunk's series must be unchanged
// and other series compacted. Then late samples are sealed and compacted.
func TestCompactionBesideAnUnreadableChunk(t *testing.T) {
	t.Parallel()
	for _, res := range rollup.Resolutions {
		for _, form := range unreadForms {
			t.Run(fmt.Sprint(res, " ", form), func(t *testing.T) {
				t.Parallel()
				change := func(*Options) {}
				if form == "row" {
					change = rowsOnly
				}
				m := &unreadModel{deleteModel: newCompactModel(t, 12, change), res: res}
				if res == rollup.FiveMinutes { // Each day needs multiple chunks.
					m.some("0123", 4, overAgo+46*time.Hour)
					m.seals()
				}
				m.damage(form, "0", overAgo+50*time.Hour)
				before, told := m.warned(res)
				require.NotEmpty(t, told)
				stats, err := m.compactAll(t.Context(), func() {})
				require.NoError(t, err)
				require.Positive(t, stats.Series)
				require.Positive(t, stats.Left)
				list, err := oldestFirst(m.Compactable(t.Context(), func() {}))
				require.NoError(t, err)
				require.Empty(t, list, "it is done")
				after, told := m.warned(res)
				require.NotEmpty(t, told)
				require.Empty(t, changed(before, after))
				m.isNamed("compacted", true)

				m.some("0123", 8, overAgo+5*time.Hour+time.Minute)
				m.seals()
				m.bucketsAre(
					"sealed",
					func(of rollup.Resolution, series string) bool { return of == res && series == m.series.String() },
				)
				_, err = m.compactAll(t.Context(), func() {})
				require.NoError(t, err)
				m.bucketsAre(
					"compacted again",
					func(of rollup.Resolution, series string) bool { return of == res && series == m.series.String() },
				)
				require.NotEmpty(t, strings.Join(m.problems(), "\n"))
			})
		}
	}
}
