package e2e

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
	"github.com/cassia-db/cassia/storage/cassandra/cassandratest"
)

// Times of the imported history in milliseconds. kairosEdge is the start of a KairosDB row.
const (
	kairosEdge = int64(952 * 21 * 24 * 60 * 60 * 1000)
	aDay       = int64(24 * 60 * 60 * 1000)
	kairosFrom = kairosEdge - 10*aDay
	kairosTo   = kairosEdge + 15*aDay
)

const kairosMapping = `
metrics:
  - {name: cpu.usage, to: node_cpu_usage}
  - {match: 'app\.(.+)\.jobs', to: app_jobs, labels: {app: $1}}
  - {match: 'kairosdb\..*', drop: true}
tags: {host: instance, "data center": dc}
drop_tags: [build]
`

// kairosMetric is a metric with its names in KairosDB and in Cassia, and its tags with the corresponding labels.
type kairosMetric struct {
	from, to string
	tags     map[string]string
	add      map[string]string
}

// kairosHistory returns the series that are written through KairosDB's API. They contain doubles and integers of all
// sizes, series with both, some points with the same time, strings, and tags with characters that KairosDB escapes in
// its keys. They extend over multiple rows, slices and days, and have points at their edges.
func kairosHistory() []kairosSeries {
	r := rand.New(rand.NewPCG(1, 2))
	doubles := []float64{
		0, math.Copysign(0, -1), -1.5, 3, 1e300, -math.MaxFloat64, 5e-324, 0.1, 1.0 / 3, -2e-10, 123456789.123456789,
		1 << 60,
	}
	longs := []int64{0, -1, 1, 127, 128, -129, 1 << 53, 1<<53 + 1, -1<<53 - 1, math.MaxInt64, math.MinInt64, 300}
	double := func(v float64) any { return json.Number(strconv.FormatFloat(v, 'g', -1, 64)) }
	var all []kairosSeries
	for _, host := range []string{"a", "b"} {
		s := kairosSeries{
			Name: "cpu.usage", Type: "double", Tags: map[string]string{"host": host, "data center": "eu", "build": "7"},
		}
		for i := range 600 {
			v := r.NormFloat64() * 100
			if i < len(doubles) {
				v = doubles[i]
			}
			s.Points = append(s.Points, [2]any{kairosFrom + int64(i)*(kairosTo-kairosFrom)/600, double(v)})
		}
		for _, edge := range []int64{kairosEdge, kairosEdge + 7*aDay, kairosEdge - 3*aDay} {
			for d := int64(-1); d <= 1; d++ {
				s.Points = append(s.Points, [2]any{edge + d, double(float64(d) + 0.25)})
			}
		}
		all = append(all, s)
	}
	for n, tag := range []string{"http://x:80/?a=b", "plain"} {
		s := kairosSeries{
			Name: fmt.Sprintf("app.shop-%d.jobs", n), Type: "long", Tags: map[string]string{"url": tag, "a=b:c": "ü"},
		}
		for i := range 300 {
			v := r.Int64()
			if i < len(longs) {
				v = longs[i]
			}
			s.Points = append(s.Points, [2]any{kairosEdge + int64(i-100)*aDay/20, v})
		}
		all = append(all, s)
	}
	// If the type is missing, KairosDB parses a value with a decimal point as a double.
	mixed := kairosSeries{Name: "mixed", Tags: map[string]string{"host": "a"}}
	text := kairosSeries{Name: "text", Type: "string", Tags: map[string]string{"host": "a"}}
	for i := range int64(100) {
		v := json.Number(strconv.FormatInt(i-50, 10))
		if i%3 == 0 {
			v += ".5"
		}
		mixed.Points = append(mixed.Points, [2]any{kairosEdge + (i-50)*1000, v})
		if i%10 == 0 { // an integer and a double with the same time
			mixed.Points = append(mixed.Points, [2]any{kairosEdge + (i-50)*1000, json.Number("7")}, [2]any{
				kairosEdge + (i-50)*1000, json.Number("-7.5"),
			})
		}
		text.Points = append(text.Points, [2]any{kairosEdge + i*aDay/10, fmt.Sprint("text ", i)})
	}
	return append(all, mixed, text)
}

