package storage

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/cassandra"
	"github.com/cassia-db/cassia/storage/cassandra/cassandratest"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/soak"
)

// tableRaw is the raw retention before a change in the manual's table of examples.
const tableRaw = 10 * day

// shownAt returns which data answers queries for the day of an instant: raw samples, rollups, or nothing.
func (m *clockMachine) shownAt(at time.Time) string {
	m.r.t.Helper()
	from := at.UTC().Truncate(day)
	if m.samplesBetween(from, from.Add(day-time.Millisecond)) > 0 {
		return "raw samples"
	}
	list, err := m.Select(m.r.t.Context(), query.Query{
		Tenant: "t", MinT: from.UnixMilli(), MaxT: from.Add(day).UnixMilli() - 1, Matchers: ofMetric(),
		Resolution: rollup.FiveMinutes, Columns: rollup.AllColumns,
	})
	require.NoError(m.r.t, err)
	for _, s := range list {
		var b rollup.Buckets
		require.NoError(m.r.t, s.Buckets(&b, &query.BucketBuffers{}))
		if len(b.Count) > 0 {
			return "rollups"
		}
	}
	return "nothing"
}

// runs writes and seals one sample per day on each machine.
func (r *expiryRig) runs(days int, all ...*clockMachine) {
	r.t.Helper()
	for range days {
		for _, m := range all {
			require.NoError(r.t, m.write(r.now(), 1))
			require.NoError(r.t, m.SealAll(r.t.Context()))
		}
		r.passes(day, all...)
	}
}

// restarts stops a machine, starts one with another raw retention, and waits until it has recorded the retention.
func (r *expiryRig) restarts(m *clockMachine, raw time.Duration) *clockMachine {
	r.t.Helper()
	m.stop()
	m = r.start(0, keeping(raw, 0, 0))
	r.passes(time.Minute, m)
	return m
}

// ago returns an instant that is the given number of days before now, at which runs has written a sample.
func (r *expiryRig) ago(days int) time.Time {
	return r.now().Add(-time.Duration(days)*day - time.Minute)
}

// tableEvents contains the events of the table. Each event returns the answers for its days, in their order.
var tableEvents = map[string]func(r *expiryRig) []string{
	"not changed": func(r *expiryRig) []string {
		m := r.start(0, keeping(tableRaw, 0, 0))
		r.runs(20, m)
		return []string{m.shownAt(r.ago(8)), m.shownAt(r.ago(12)), m.shownAt(r.ago(19))}
	},
	"raised to 30 days": func(r *expiryRig) (shown []string) {
		m := r.start(0, keeping(tableRaw, 0, 0))
		r.runs(21, m)
		visible, hidden, deleted, later := r.ago(8), r.ago(12), r.ago(20), r.now().Add(2*day)
		require.Equal(r.t, "rollups", m.shownAt(hidden))
		m = r.restarts(m, 3*tableRaw)
		shown = append(shown, m.shownAt(hidden))
		r.runs(15, m)
		shown = append(shown, m.shownAt(hidden), m.shownAt(visible), m.shownAt(deleted))
		r.runs(10, m)
		return append(shown, m.shownAt(later.Add(-time.Minute)))
	},
	"raised to 30 days, then older days imported": func(r *expiryRig) (shown []string) {
		m := r.start(0, keeping(tableRaw, 0, 0))
		r.runs(20, m)
		deleted := r.ago(19)
		m = r.restarts(m, 3*tableRaw)
		older := r.ago(25)
		require.Zero(r.t, m.brings(older, 1, day).RollupsOnly)
		require.Equal(r.t, 1, m.brings(deleted.Add(time.Hour), 1, day).RollupsOnly)
		r.passes(time.Minute, m)
		shown = append(shown, m.shownAt(older))
		r.runs(4, m)
		return append(shown, m.shownAt(older), m.shownAt(deleted))
	},
	"lowered to 3 days": func(r *expiryRig) (shown []string) {
		m := r.start(0, keeping(tableRaw, 0, 0))
		r.runs(15, m)
		m = r.restarts(m, 3*day)
		shown = []string{m.shownAt(r.ago(6))}
		r.runs(12, m)
		return append(shown, m.shownAt(r.ago(6)))
	},
	"lowered to 3 days, raised again after 6 days": func(r *expiryRig) []string {
		m := r.start(0, keeping(tableRaw, 0, 0))
		r.runs(15, m)
		m = r.restarts(m, 3*day)
		r.runs(6, m)
		m = r.restarts(m, tableRaw)
		return []string{m.shownAt(r.ago(9)), m.shownAt(r.ago(5))}
	},
	"lowered to 3 days, raised to 20 days after 9 days": func(r *expiryRig) []string {
		m := r.start(0, keeping(tableRaw, 0, 0))
		r.runs(15, m)
		hidden := r.ago(4)
		m = r.restarts(m, 3*day)
		r.runs(9, m)
		m = r.restarts(m, 2*tableRaw)
		return []string{m.shownAt(hidden), m.shownAt(r.ago(5))}
	},
	"set to 1 day for three minutes by mistake": func(r *expiryRig) []string {
		m := r.start(0, keeping(tableRaw, 0, 0))
		r.runs(15, m)
		m = r.restarts(m, day)
		require.NoError(r.t, m.write(r.now(), 1))
		require.NoError(r.t, m.SealAll(r.t.Context()))
		at := r.now()
		m = r.restarts(m, tableRaw)
		r.runs(8, m)
		return []string{m.shownAt(at)}
	},
	"set to 3 days on one of two processes": func(r *expiryRig) []string {
		if !r.shared {
			return []string{"–"}
		}
		one, other := r.start(0, keeping(tableRaw, 0, 0)), r.start(0, keeping(3*day, 0, 0))
		r.passes(12*time.Hour, one, other)
		r.runs(10, one, other)
		require.Equal(r.t, one.shownAt(r.ago(6)), other.shownAt(r.ago(6)))
		return []string{one.shownAt(r.ago(6))}
	},
}

