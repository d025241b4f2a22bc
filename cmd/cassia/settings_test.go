package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter/remotewrite"
	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/config"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/cassandra"
	"github.com/cassia-db/cassia/storage/cassandra/cassandratest"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// The keyspaces of these tests.
const (
	soundKeyspace  = "sound"  // created by cassia
	emptyKeyspace  = "empty"  // has no tables
	futureKeyspace = "future" // created by a later release
	guestUser      = "guest"  // a user without permissions
)

// TestCassandraSettings checks that cassia reports settings that don't match the cluster in one line that names the
// remedy.
func TestCassandraSettings(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a Cassandra node: leave -short out")
	}
	node := cassandratest.StartCluster(t, 1, cassandratest.Options{
		Password: true, CommitLog: "periodic", Heap: "512M", Config: "partition_keys_in_select_fail_threshold: 8",
	})
	require.NoError(t, node.Query(
		"CREATE ROLE "+guestUser+" WITH PASSWORD = '"+guestUser+"' AND LOGIN = true",
		"CREATE KEYSPACE "+emptyKeyspace+" WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
		"CREATE KEYSPACE "+futureKeyspace+" WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
		"CREATE TABLE "+futureKeyspace+".stage (a int PRIMARY KEY) WITH comment = 'cassia schema 99: something new'",
	))
	o := cassandra.DefaultOptions()
	o.Hosts, o.Keyspace = node.Hosts(), soundKeyspace
	o.Username, o.Password = cassandratest.Username, cassandratest.Password
	o.Timeout, o.ConnectTimeout = time.Minute, time.Minute // The node may pause for seconds on a busy machine.

	eng := testPeriodicIsTold(t, o)
	defer func() { require.NoError(t, eng.Close()) }()
	testClocks(t, eng)
	testGuardrail(t, node, o)
	testRefusals(t, node.Hosts()[0])
}

// testGuardrail reads many partitions as a user with a limit: the node rejects each request of this user for more than
// eight partitions. The engine must then read the partitions one at a time, and report this in one log line.
func testGuardrail(t *testing.T, node *cassandratest.Cluster, o cassandra.Options) {
	require.NoError(t, node.Query("CREATE ROLE reader WITH PASSWORD = 'reader' AND LOGIN = true",
		"GRANT SELECT ON KEYSPACE "+soundKeyspace+" TO reader", "GRANT MODIFY ON KEYSPACE "+soundKeyspace+" TO reader"))
	var log lockedBuffer
	o.Username, o.Password, o.Logger = "reader", "reader", slog.New(slog.NewTextHandler(&log, nil))
	eng, err := cassandra.Open(t.Context(), o)
	require.NoError(t, err)
	defer func() { require.NoError(t, eng.Close()) }()
	var partitions []engine.Key
	for i := range 20 {
		partitions = append(partitions, engine.Key{
			engine.Int(7), engine.Int(0), engine.Text("t"), engine.Text(fmt.Sprintf("metric %d", i)), engine.Int(0),
		})
		require.NoError(t, eng.Write(t.Context(),
			[]engine.Batch{{Table: engine.Raw, Partition: partitions[i], Mutations: []engine.Mutation{{
				Clustering: engine.Key{
					engine.Int(1), engine.Int(2), engine.Text(strings.Repeat("i", 16)),
					engine.Text(strings.Repeat("v", 16)),
				}, Timestamp: 1, Value: []byte{byte(i)},
			}}}}))
	}
	for range 2 {
		found := map[int][]byte{}
		for row, err := range eng.ScanSeveral(t.Context(), engine.Range{Table: engine.Raw}, partitions) {
			require.NoError(t, err)
			found[row.At] = append(found[row.At], row.Value...)
		}
		require.Len(t, found, len(partitions))
		for i, value := range found {
			require.Equal(t, []byte{byte(i)}, value)
		}
	}
	require.Equal(
		t, 1, strings.Count(log.String(), "partition_keys_in_select_fail_threshold in cassandra.yaml"), log.String(),
	)
}

