package cassandra

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/cassandra/cassandratest"
	"github.com/cassia-db/cassia/storage/engine"
)

// hostsVariable is the environment variable with nodes of a cluster in which the tests may create keyspaces.
const hostsVariable = "CASSANDRA_HOSTS"

// comesWithin is the max time that a test waits for an event on a busy machine.
const comesWithin = 3 * time.Minute

// sharedKeyspace is created by the first test that needs one, and dropped at the end, because creating its tables takes
// longer than most tests. Engines on it use separate partitions.
var sharedKeyspace = fmt.Sprintf("cassia_test_%08x", rand.Uint32())

func TestMain(m *testing.M) {
	code := m.Run()
	if hosts := os.Getenv(hostsVariable); hosts != "" {
		if err := cassandratest.DropKeyspace(strings.Split(hosts, ","), sharedKeyspace); err != nil {
			fmt.Fprintln(os.Stderr, "drop the tests' keyspace:", err)
			code = 1
		}
	} else {
		fmt.Fprintf(os.Stderr,
			"SKIPPED: everything that needs a real Cassandra, for %s isn't set (host:port,host:port)\n", hostsVariable)
	}
	if err := cassandratest.CheckLeaks(comesWithin); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// testHosts returns the hosts, and skips the test if there is no Cassandra.
func testHosts(t testing.TB) []string {
	hosts := os.Getenv(hostsVariable)
	if hosts == "" {
		t.Skipf("NO CASSANDRA: set %s to the addresses of a cluster's nodes (host:port,host:port) to run this test",
			hostsVariable)
	}
	return strings.Split(hosts, ",")
}

// testOptions returns options for the shared keyspace. Timeouts are long because Cassandra and its disks can hang for
// seconds on a busy machine.
func testOptions(t testing.TB) Options {
	o := DefaultOptions()
	o.Timeout, o.ConnectTimeout = time.Minute, time.Minute
	o.Hosts = testHosts(t)
	o.Keyspace = sharedKeyspace
	return o
}

// ownKeyspace sets o to a separate keyspace, which doesn't exist yet.
func ownKeyspace(t testing.TB, o *Options) {
	o.Keyspace = fmt.Sprintf("cassia_test_%08x", rand.Uint32())
	t.Cleanup(func() { require.NoError(t, cassandratest.DropKeyspace(o.Hosts, o.Keyspace)) })
}

func open(t testing.TB, o Options) *Engine {
	t.Helper()
	e, err := Open(context.Background(), o)
	require.NoError(t, err)
	return e
}

// openApart opens an engine in which rows of other tests are invisible.
func openApart(t testing.TB) *apart {
	return &apart{Engine: open(t, testOptions(t)), by: rand.Int64(), prefix: fmt.Sprintf("%016x ", rand.Uint64())}
}

// apart is an engine with separate partitions: it maps the first field of every partition key one to one. Partitions
// have no order, so nothing else changes.
type apart struct {
	*Engine
	by     int64
	prefix string
}

func (a *apart) partition(t *engine.Table, key engine.Key) engine.Key {
	if len(key) == 0 {
		return key
	}
	moved := append(engine.Key{}, key...)
	switch t.Partition[0].Kind {
	case engine.KindInt:
		moved[0].Int += a.by
	case engine.KindText:
		moved[0].Text = a.prefix + key[0].Text
	case engine.KindID:
		id := []byte(key[0].Text)
		for i := range min(len(id), len(a.prefix)) {
			id[i] ^= a.prefix[i]
		}
		moved[0].Text = string(id)
	}
	return moved
}

func (a *apart) Write(ctx context.Context, batches []engine.Batch) error {
	moved := append([]engine.Batch{}, batches...)
	for i := range moved {
		if moved[i].Table != nil {
			moved[i].Partition = a.partition(moved[i].Table, moved[i].Partition)
		}
	}
	return a.Engine.Write(ctx, moved)
}

func (a *apart) Occupied(ctx context.Context, t *engine.Table, partitions []engine.Key) ([]bool, error) {
	moved := make([]engine.Key, len(partitions))
	for i := range partitions {
		moved[i] = a.partition(t, partitions[i])
	}
	return a.Engine.Occupied(ctx, t, moved)
}

func (a *apart) ScanSeveral(
	ctx context.Context, r engine.Range, partitions []engine.Key,
) iter.Seq2[engine.RowOf, error] {
	moved := make([]engine.Key, len(partitions))
	for i := range partitions {
		moved[i] = a.partition(r.Table, partitions[i])
	}
	return a.Engine.ScanSeveral(ctx, r, moved)
}

func (a *apart) Partitions(
	ctx context.Context, t *engine.Table, prefix engine.Key, damaged func(engine.Damage),
) iter.Seq2[engine.Key, error] {
	return func(yield func(engine.Key, error) bool) {
		for key, err := range a.Engine.Partitions(ctx, t, a.partition(t, prefix), damaged) {
			if err == nil {
				switch key = key.Clone(); t.Partition[0].Kind {
				case engine.KindInt:
					key[0].Int -= a.by
				case engine.KindText:
					own := false
					if key[0].Text, own = strings.CutPrefix(key[0].Text, a.prefix); !own {
						continue
					}
				case engine.KindID:
					key = a.partition(t, key)
				}
			}
			if !yield(key, err) {
				return
			}
		}
	}
}

func (a *apart) Scan(ctx context.Context, r engine.Range) iter.Seq2[engine.Row, error] {
	r.Partition = a.partition(r.Table, r.Partition)
	return a.Engine.Scan(ctx, r)
}

func (a *apart) CompareAndSet(
	ctx context.Context, t *engine.Table, partition, clustering engine.Key, old, value []byte,
) (bool, []byte, error) {
	return a.Engine.CompareAndSet(ctx, t, a.partition(t, partition), clustering, old, value)
}