var kairosMetrics = []kairosMetric{
	{"cpu.usage", "node_cpu_usage", map[string]string{"host": "instance", "data center": "dc"}, nil},
	{"app.shop-0.jobs", "app_jobs", map[string]string{"url": "url", "a=b:c": "a_b_c"}, map[string]string{"app": "shop-0"}},
	{"app.shop-1.jobs", "app_jobs", map[string]string{"url": "url", "a=b:c": "a_b_c"}, map[string]string{"app": "shop-1"}},
	{"mixed", "mixed", map[string]string{"host": "instance"}, nil},
	{"text", "text", map[string]string{"host": "instance"}, nil},
}

// ask returns all values of the metrics from KairosDB.
func (k *kairosRig) ask(ctx context.Context, t *testing.T, metrics []kairosMetric) kairosValues {
	all := kairosValues{}
	for _, m := range metrics {
		k.values(ctx, t, all, m, kairosFrom-aDay, kairosTo+aDay)
	}
	return all
}

// fill writes the history and deletes a part of it.
func (k *kairosRig) fill(ctx context.Context, t *testing.T) {
	t.Helper()
	gone := kairosSeries{
		Name: "gone", Tags: map[string]string{"host": "a"}, Points: [][2]any{{kairosEdge, 1}, {kairosEdge + 1, 2}},
	}
	history := append(kairosHistory(), gone)
	k.post(ctx, t, "/api/v1/datapoints", history)
	metrics := append([]kairosMetric{{"gone", "gone", map[string]string{"host": "host"}, nil}}, kairosMetrics...)
	// KairosDB queues points before it writes them. Some points of cpu.usage have the same time and count once.
	const points = 2*606 + 2*300 + 100 + 2
	require.Eventually(t, func() bool { return k.ask(ctx, t, metrics).points() == points }, cassiatest.Patience,
		200*time.Millisecond, "KairosDB shows what it was given")

	some := kairosQuery("cpu.usage", kairosEdge-2*aDay, kairosEdge-aDay)
	some["metrics"].([]any)[0].(map[string]any)["tags"] = map[string]any{"host": []string{"a"}}
	k.post(ctx, t, "/api/v1/datapoints/delete", some)
	request, err := http.NewRequestWithContext(ctx, http.MethodDelete, k.URL()+"/api/v1/metric/gone", nil)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusNoContent, answer.StatusCode)
	require.Eventually(t, func() bool { return k.ask(ctx, t, metrics).points() == points-2-25 }, cassiatest.Patience,
		200*time.Millisecond, "KairosDB hides what was deleted")
}

// legacyRows returns CQL statements that create a keyspace in the format of KairosDB releases before 1.2, with points
// in the oldest format. In such a keyspace, a bit in the column contains the type.
func legacyRows(keyspace string) []string {
	table := " (key blob, column1 %s, value blob, PRIMARY KEY (key, column1))"
	cql := []string{
		"CREATE KEYSPACE " + keyspace + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
		"CREATE TABLE " + keyspace + ".data_points" + fmt.Sprintf(table, "blob"),
		"CREATE TABLE " + keyspace + ".row_key_index" + fmt.Sprintf(table, "blob"),
		"CREATE TABLE " + keyspace + ".string_index" + fmt.Sprintf(table, "text"),
		fmt.Sprintf("INSERT INTO %s.string_index (key, column1, value) VALUES (0x%x, 'old', 0x00)",
			keyspace, "metric_names"),
	}
	for _, row := range []int64{kairosEdge - 21*aDay, kairosEdge} {
		key := append([]byte("old\x00"), byte(row>>56), byte(row>>48), byte(row>>40), byte(row>>32), byte(row>>24),
			byte(row>>16), byte(row>>8), byte(row))
		key = append(key, "dc=eu:host=a:"...)
		cql = append(cql, fmt.Sprintf("INSERT INTO %s.row_key_index (key, column1, value) VALUES (0x%x, 0x%x, 0x00)",
			keyspace, "old", key))
		for i, value := range []string{
			"", "01", "0102", "ffffffffffffffff", "8000000000000000", "7fffffffffffffff", // integers
			"013dcccccd", "01ff7fffff", "023fb999999999999a", "00c093480000000000", // floats and doubles
		} {
			flag := uint32(0)
			if i > 5 {
				flag = 1
			}
			column := (uint32(14*aDay)+uint32(i)*1000)<<1 | flag
			cql = append(cql, fmt.Sprintf(
				"INSERT INTO %s.data_points (key, column1, value) VALUES (0x%s, 0x%08x, 0x%s)", keyspace,
				hex.EncodeToString(key), column, value,
			))
		}
	}
	return cql
}

