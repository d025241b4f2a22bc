package cassandra

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// requireRefusal opens an engine, and requires an error of one line that contains all of words.
func requireRefusal(t *testing.T, o Options, words ...string) {
	t.Helper()
	e, err := Open(context.Background(), o)
	if err == nil {
		require.NoError(t, e.Close())
	}
	require.Error(t, err)
	for _, word := range words {
		require.ErrorContains(t, err, word)
	}
	require.True(t, strings.HasPrefix(err.Error(), "cassandra: "), "%v", err)
	require.NotContains(t, err.Error(), "\n", "one line")
	require.Equal(t, 1, strings.Count(err.Error(), "cassandra: "), "%v", err)
	require.Equal(t, !strings.Contains(
		err.Error(), "no host responds; check that Cassandra is running there and accepts CQL connections",
	), errors.Is(err, ErrSettings), "%v", err)
}

func TestOptionsAreChecked(t *testing.T) {
	good := DefaultOptions()
	good.Hosts = []string{"127.0.0.1", "cassandra.example:9042", "[::1]:9042"}
	require.NoError(t, good.Validate())
	for words, change := range map[string]func(*Options){
		"no hosts are set; set one or more nodes as host:port": func(o *Options) { o.Hosts = nil },
		"the port must be a number":                            func(o *Options) { o.Hosts = []string{"a:b"} },
		"the host name is missing":                             func(o *Options) { o.Hosts = []string{":9042"} },
		"keyspace \"Metrics\"":                                 func(o *Options) { o.Keyspace = "Metrics" },
		"replication \"three\"":                                func(o *Options) { o.Replication = "three" },
		"consistency level \"ANY\"":                            func(o *Options) { o.Consistency = "ANY" },
		"a password is set without a username":                 func(o *Options) { o.Password = "x" },
		"TLS: certificate and key must be set together":        func(o *Options) { o.TLS = TLSOptions{Enabled: true, CertFile: "x"} },
		"TLS isn't enabled":                                    func(o *Options) { o.TLS.CAFile = "x" },
		"Timeout is 1ms":                                       func(o *Options) { o.Timeout = time.Millisecond },
		"ConnectTimeout is 0s":                                 func(o *Options) { o.ConnectTimeout = 0 },
		"MaxInFlight is 0":                                     func(o *Options) { o.MaxInFlight = 0 },
		"the retention is -1ns":                                func(o *Options) { o.Retention = -1 },
		"Logger is nil":                                        func(o *Options) { o.Logger = nil },
		"Now is nil":                                           func(o *Options) { o.Now = nil },
	} {
		o := good
		change(&o)
		require.ErrorContains(t, o.Validate(), words)
		_, err := Open(context.Background(), o)
		require.ErrorContains(t, err, words)
	}
}

func TestOpenUnreachable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	o := DefaultOptions()
	o.Hosts = []string{listener.Addr().String(), "nowhere.invalid"}
	require.NoError(t, listener.Close())
	requireRefusal(t, o, "no host responds; check that Cassandra is running there and accepts CQL connections",
		o.Hosts[0], "nowhere.invalid")
}

func TestOpenTLSFiles(t *testing.T) {
	o := DefaultOptions()
	o.Hosts = []string{"127.0.0.1:1"}
	o.TLS = TLSOptions{Enabled: true, CAFile: "testdata/none.pem"}
	requireRefusal(t, o, "testdata/none.pem")
	o.TLS.CAFile = "testdata/schema-year.cql"
	requireRefusal(t, o, "contains no PEM certificate")
}

func TestOpenRefuses(t *testing.T) {
	good := testOptions(t)
	t.Parallel()
	ownKeyspace(t, &good)
	for name, c := range map[string]struct {
		change func(*Options)
		words  []string
	}{
		"no such data center": {func(o *Options) { o.LocalDC = "mars" }, []string{"mars", "the cluster has"}},
		"no keyspace": {func(o *Options) { o.CreateSchema = false },
			[]string{"keyspace " + good.Keyspace + " doesn't exist", "cassia schema"}},
		"other data centers": {func(o *Options) { o.Replication = "mars:1" }, []string{"no copies in data center", "mars"}},
		"too few nodes":      {func(o *Options) { o.Replication = "99" }, []string{"LOCAL_QUORUM of 99 copies needs 50 nodes"}},
		"too few copies": {func(o *Options) { o.Replication, o.Consistency = "1", "THREE" },
			[]string{"THREE needs 3 copies", "has 1"}},
		"TLS": {func(o *Options) { o.TLS = TLSOptions{Enabled: true} }, []string{"TLS"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := good
			c.change(&o)
			requireRefusal(t, o, c.words...)
		})
	}
	session, err := good.openDirect(good.Hosts[0])
	require.NoError(t, err)
	defer session.Close()
	copies, err := readReplication(context.Background(), session, good.Keyspace)
	require.NoError(t, err)
	require.Nil(t, copies, "a refusal made the keyspace")
}