// testPeriodicIsTold corrects the keyspace and requires a warning about the node's commit log settings.
func testPeriodicIsTold(t *testing.T, o cassandra.Options) openedEngine {
	var log lockedBuffer
	eng, err := openEngine(t.Context(), &config.Engine{Kind: config.EngineCassandra, Cassandra: o}, openOptions{
		log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	require.NoError(t, err)
	require.Eventually(
		t, func() bool { return strings.Contains(log.String(), "periodic") }, cassiatest.Patience, 20*time.Millisecond,
	)
	var told []string
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "level=WARN") {
			told = append(told, line)
		}
	}
	require.Len(t, told, 1, log.String())
	require.Contains(t, told[0], "commitlog_sync is periodic on "+o.Hosts[0])
	require.Contains(t, told[0], "set commitlog_sync: group and commitlog_sync_group_window: 10ms in cassandra.yaml")
	return eng
}

// lockedBuffer is a log that can be read while it is written.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// testClocks runs processes with different clocks on one store. A process whose clock is off by a few hours works
// normally. A process whose clock is off by more rejects all samples and returns the reason.
func testClocks(t *testing.T, eng openedEngine) {
	at := time.Now().Truncate(time.Second)
	for name, c := range map[string]struct {
		off    time.Duration
		status int
		text   string
	}{
		"right":  {0, http.StatusNoContent, ""},
		"behind": {-5 * time.Hour, http.StatusNoContent, ""},
		"ahead":  {5 * time.Hour, http.StatusNoContent, ""},
		// The difference varies because, on a busy machine, seconds pass until the process reads the cluster's clock.
		"too_far":  {7 * time.Hour, http.StatusServiceUnavailable, `this machine's clock is untrusted: \S+ is 7h0m\d+s ahead of the cluster's; correct the clock`},
		"too_late": {-7 * time.Hour, http.StatusServiceUnavailable, `this machine's clock is untrusted: \S+ is (7h0m0|6h59m\d+)s behind the cluster's; correct the clock`},
	} {
		var log bytes.Buffer
		so := storage.DefaultOptions()
		so.Shared, so.Self = true, membership.Process{Name: name, Target: "all"}
		so.Now = func() time.Time { return time.Now().Add(c.off) }
		so.Logger = slog.New(slog.NewTextHandler(&log, nil))
		s, err := storage.Open(t.Context(), eng, so)
		require.NoError(t, err)
		write, err := remotewrite.Handler(s, remotewrite.DefaultOptions())
		require.NoError(t, err)
		sent := at
		if c.off < -6*time.Hour { // Otherwise the sample would be too far in the future for its clock.
			sent = at.Add(c.off)
		}
		body, err := (&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
			Labels:  []prompb.Label{{Name: "__name__", Value: "clock_" + name}},
			Samples: []prompb.Sample{{Timestamp: sent.UnixMilli(), Value: 1}},
		}}}).Marshal()
		require.NoError(t, err)
		request := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(snappy.Encode(nil, body)))
		request.Header.Set("Content-Type", "application/x-protobuf")
		request.Header.Set("Content-Encoding", "snappy")
		answer := httptest.NewRecorder()
		write.ServeHTTP(answer, request)
		require.Equal(t, c.status, answer.Code, "%s: %s", name, answer.Body)
		require.Regexp(t, c.text, answer.Body.String(), name)
		require.NoError(t, s.WaitReady(t.Context()))
		if c.off == 0 { // By now every accepted sample is readable.
			require.NoError(t, s.SealAll(t.Context()))
		}
		require.NoError(t, s.Close())
		require.Equal(t, c.status == http.StatusServiceUnavailable,
			strings.Contains(log.String(), "so no samples are accepted"), log.String())
	}
	requireClocks(t, eng, at)
}

// requireClocks requires that the samples of processes with acceptable clocks are stored, and no others.
func requireClocks(t *testing.T, eng openedEngine, at time.Time) {
	s := storagetest.Start(t, eng, storagetest.SharedTarget("reader", "read"))
	defer func() { require.NoError(t, s.Close()) }()
	names, err := s.LabelValues(t.Context(), "__name__", query.Query{
		Tenant: "default", MinT: at.Add(-time.Hour).UnixMilli(), MaxT: at.Add(time.Hour).UnixMilli(),
	})
	require.NoError(t, err)
	require.Equal(t, []string{"clock_ahead", "clock_behind", "clock_right"}, names)
}

