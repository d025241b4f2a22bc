package kairosdb

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/cassandra"
	"github.com/cassia-db/cassia/storage/cassandra/cassandratest"
)

// tables are the tables of a keyspace created by KairosDB 1.3, without the tables that aren't read.
var tables = []string{
	"data_points (key blob, column1 blob, value blob, PRIMARY KEY (key, column1))",
	"row_key_index (key blob, column1 blob, value blob, PRIMARY KEY (key, column1))",
	"string_index (key blob, column1 text, value blob, PRIMARY KEY (key, column1))",
	"row_key_time_index (metric text, table_name text, row_time timestamp, value text, PRIMARY KEY (metric, table_name, row_time))",
	"row_keys (metric text, table_name text, row_time timestamp, data_type text, tags frozen<map<text, text>>, mtime timeuuid static, value text, PRIMARY KEY ((metric, table_name, row_time), data_type, tags))",
	"spec (spec_type text, name text, value text, PRIMARY KEY (spec_type, name))",
}

// filler collects CQL statements that fill a keyspace.
type filler struct {
	keyspace string
	cql      []string
}

func (f *filler) add(format string, args ...any) { f.cql = append(f.cql, fmt.Sprintf(format, args...)) }

// row adds a row to the current indices, and its points to data_points.
func (f *filler) row(r Row, plain bool, points map[uint32][]byte) {
	f.add("INSERT INTO %s.row_key_time_index (metric, table_name, row_time) VALUES ('%s', 'data_points', %d)",
		f.keyspace, r.Metric, r.TimeMS)
	tags := ""
	for name, value := range r.Tags {
		tags += fmt.Sprintf(", '%s': '%s'", name, value)
	}
	f.add(
		"INSERT INTO %s.row_keys (metric, table_name, row_time, data_type, tags, mtime) VALUES ('%s', 'data_points', %d, '%s', {%s}, now())",
		f.keyspace, r.Metric, r.TimeMS, r.Type, tags[2:],
	)
	f.points(appendKey(nil, &r, plain), points)
}

// legacyRow adds a row to row_key_index, and its points to data_points.
func (f *filler) legacyRow(metric string, key []byte, points map[uint32][]byte) {
	f.add("INSERT INTO %s.row_key_index (key, column1, value) VALUES (0x%x, 0x%x, 0x00)", f.keyspace, metric, key)
	f.points(key, points)
}

func (f *filler) points(key []byte, points map[uint32][]byte) {
	for column, value := range points {
		f.add("INSERT INTO %s.data_points (key, column1, value) VALUES (0x%x, 0x%08x, 0x%x)",
			f.keyspace, key, column, value)
	}
}

func testOptions(hosts []string, keyspace string) cassandra.Options {
	o := cassandra.DefaultOptions()
	o.Hosts, o.Keyspace = hosts, keyspace
	o.Timeout, o.ConnectTimeout = time.Minute, time.Minute // Cassandra may hang for seconds on a busy machine.
	return o
}

// allPoints reads all rows and points of a metric in a range. It returns them as text, and the number of damaged
// entries.
func allPoints(t *testing.T, k *Keyspace, metric string, minMS, maxMS int64) (all []string, damaged int) {
	t.Helper()
	for rows, err := range k.Rows(context.Background(), metric, minMS, maxMS) {
		if errors.Is(err, ErrCorrupt) {
			damaged++
			continue
		}
		require.NoError(t, err)
		for _, r := range rows {
			for p, err := range k.Points(context.Background(), &r, minMS, maxMS) {
				if errors.Is(err, ErrCorrupt) {
					damaged++
					require.ErrorContains(t, err, r.String())
					continue
				}
				require.NoError(t, err)
				all = append(all, fmt.Sprint(r.Type, " ", r.Tags, " ", p.TimeMS, " ", p.Value))
			}
		}
	}
	return all, damaged
}