// retentionTable reads the manual's table of examples. It returns, for each event, the answers on a single machine and
// on Cassandra.
func retentionTable(t *testing.T) map[string][][2]string {
	page, err := os.ReadFile("../cmd/internal/manual/removing-data.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(page), "| `--retention.raw=10d` is | day |")
	require.True(t, found)
	rows := map[string][][2]string{}
	for _, line := range strings.Split(table, "\n")[2:] {
		cells := strings.Split(line, "|")
		if len(cells) != 6 {
			break
		}
		event := strings.TrimSpace(cells[1])
		rows[event] = append(rows[event], [2]string{strings.TrimSpace(cells[3]), strings.TrimSpace(cells[4])})
	}
	return rows
}

// TestRetentionTable tests each cell of the manual's table of examples of changed retentions, on an engine that doesn't
// expire rows and on one that does. The clocks are virtual, because real time would take weeks.
func TestRetentionTable(t *testing.T) {
	testRetentionTable(t, slices.Sorted(maps.Keys(tableEvents)), []bool{false, true}, newExpiryRig)
}

// TestRetentionTableOnCassandra is TestRetentionTable on Cassandra, where rows have real TTLs. It tests two random
// events, or all of them in long runs, because an event may take a minute.
func TestRetentionTableOnCassandra(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Cassandra: leave -short out")
	}
	events := slices.Sorted(maps.Keys(tableEvents))
	drawn := int(soak.FirstSeed(t) % uint64(len(events)))
	events = slices.Concat(events[drawn:], events[:drawn])[:min(len(events), soak.Histories(t, 2))]
	testRetentionTable(t, events, []bool{true}, func(t *testing.T, _ bool) *expiryRig {
		t.Parallel()
		hosts := cassandratest.Hosts(t)
		r := &expiryRig{clockRig: &clockRig{t: t, shared: true}}
		co := cassandra.DefaultOptions()
		co.Hosts, co.Keyspace, co.ClusterTime = hosts, cassandratest.OwnKeyspace(t, hosts), r.now
		co.Timeout, co.ConnectTimeout = time.Minute, time.Minute
		eng, err := cassandra.Open(t.Context(), co)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, eng.Close()) })
		r.eng = &expiringClocked{clockedEngine{eng, r.now}}
		return r
	})
}

func testRetentionTable(
	t *testing.T, events []string, engines []bool, newRig func(t *testing.T, expiring bool) *expiryRig,
) {
	table := retentionTable(t)
	require.Len(t, table, len(tableEvents))
	for _, event := range events {
		for _, expiring := range engines {
			t.Run(fmt.Sprintf("%s/expiring=%t", event, expiring), func(t *testing.T) {
				var want []string
				for _, row := range table[event] {
					if expiring {
						want = append(want, row[1])
					} else {
						want = append(want, row[0])
					}
				}
				require.Equal(t, want, tableEvents[event](newRig(t, expiring)))
			})
		}
	}
}