// TestOpenAtOnce checks that engines that are opened concurrently create one schema and see each other's rows, and that
// damaged schemas are rejected (testSpoiledSchema).
func TestOpenAtOnce(t *testing.T) {
	o := testOptions(t)
	t.Parallel()
	ownKeyspace(t, &o)
	o.Retention = 30 * 24 * time.Hour
	const engines = 4
	opened := make([]*Engine, engines)
	var opening sync.WaitGroup
	for i := range opened {
		opening.Go(func() {
			e, err := Open(context.Background(), o)
			if err != nil {
				t.Errorf("engine %d: %v", i, err)
				return
			}
			opened[i] = e
			if err := e.Write(context.Background(), []engine.Batch{stage(1, mutation(int64(i), nil))}); err != nil {
				t.Errorf("engine %d: %v", i, err)
			}
		})
	}
	opening.Wait()
	if t.Failed() {
		return
	}
	for _, e := range opened {
		require.Len(t, sizes(t, e, rangeOf(stage(1))), engines)
	}
	testFacts(t, opened[0])
	requireRead(t, opened[0], engine.Stage)
	for _, e := range opened {
		require.NoError(t, e.Close())
	}
	testSpoiledSchema(t, o)
}

// requireRead requires, by the nodes' statistics, that only one of a keyspace's tables has been read. Other keyspaces
// have tables with the same names.
func requireRead(t *testing.T, e *Engine, table *engine.Table) {
	nodes, err := e.Nodes(context.Background())
	require.NoError(t, err)
	read := map[string]bool{}
	for _, n := range nodes {
		for i, f := range n.Tables {
			require.Equal(t, engine.Tables[i].Name, f.Table)
			if f.RowsPerRead > 0 {
				read[f.Table] = true
			}
		}
	}
	require.Equal(t, map[string]bool{table.Name: true}, read)
}

// testFacts reads the facts of a new schema and of its cluster.
func testFacts(t *testing.T, e *Engine) {
	ctx := context.Background()
	differences, err := e.CompareSchema(ctx)
	require.NoError(t, err)
	require.Empty(t, differences)
	c, err := e.Cluster(ctx)
	require.NoError(t, err)
	require.NotEmpty(t, c.Name)
	require.Contains(t, c.dataCenters(), c.LocalDC)
	copies, err := e.Replication(ctx)
	require.NoError(t, err)
	require.Equal(t, map[string]int{c.LocalDC: min(3, len(c.local()))}, copies)
	nodes, err := e.Nodes(ctx)
	require.NoError(t, err)
	require.Len(t, nodes, len(c.local()))
	for _, n := range nodes {
		require.NoError(t, n.Err)
		require.True(t, n.Up)
		require.NotEmpty(t, n.Release)
		require.Contains(t, []string{"group", "batch", "periodic"}, n.CommitlogSync)
		require.Positive(t, n.ClockError)
		require.Less(t, n.ClockAhead.Abs(), 24*time.Hour)
		require.Len(t, n.Tables, len(engine.Tables))
	}
	_, err = e.Findings(ctx)
	require.NoError(t, err)
}

func testSpoiledSchema(t *testing.T, o Options) {
	longer := o
	longer.Timeout = 2 * schemaTimeout // as for Cassia's own changes of tables
	session, err := longer.openDirect(o.Hosts[0])
	require.NoError(t, err)
	defer session.Close()
	run := func(format string, args ...any) {
		require.NoError(t, session.Query(fmt.Sprintf(format, args...)).Consistency(gocql.One).Exec())
	}
	run("ALTER TABLE %s.raw WITH gc_grace_seconds = 5 AND compaction = {'class': 'SizeTieredCompactionStrategy'}",
		o.Keyspace)
	run("ALTER TABLE %s.tenants ADD note text", o.Keyspace)
	e := open(t, o)
	differences, err := e.CompareSchema(context.Background())
	require.NoError(t, err)
	require.NoError(t, e.Close())
	var what []string
	for _, d := range differences {
		what = append(what, d.Table+": "+d.What)
		require.NotEmpty(t, d.Do)
	}
	require.Equal(t, []string{
		"raw: its compaction is SizeTieredCompactionStrategy; this release uses TimeWindowCompactionStrategy",
		"raw: its compaction_window is none; this release uses 1 DAYS",
		"raw: its gc_grace_seconds is 5; this release uses 86400",
	}, what)
	for _, d := range differences {
		run("%s", d.Do)
	}
	live, err := readSchema(context.Background(), session, o.Keyspace)
	require.NoError(t, err)
	require.Empty(t, live.compare(&o), "after doing what was said")

	run("DROP TABLE %s.tenants", o.Keyspace)
	o.CreateSchema = false
	requireRefusal(t, o, "is missing the tables tenants", "cassia schema")
	o.CreateSchema = true
	run("CREATE TABLE %s.tenants (list bigint, tenant text, note text, PRIMARY KEY (list, tenant))", o.Keyspace)
	requireRefusal(t, o, "tenants wasn't created by Cassia", "no regular column data blob")
	run("ALTER TABLE %s.stage WITH comment = 'cassia schema 2: from the future'", o.Keyspace)
	requireRefusal(t, o, "stage has schema version 2, but this release supports version 1", "later release")
	err = AlterSchema(context.Background(), o, false, func(statement string) error {
		t.Errorf("a schema of a later release is altered: %s", statement)
		return nil
	})
	require.ErrorIs(t, err, ErrSettings)
	require.ErrorContains(t, err,
		"table stage: its comment has schema version 2; this release supports version 1; use a later release")
}

