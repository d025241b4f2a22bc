package paged

import (
	"context"
	"encoding/hex"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/pebble"
	"github.com/cassia-db/cassia/storage/rollup"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engines are the engines that store the rows.
var engines = map[string]func(t testing.TB) engine.Engine{
	"memory": func(testing.TB) engine.Engine { return memory.New() },
	"pebble": openPebble,
}

func openPebble(t testing.TB) engine.Engine { return openPebbleOn(t, pebble.NewCrashableFS()) }

// openPebbleOn opens Pebble with small files and small blocks.
func openPebbleOn(t testing.TB, fs pebble.FS) engine.Engine {
	o := pebble.DefaultOptions()
	o.FS, o.CacheBytes, o.MemTableBytes, o.BlockBytes, o.IngestBytes = fs, 4<<20, 1<<20, 4<<10, 1
	e, err := pebble.Open("data", o)
	require.NoError(t, err)
	return e
}

// rowTables are the tables whose rows may be in pages.
var rowTables = []*engine.Table{engine.Raw, engine.R5m, engine.R1h}

const (
	testWindow = 20_000
	slotMS     = 2 * format.HourMS
	windowMS   = testWindow * format.DayMS
)

func partitionOf(metric string) engine.Key {
	return format.SeriesPartition(testWindow, "tenant", metric, format.ClassShardOf(0, 0))
}

func startOf(slot int) int64 { return windowMS + int64(slot)*slotMS }

// testSeries is a series with its labels.
type testSeries struct {
	id     string
	metric string
	labels labels.Labels
}

// seriesOf returns n series of a metric, in the order of their ids.
func seriesOf(metric string, n int) []testSeries {
	list := make([]testSeries, n)
	for i := range list {
		ls := labels.FromStrings(labels.MetricName, metric, "instance", fmt.Sprintf("10.0.%d.%d:9100", i/256, i%256),
			"job", strings.Repeat("node", i%4))
		list[i] = testSeries{format.SeriesIDOf(ls).String(), metric, ls}
	}
	slices.SortFunc(list, func(a, b testSeries) int { return strings.Compare(a.id, b.id) })
	return list
}

func resolutionOf(t *engine.Table) rollup.Resolution {
	for _, res := range []rollup.Resolution{rollup.FiveMinutes, rollup.OneHour} {
		if format.TableOf(res) == t {
			return res
		}
	}
	return rollup.Raw
}

// labelsRow returns the mutation that writes the labels of a series.
func (s *testSeries) labelsRow(t *engine.Table) engine.Mutation {
	return engine.Mutation{
		Clustering: format.LabelsKey(resolutionOf(t), s.id), Timestamp: (windowMS + format.DayMS) * 1000,
		Value: format.AppendLabels(nil, s.labels),
	}
}

// samples returns the samples of a series in a slot. They differ by piece.
func (s *testSeries) samples(slot, piece int) *chunk.Samples {
	rng := rand.New(rand.NewPCG(uint64(s.id[0])<<8|uint64(s.id[1]), uint64(slot)<<8|uint64(piece)))
	var all chunk.Samples
	for i := range 1 + rng.IntN(12) {
		all.AppendFloat(startOf(slot)+1+int64(i)*60_000+int64(piece), 0, float64(rng.IntN(5)))
	}
	return &all
}

// rawChunk returns the mutation that writes a raw chunk. If deletes isn't 0, the chunk is marked as cleaned, and lists
// the ids of this number of deletes.
func (s *testSeries) rawChunk(slot, piece, deletes int) engine.Mutation {
	value := chunk.AppendChunk(nil, s.samples(slot, piece))
	m := engine.Mutation{
		Clustering: format.ChunkKey(s.id, startOf(slot), versionOf(value)), Timestamp: (startOf(slot) + slotMS) * 1000,
		Value: value,
	}
	if deletes > 0 {
		m.Timestamp += int64(deletes)
		m.Value = format.AppendRawChunk(nil, format.RawChunk{Exempt: deleteIDs(deletes), Cleaned: true, Data: value})
	}
	return m
}

// deleteIDs returns the ids of n deletes.
func deleteIDs(n int) (ids format.TombstoneIDs) {
	for i := range n {
		ids = append(ids, strings.Repeat(string(rune('a'+i)), engine.IDLen)...)
	}
	return ids
}

// exempt returns the mutation that writes a raw chunk that names deletes from its first version on, so that its key has
// the hash of the whole value.
func (s *testSeries) exempt(slot int) engine.Mutation {
	value := format.AppendRawChunk(nil, format.RawChunk{
		Exempt: deleteIDs(1), Data: chunk.AppendChunk(nil, s.samples(slot, 3)),
	})
	return engine.Mutation{
		Clustering: format.ChunkKey(s.id, startOf(slot), versionOf(value)), Timestamp: (startOf(slot) + slotMS) * 1000,
		Value: value,
	}
}

func (s *testSeries) exemplars(slot int) engine.Mutation {
	value := fmt.Appendf(nil, "exemplars of %x in %d", s.id, slot)
	return engine.Mutation{
		Clustering: format.ExemplarsKey(s.id, startOf(slot), versionOf(value)),
		Timestamp:  (startOf(slot) + slotMS) * 1000, Value: value,
	}
}

// rollups returns the mutation that writes a chunk of r5m or r1h. Its content depends on the version.
func (s *testSeries) rollups(t *engine.Table, slot int, version uint64) engine.Mutation {
	res := resolutionOf(t)
	end := startOf(slot) + slotMS
	var b rollup.Buckets
	rollup.AppendEvery(&b, s.samples(slot, int(version)), res.Width())
	value := rollup.AppendChunk(nil, &b, res.Width(), version)
	if version%5 == 4 {
		value = rollup.AppendEmpty(nil, version)
	}
	return engine.Mutation{
		Clustering: format.RollupKey(s.id, startOf(slot)), Timestamp: end*1000 + int64(version), Value: value,
	}
}

// stampCopies sets the timestamps of rollups.
func stampCopies(rows []engine.Batch) {
	for _, b := range rows {
		for i := range b.Mutations {
			m := &b.Mutations[i]
			m.Timestamp = (m.Clustering[2].Int+slotMS)*1000 + int64(rollup.VersionOf(m.Value))
		}
	}
}

// chunk returns the mutation that writes the chunk of a slot with the lowest rank, in any table.
func (s *testSeries) chunk(t *engine.Table, slot int) engine.Mutation {
	if t == engine.Raw {
		return s.rawChunk(slot, 0, 0)
	}
	return s.rollups(t, slot, 1)
}

// better returns the mutation that writes a chunk that supersedes the result of chunk.
func (s *testSeries) better(t *engine.Table, slot, by int) engine.Mutation {
	if t == engine.Raw {
		return s.rawChunk(slot, 0, by)
	}
	return s.rollups(t, slot, 1+uint64(by))
}

// newSeriesBatch returns a batch that writes new series: labels, and chunks of some slots.
func newSeriesBatch(t *engine.Table, series []testSeries, slots ...int) engine.Batch {
	b := engine.Batch{Table: t, Partition: partitionOf(series[0].metric)}
	for i := range series {
		b.Mutations = append(b.Mutations, series[i].labelsRow(t))
		for _, slot := range slots {
			b.Mutations = append(b.Mutations, series[i].chunk(t, slot))
		}
	}
	return b
}

// testRow is a copy of a row that was read.
type testRow struct {
	key   engine.Key
	value string
	none  bool // the value is nil
}

func (r testRow) String() string {
	var all []string
	for _, v := range r.key {
		if v.Text != "" {
			all = append(all, hex.EncodeToString([]byte(v.Text))[:12])
		} else {
			all = append(all, fmt.Sprint(v.Int))
		}
	}
	return fmt.Sprintf("%s: %d bytes, %x", strings.Join(all, " "), len(r.value), r.value[:min(len(r.value), 8)])
}

// countingScans wraps an engine, and counts its scans of the tables in of, or of all tables if there are none.
func countingScans(eng engine.Engine, of ...*engine.Table) (*faultengine.Engine, *int) {
	scans := new(int)
	return faultengine.Wrap(eng, func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Scan && (len(of) == 0 || slices.Contains(of, op.Table)) {
			*scans++
		}
		return faultengine.Pass()
	}), scans
}