// kairosImport holds the command line of an import from KairosDB.
type kairosImport struct {
	binary, dir, data, checkpoint, mapping string
	// to contains the flags of the destination, which are also valid for a server on it.
	to, args []string
}

// newKairosImport returns an import into a new directory, or into the destination set by the flags in to.
func newKairosImport(t *testing.T, binary string, hosts []string, keyspace string, to ...string) *kairosImport {
	dir := t.TempDir()
	i := &kairosImport{
		binary: binary, dir: dir, data: filepath.Join(dir, "data"), checkpoint: filepath.Join(dir, "checkpoint"),
		mapping: filepath.Join(dir, "mapping.yaml"),
	}
	require.NoError(t, os.WriteFile(i.mapping, []byte(kairosMapping), 0o600))
	i.to = append([]string{"--storage.path=" + i.data, "--retention.raw=0"}, to...)
	i.args = append([]string{
		"import", "kairosdb", "--kairosdb.hosts=" + strings.Join(hosts, ","), "--kairosdb.keyspace=" + keyspace,
		"--mapping.file=" + i.mapping, "--checkpoint=" + i.checkpoint,
	}, i.to...)
	return i
}

func (i *kairosImport) run(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	return cassiatest.Command(t, i.binary, append(append([]string{}, i.args...), args...)...)
}

// killed starts the import with small batches and kills it once some of them are stored. If the import finishes before
// that, it tries again.
func (i *kairosImport) killed(ctx context.Context, t *testing.T) {
	t.Helper()
	for i.killOnce(ctx, t) {
		require.NoError(t, os.Remove(i.checkpoint))
		require.NoError(t, os.RemoveAll(i.data))
	}
}

// killOnce reports whether the import was complete before it could be killed.
func (i *kairosImport) killOnce(ctx context.Context, t *testing.T) (complete bool) {
	t.Helper()
	cmd := exec.CommandContext(ctx, i.binary, append(append([]string{}, i.args...), "--kairosdb.batch-bytes=1KiB")...)
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool {
		_, err := os.Stat(i.checkpoint)
		return err == nil
	}, cassiatest.Patience, time.Millisecond)
	_ = cmd.Process.Kill() // It may have exited already.
	_ = cmd.Wait()
	text, err := os.ReadFile(i.checkpoint)
	require.NoError(t, err)
	var at struct {
		Position string
		Done     float64
		Complete bool
	}
	require.NoError(t, json.Unmarshal(text, &at))
	t.Logf("killed after %.0f%%, complete: %t", 100*at.Done, at.Complete)
	return at.Complete
}