// TestReader checks that all points of a keyspace are read although it has rows of all forms that can exist after years
// of use, and that damaged entries are reported.
func TestReader(t *testing.T) {
	t.Parallel()
	hosts := cassandratest.Hosts(t)
	f := &filler{keyspace: cassandratest.OwnKeyspace(t, hosts)}
	f.add("CREATE KEYSPACE %s WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}", f.keyspace)
	cassandratest.Run(t, hosts, f.cql...)
	_, err := Open(context.Background(), testOptions(hosts, f.keyspace))
	require.ErrorIs(t, err, errNotKairosDB)
	_, err = Open(context.Background(), testOptions(hosts, f.keyspace+"_"))
	require.ErrorIs(t, err, cassandra.ErrSettings)
	require.ErrorContains(t, err, "keyspace "+f.keyspace+"_ doesn't exist")

	f.cql = nil
	for _, table := range tables {
		f.add("CREATE TABLE %s.%s", f.keyspace, table)
	}
	one := binary.AppendVarint(nil, 1)
	half := binary.BigEndian.AppendUint64(nil, math.Float64bits(0.5))
	f.add("INSERT INTO %s.string_index (key, column1, value) VALUES (0x%x, 'named', 0x00)", f.keyspace, metricNames)
	a, u := map[string]string{"host": "a"}, map[string]string{"url": "http://x"}
	f.row(Row{Metric: "m", TimeMS: rowTime, Type: typeLong, Tags: a}, false, map[uint32][]byte{
		0: one, 2 * 1000: one, 2 * 2000: {0xff}, 2 * (defaultWidthMS - 1): one,
	})
	f.row(Row{Metric: "m", TimeMS: rowTime, Type: typeDouble, Tags: a}, false,
		map[uint32][]byte{2 * 500: half, 2 * 1000: half})
	f.row(Row{Metric: "m", TimeMS: rowTime, Type: "kairos_string", Tags: a}, false,
		map[uint32][]byte{2 * 7: []byte("text")})
	f.row(Row{Metric: "m", TimeMS: rowTime, Type: typeLong, Tags: u}, false, map[uint32][]byte{2: one})
	f.row(Row{Metric: "m", TimeMS: rowTime, Type: typeLong, Tags: u}, true, map[uint32][]byte{4: one}) // as before 1.3
	f.row(Row{Metric: "m", TimeMS: rowTime + defaultWidthMS, Type: typeLong, Tags: a}, false, map[uint32][]byte{0: one})
	// If the rows of a series were deleted, mtime remains.
	f.add("INSERT INTO %s.row_key_time_index (metric, table_name, row_time) VALUES ('m', 'data_points', 0)", f.keyspace)
	f.add("INSERT INTO %s.row_keys (metric, table_name, row_time, mtime) VALUES ('m', 'data_points', 0, now())",
		f.keyspace)
	// Add rows of the old index, before and after 1970, one of which is also in the new index, and damaged entries.
	old := func(at int64) []byte {
		return appendKey(nil, &Row{Metric: "m", TimeMS: at, Type: typeLegacy, Tags: a}, false)
	}
	f.legacyRow("m", old(-4000), map[uint32][]byte{2 * 1500: {7}})
	f.legacyRow("m", old(-1), map[uint32][]byte{0: {8}})
	f.legacyRow("m", old(0), map[uint32][]byte{1: {1, 0x3f, 0, 0, 0}, 2: {}})
	f.legacyRow("m", old(rowTime), map[uint32][]byte{6: {9}})
	f.legacyRow("m", appendKey(nil, &Row{Metric: "m", TimeMS: rowTime, Type: typeLong, Tags: a}, false), nil)
	f.legacyRow("m", append(appendKeyHead(nil, "m", rowTime), "cut"...), nil)
	f.legacyRow("only old", appendKey(nil, &Row{Metric: "only old", TimeMS: rowTime, Type: typeLegacy, Tags: a}, false),
		map[uint32][]byte{0: {3}})
	cassandratest.Run(t, hosts, f.cql...)

	k, err := Open(context.Background(), testOptions(hosts, f.keyspace))
	require.NoError(t, err)
	defer k.Close()
	require.Equal(t, "rows of 504 h, columns in unit LEGACY, indices row_keys and row_key_index", k.Describe())
	require.EqualValues(t, defaultWidthMS, k.WidthMS())
	metrics, err := k.Metrics(context.Background())
	require.NoError(t, err)
	require.Equal(t, []string{"m", "named", "only old"}, metrics)

	all, damaged := allPoints(t, k, "m", math.MinInt64, math.MaxInt64)
	require.Equal(t, []string{
		"kairos_legacy map[host:a] -2500 7",
		"kairos_legacy map[host:a] -1 8",
		"kairos_legacy map[host:a] 0 0.5", "kairos_legacy map[host:a] 1 0",
		"kairos_long map[host:a] 1794441600000 1", "kairos_long map[host:a] 1794441601000 1",
		"kairos_long map[host:a] 1796255999999 1", "kairos_long map[url:http://x] 1794441600002 1",
		"kairos_long map[url:http://x] 1794441600001 1",
		"kairos_double map[host:a] 1794441600500 0.5", "kairos_double map[host:a] 1794441601000 0.5",
		"kairos_string map[host:a] 1794441600007 0",
		"kairos_legacy map[host:a] 1794441600003 9",
		"kairos_long map[host:a] 1796256000000 1",
	}, all)
	require.Equal(t, 2, damaged, "a key, and a value")
	all, damaged = allPoints(t, k, "m", rowTime+1000, rowTime+1999)
	require.Equal(
		t, []string{"kairos_long map[host:a] 1794441601000 1", "kairos_double map[host:a] 1794441601000 0.5"}, all,
	)
	require.Equal(t, 1, damaged, "the key; the value lies elsewhere")
	all, _ = allPoints(t, k, "m", -3, -1)
	require.Equal(t, []string{"kairos_legacy map[host:a] -1 8"}, all)
	all, _ = allPoints(t, k, "only old", rowTime, rowTime)
	require.Equal(t, []string{"kairos_legacy map[host:a] 1794441600000 3"}, all)
	all, _ = allPoints(t, k, "named", math.MinInt64, math.MaxInt64)
	require.Empty(t, all)

	testSeconds(t, hosts, f.keyspace)
}

// testSeconds changes the unit of a keyspace to seconds and reads it.
func testSeconds(t *testing.T, hosts []string, keyspace string) {
	f := &filler{keyspace: keyspace}
	f.add("INSERT INTO %s.spec (spec_type, name, value) VALUES ('cluster_config', 'row_time_unit', 'SECONDS')",
		keyspace)
	f.add("INSERT INTO %s.spec (spec_type, name, value) VALUES ('cluster_config', 'row_width', '%d')",
		keyspace, defaultWidthMS)
	cassandratest.Run(t, hosts, f.cql...)
	k, err := Open(context.Background(), testOptions(hosts, keyspace))
	require.NoError(t, err)
	defer k.Close()
	require.EqualValues(t, defaultWidthMS, k.WidthMS(), "rows lie closer than 57 years")
	all, _ := allPoints(t, k, "only old", rowTime, rowTime+500)
	require.Equal(t, []string{"kairos_legacy map[host:a] 1794441600000 3"}, all)
}