type seq = iter.Seq2[engine.Row, error]

// readAll reads a range to its end.
func readAll(scan func(context.Context, engine.Range) seq, r engine.Range) (rows []testRow, err error) {
	for row, err := range scan(context.Background(), r) {
		if err != nil {
			return rows, err
		}
		rows = append(rows, testRow{row.Clustering.Clone(), string(row.Value), row.Value == nil})
	}
	return rows, nil
}

func mustRead(t testing.TB, scan func(context.Context, engine.Range) seq, r engine.Range) []testRow {
	t.Helper()
	rows, err := readAll(scan, r)
	require.NoError(t, err)
	return rows
}

// requireRows compares rows, and shows the differences.
func requireRows(t testing.TB, want, got []testRow, about string, args ...any) {
	t.Helper()
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(want):
			require.Fail(t, "a row too many",
				"%s\nrow %d of %d, %d wanted: %v", fmt.Sprintf(about, args...), i, len(got), len(want), got[i])
		case i >= len(got):
			require.Fail(t, "a row is missing",
				"%s\nrow %d of %d, %d found: %v", fmt.Sprintf(about, args...), i, len(want), len(got), want[i])
		case engine.Compare(want[i].key, got[i].key) != 0 || len(want[i].key) != len(got[i].key) ||
			want[i].value != got[i].value || want[i].none && !got[i].none:
			require.Fail(t, "another row",
				"%s\nrow %d, want %v\ngot %v", fmt.Sprintf(about, args...), i, want[i], got[i])
		}
	}
}

// pagesIn returns the pages of a partition of a table of rows, without their filters.
func pagesIn(t testing.TB, eng engine.Engine, table *engine.Table, partition engine.Key) (pages []*heldPage) {
	t.Helper()
	of := tablesOf(table)
	for row, err := range eng.Scan(context.Background(), engine.Range{Table: of.pages, Partition: partition}) {
		require.NoError(t, err)
		if row.Clustering[0].Int == format.KindFilter {
			break
		}
		pages = append(pages, of.newHeldPage(row, nil))
	}
	return pages
}