// testRefusals starts cassia with settings that can't work. It must exit with status 1 and a one-line error.
func testRefusals(t *testing.T, host string) {
	t.Setenv("CASSIA_CASSANDRA_PASSWORD", cassandratest.Password)
	file := func(password string) string {
		path := filepath.Join(t.TempDir(), "password")
		require.NoError(t, os.WriteFile(path, []byte(password+"\n"), 0o600))
		return "--cassandra.password-file=" + path
	}
	at := func(keyspace string, more ...string) []string {
		return append([]string{
			"--storage.engine=cassandra", "--cassandra.hosts=" + host, "--cassandra.keyspace=" + keyspace,
			"--cassandra.timeout=1m",
		}, more...)
	}
	as := "--cassandra.username=" + cassandratest.Username
	asGuest := []string{"--cassandra.username=" + guestUser, file(guestUser)}
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"wrong password": {at("x", as, file("wrong")), []string{
			`login failed for user "cassandra"; check the username and the password`, "--cassandra.password-file"}},
		"missing password": {at("x"), []string{
			"Cassandra requires a username and a password, but none are set", "--cassandra.username",
			"--cassandra.password-file"}},
		"no such password file": {at("x", as, "--cassandra.password-file=nowhere"), []string{
			"--cassandra.password-file=nowhere: ", "no such file"}},
		"no rights to make the keyspace": {at("x", asGuest...), []string{
			`user "guest" has no permission to change the schema; create the schema with ` +
				"`cassia schema | cqlsh`"}},
		"no rights in the keyspace": {at(soundKeyspace, asGuest...), []string{
			`user "guest" has no permission; run GRANT SELECT, MODIFY ON KEYSPACE sound TO guest`}},
		"more copies wanted than kept": {at(soundKeyspace, as, "--cassandra.consistency=TWO"), []string{
			"consistency level TWO needs 2 copies, but keyspace sound has 1; raise the replication factor, or use LOCAL_QUORUM"}},
		"more copies than nodes": {at("x", as, "--cassandra.replication=3"), []string{
			"consistency level LOCAL_QUORUM of 3 copies needs 2 nodes, but the cluster has 1",
			"lower the replication factor of keyspace x, or add nodes"}},
		"another data center": {at("x", as, "--cassandra.local-dc=mars"), []string{
			`no node is in data center "mars"; the cluster has datacenter1`}},
		"unreachable": {[]string{
			"--storage.engine=cassandra", "--cassandra.hosts=127.0.0.1:1,nowhere.invalid",
		}, []string{
			"no host responds; check that Cassandra is running there and accepts CQL connections", "nowhere.invalid"}},
		"other slots": {at(soundKeyspace, as, "--storage.slot=4h"), []string{
			"slots of 2h", "but the flags set",
			"check --storage.slot and --storage.partitions, or choose another store"}},
		"other partitions": {at(soundKeyspace, as, "--storage.partitions=32"), []string{
			"16 partitions", "but the flags set",
			"check --storage.slot and --storage.partitions, or choose another store"}},
		"no keyspace": {at("x", as, "--no-cassandra.create-schema"), []string{
			"keyspace x doesn't exist; create the schema with `cassia schema | cqlsh`"}},
		"no tables": {at(emptyKeyspace, as, "--no-cassandra.create-schema"), []string{
			"keyspace empty is missing the tables catalog, ",
			"create the schema with `cassia schema | cqlsh`, or let Cassia create it"}},
		"a newer schema": {at(futureKeyspace, as), []string{
			"table future.stage has schema version 99, but this release supports version 1; use a later release, or another keyspace"}},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			require.Equal(t, 1, run(append([]string{"serve", "--web.listen-address=127.0.0.1:0"}, c.args...), &stderr))
			requireOneLine(t, stderr.String(), c.want...)
		})
	}
	t.Run("check of a keyspace that isn't there", func(t *testing.T) {
		var stderr bytes.Buffer
		require.Equal(t, 1, run(append([]string{"check"}, at("x", as)...), &stderr))
		requireOneLine(t, stderr.String(), "keyspace x doesn't exist")
	})
}

func requireOneLine(t *testing.T, text string, want ...string) {
	t.Helper()
	t.Log(strings.TrimSpace(text))
	require.True(t, strings.HasPrefix(text, "cassia: --"), "it should begin with the flags: %s", text)
	require.Equal(t, 1, strings.Count(text, "\n"), "one line: %s", text)
	require.Less(t, len(text), 600, "one can read it")
	for _, w := range want {
		require.Contains(t, text, w)
	}
}
