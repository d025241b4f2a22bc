package cassandra

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

func TestSchemaIsAsWritten(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"forever": func(*Options) {},
		"year": func(o *Options) {
			o.Keyspace, o.Replication, o.Retention = "metrics", "dc1:3,dc2:2", 365*24*time.Hour
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := DefaultOptions()
			change(&o)
			var b bytes.Buffer
			require.NoError(t, WriteSchema(&b, o))
			path := "testdata/schema-" + name + ".cql"
			if *rewrite {
				require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, string(want), b.String(),
				"run the test with -rewrite if that is meant, and raise schemaVersion if columns changed")
		})
	}
}

func TestEveryTableHasAPolicy(t *testing.T) {
	for _, table := range engine.Tables {
		p, ok := policies[table.Name]
		require.True(t, ok, "table %s has no policy", table)
		require.NotEmpty(t, p.about, table)
		require.Positive(t, p.firstPage, table)
		require.GreaterOrEqual(t, p.maxPage, p.firstPage, table)
		if p.compaction == windowed {
			require.LessOrEqual(t, p.graceSeconds, dayGrace, "what expires in %s would stay for longer", table)
		}
	}
	require.Len(t, policies, len(engine.Tables), "a policy of a table that isn't there")
}

func TestColumnsHaveDifferentNames(t *testing.T) {
	for _, table := range engine.Tables {
		seen := map[string]bool{}
		for _, c := range columnsOf(table) {
			require.False(t, seen[c.name], "column %s of %s", c.name, table)
			seen[c.name] = true
		}
	}
}

func TestReservedWordsAreQuoted(t *testing.T) {
	require.Equal(t, `"order"`, quoteName("order"))
	require.Equal(t, "slot", quoteName("slot"))
	table := &engine.Table{Name: "select", Partition: []engine.Field{{Name: "from", Kind: engine.KindInt}},
		Clustering: []engine.Field{{Name: "to", Kind: engine.KindText}}}
	s := newStatements("ks", table)
	require.Equal(t, `INSERT INTO ks."select" ("from", "to", data) VALUES (?, ?, ?) USING TIMESTAMP ?`, s.put)
	require.Equal(t,
		`SELECT "to" FROM ks."select" WHERE "from" = ? AND ("to") >= (?) LIMIT ?`, s.scans[scanShape{1, 0, true, true}])
}

func TestStatements(t *testing.T) {
	s := newStatements("ks", engine.Staged)
	for want, got := range map[string]string{
		"INSERT INTO ks.staged (partition, unit, slot, generation, state, data) VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP ? AND TTL ?": s.putTTL,
		"DELETE FROM ks.staged USING TIMESTAMP ? WHERE partition = ? AND unit = ? AND slot = ? AND generation = ? AND state = ?":       s.remove,
		"DELETE FROM ks.staged USING TIMESTAMP ? WHERE partition = ? AND unit = ? AND slot = ? AND generation = ? AND state >= ? AND state <= ?": s.
			removeRange,
		"UPDATE ks.staged SET data = ? WHERE partition = ? AND unit = ? AND slot = ? AND generation = ? AND state = ? IF data = ?": s.replace,
		"SELECT slot, generation, state, data FROM ks.staged WHERE partition = ? AND unit = ? AND (slot, generation) >= (?, ?) AND (slot) <= (?)": s.
			scans[scanShape{2, 1, false, false}],
	} {
		require.Equal(t, want, got)
	}
	require.Len(t, s.scans, 4*4*2*2)
}

func TestWindowWidth(t *testing.T) {
	const day = 24 * time.Hour
	for retention, want := range map[time.Duration]time.Duration{
		0: 30 * day, time.Hour: time.Hour, 15 * day: 12 * time.Hour, 30 * day: day, 45 * day: 36 * time.Hour,
		90 * day: 3 * day, 365 * day: 13 * day, 10 * 365 * day: 122 * day,
	} {
		require.Equal(t, want, windowWidth(retention), "%s", retention)
	}
}

func TestVersionInComment(t *testing.T) {
	require.Equal(t, schemaVersion, versionOf(tableComment(policies["raw"])))
	require.Equal(t, 12, versionOf("cassia schema 12: something new"))
	require.Zero(t, versionOf(""))
	require.Zero(t, versionOf("somebody's table"))
}

func TestParseReplication(t *testing.T) {
	for text, want := range map[string]replication{
		"":               nil,
		" 3 ":            {everyDataCenter: 3},
		"dc1:3":          {"dc1": 3},
		"dc1:3, us-east": nil,
		"dc1: 3,'dc2':2": {"dc1": 3, "dc2": 2},
		"{'class': 'NetworkTopologyStrategy', 'dc1': 3}":                               {"dc1": 3},
		"{'class':'org.apache.cassandra.locator.NetworkTopologyStrategy', 'dc1': '1'}": {"dc1": 1},
		"{'class': 'NetworkTopologyStrategy', 'replication_factor': 2, 'us east.1-a': 12}": {
			everyDataCenter: 2, "us east.1-a": 12,
		},
	} {
		got, err := parseReplication(text)
		if want == nil && strings.TrimSpace(text) != "" {
			require.Error(t, err, "%q", text)
			continue
		}
		require.NoError(t, err, "%q", text)
		require.Equal(t, want, got, "%q", text)
		if got != nil {
			again, err := parseReplication(got.String())
			require.NoError(t, err)
			require.Equal(t, want, again)
		}
	}
	for _, text := range []string{
		"0", "-1", "101", "x", "dc1:", "dc1:x", ":3", "dc1:3,dc1:2", "d'c:3", "{'dc1': 3}",
		"{'class': 'SimpleStrategy', 'replication_factor': 1}", "{'class': 'NetworkTopologyStrategy'}",
		"{'class': 'NetworkTopologyStrategy', 'dc1': 3", "dc1:3};DROP TABLE x",
	} {
		_, err := parseReplication(text)
		require.ErrorContains(t, err, "write 3, or dc1:3,dc2:3", "%q", text)
		require.NotContains(t, err.Error(), "\n")
	}
}

func FuzzParseReplication(f *testing.F) {
	f.Add("3")
	f.Add("dc1:3,dc2:2")
	f.Add("{'class': 'NetworkTopologyStrategy', 'dc1': 3}")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parseReplication(text)
		if err != nil || r == nil {
			return
		}
		again, err := parseReplication(r.String())
		require.NoError(t, err, "%s", r)
		require.Equal(t, r, again)
	})
}