// TestImportKairosDB fills a real KairosDB through its API, imports its keyspace, and requires that Cassia returns the
// same values as KairosDB.
func TestImportKairosDB(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped in short mode: starts KairosDB")
	}
	t.Parallel()
	hosts := cassandratest.Hosts(t)
	binary := builtCassia(t)
	t.Run("a keyspace that 1.3 made, into a directory", func(t *testing.T) {
		t.Parallel()
		ctx := t.Context()
		k := startKairosDB(ctx, t, hosts, cassandratest.OwnKeyspace(t, hosts))
		k.fill(ctx, t)
		want := k.ask(ctx, t, kairosMetrics)
		k.Kill()
		require.Len(t, want, 5)

		i := newKairosImport(t, binary, hosts, k.keyspace)
		out, _, status := i.run(t, "--dry-run")
		require.Zero(t, status)
		require.Contains(t, out, "unit MILLISECONDS")
		require.Contains(t, out,
			"cpu.usage → node_cpu_usage: 2 series; tags build dropped, data center → dc, host → instance\n")
		require.Contains(t, out, "app.shop-0.jobs → app_jobs: 1 series; tags a=b:c → a_b_c, url\n")
		require.Contains(t, out, "5 KairosDB metrics")
		require.Contains(t, out, "rows of type kairos_string skipped")
		require.NoDirExists(t, i.data)

		require.NoError(t, os.WriteFile(
			i.mapping, []byte("drop_tags: [host]\nmetrics: [{match: 'kairosdb\\..*', drop: true}]"), 0o600,
		))
		_, complaint, status := i.run(t)
		require.Equal(t, 1, status)
		require.Contains(t, complaint,
			`cpu.usage{build="7", data center="eu", host="b"} would both become {__name__="cpu_usage", build="7", data_center="eu"}`)
		require.NoDirExists(t, i.data)

		require.NoError(t, os.WriteFile(i.mapping, []byte(kairosMapping), 0o600))
		i.killed(ctx, t)
		out, complaint, status = i.run(t, "--verify")
		require.Zero(t, status, complaint)
		require.Contains(t, out, "skipped points of type kairos_string of metric text: the values are not numbers")
		i.compare(ctx, t, want)
	})
	t.Run("a keyspace of older releases, into Cassandra", func(t *testing.T) {
		t.Parallel()
		ctx := t.Context()
		keyspace := cassandratest.OwnKeyspace(t, hosts)
		cassandratest.Run(t, hosts, legacyRows(keyspace)...)
		k := startKairosDB(ctx, t, hosts, keyspace)
		k.fill(ctx, t)
		metrics := append(
			[]kairosMetric{{"old", "old", map[string]string{"host": "instance", "dc": "dc"}, nil}}, kairosMetrics...,
		)
		want := k.ask(ctx, t, metrics)
		k.Kill()
		require.Len(t, want, 6)
		require.Len(t, want[`{__name__="old", dc="eu", instance="a"}`], 20)

		i := newKairosImport(t, binary, hosts, keyspace, cassiatest.OnCassandra(t)...)
		out, _, status := i.run(t, "--dry-run")
		require.Zero(t, status)
		require.Contains(t, out, "unit LEGACY")
		require.Contains(t, out, "old → old: 1 series; tags dc, host → instance\n")
		_, complaint, status := i.run(t, "--verify")
		require.Zero(t, status, complaint)
		i.compare(ctx, t, want)
	})
}

// compare starts a server on the imported store and compares its values with KairosDB's.
func (i *kairosImport) compare(ctx context.Context, t *testing.T, want kairosValues) {
	t.Helper()
	address, err := promrig.FreeAddress()
	require.NoError(t, err)
	server, err := promrig.StartReady(ctx, promrig.Program{
		Name: "cassia", Path: i.binary, Address: address, ReadyPath: "/-/ready",
		Log:  filepath.Join(i.dir, "cassia.log"),
		Args: append([]string{"serve", "--web.listen-address=" + address, "--no-self-monitoring"}, i.to...),
	})
	require.NoError(t, err)
	defer server.Kill()
	want.equal(t, cassiaValues(ctx, t, server.URL(), `{__name__=~".+"}`, kairosFrom-aDay, kairosTo+aDay))
	t.Logf("%d values of %d series are equal", want.points(), len(want))
}