func TestFindings(t *testing.T) {
	node := func(address, sync string) NodeFacts {
		return NodeFacts{Node: Node{Address: address}, CommitlogSync: sync}
	}
	three := []NodeFacts{node("a:1", "group"), node("b:1", "group"), node("c:1", "batch")}
	require.Empty(t, findingsOf("ks", "dc1", three, replication{"dc1": 3}))
	require.Empty(t, findingsOf("ks", "dc1", three[:1], replication{"dc1": 1}))
	found := findingsOf(
		"ks", "dc1", append(three, node("e:1", "periodic"), node("d:1", "periodic")), replication{everyDataCenter: 1},
	)
	require.Len(t, found, 2)
	require.Contains(t, found[0].What, "periodic on d:1, e:1")
	require.Contains(t, found[0].Do, "commitlog_sync: group")
	require.Contains(t, found[1].What,
		"keeps 1 copy in data center dc1, which has 5 nodes: while a node is down, its rows are unavailable")
	require.Contains(t, found[1].Do, "'dc1': 3")
	require.Len(t, findingsOf("ks", "dc1", three, replication{"dc1": 2}), 1)
	require.Equal(t, "a, b, c, d, e and 2 more", joinShortened([]string{"a", "b", "c", "d", "e", "f", "g"}))
}

func TestConsistencyAgainstReplication(t *testing.T) {
	cluster := func(nodes map[string]int) *Cluster {
		c := &Cluster{LocalDC: "dc1"}
		for dc, n := range nodes {
			for range n {
				c.Nodes = append(c.Nodes, Node{DataCenter: dc})
			}
		}
		return c
	}
	one, three := cluster(map[string]int{"dc1": 1}), cluster(map[string]int{"dc1": 3})
	two := cluster(map[string]int{"dc1": 3, "dc2": 1})
	for _, c := range []struct {
		consistency string
		cluster     *Cluster
		copies      replication
		want        string
	}{
		{"LOCAL_QUORUM", one, replication{"dc1": 1}, ""},
		{
			"LOCAL_QUORUM", one, replication{everyDataCenter: 3},
			"needs 2 nodes, but the cluster has 1 in data center dc1",
		},
		{"LOCAL_QUORUM", three, replication{everyDataCenter: 3}, ""},
		{"LOCAL_QUORUM", three, replication{everyDataCenter: 1}, ""},
		{"LOCAL_QUORUM", two, replication{"dc2": 1}, "no copies in data center dc1"},
		{"QUORUM", one, replication{"dc1": 1}, ""},
		{"QUORUM", two, replication{"dc1": 3, "dc2": 3}, ""},
		{"QUORUM", one, replication{"dc1": 3}, "QUORUM of 3 copies needs 2 nodes, but the cluster has 1"},
		{"TWO", one, replication{"dc1": 1}, "TWO needs 2 copies, but keyspace cassia has 1"},
		{"ALL", one, replication{"dc1": 2}, "ALL of 2 copies needs 2 nodes"},
		{"EACH_QUORUM", two, replication{"dc1": 3, "dc2": 3}, "needs 2 nodes, but the cluster has 1 in data center dc2"},
		{"EACH_QUORUM", two, replication{"dc1": 3, "dc2": 1}, ""},
		{"LOCAL_ONE", one, replication{"dc1": 3}, ""},
	} {
		o := DefaultOptions()
		o.Consistency = c.consistency
		err := checkConsistency(&o, c.cluster, c.copies)
		if c.want == "" {
			require.NoError(t, err, "%+v", c)
		} else {
			require.ErrorContains(t, err, c.want, "%+v", c)
			require.ErrorIs(t, err, ErrSettings)
		}
	}
}
