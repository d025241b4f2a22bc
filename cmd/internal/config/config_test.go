package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/stretchr/testify/require"
)

// parse parses and validates a command line.
func parse(t *testing.T, args ...string) (*Config, error) {
	t.Helper()
	app := kingpin.New("cassia", "")
	c := RegisterFlags(app.Command("serve", ""), 16<<30)
	if _, err := app.Parse(append([]string{"serve"}, args...)); err != nil {
		return nil, err
	}
	return c, c.Validate()
}

func TestDefaults(t *testing.T) {
	c, err := parse(t)
	require.NoError(t, err)
	require.Equal(t, []string{":9201"}, c.ListenAddresses)
	require.Equal(t, []string{":9201"}, c.PublicAddresses())
	require.False(t, c.AdminAPI)
	require.Equal(t, EnginePebble, c.Kind)
	require.Equal(t, "data", c.Path)
	require.Equal(t, "all", c.Target)
	require.Zero(t, c.Partitions)
	require.True(t, c.AnySettings)
	require.Equal(t, 2*time.Hour, c.Slot)
	require.Equal(t, 15*time.Minute, c.Settle)
	require.Equal(
		t, Retention{Raw: 30 * 24 * time.Hour, FiveMinutes: 365 * 24 * time.Hour, OneHour: 5 * 365 * 24 * time.Hour},
		c.Retention,
	)
	require.Equal(t, 2*time.Minute, c.QueryTimeout)
	require.Equal(t, 5*time.Minute, c.LookbackDelta)
	require.Equal(t, 50_000_000, c.MaxSamples)
	require.Equal(t, 20, c.MaxConcurrency)
	require.EqualValues(t, 9830<<20, c.Memory, "60 % of 16 GiB")
	require.EqualValues(t, 2432<<20, c.HeadBytes)
	require.EqualValues(t, 1952<<20, c.CacheBytes)
	require.EqualValues(t, 1216<<20, c.QueryBytes)
	require.EqualValues(t, 608<<20, c.UnreadBytes)
	require.True(t, c.Features.Parser.ExperimentalDurationExpr, "as in Prometheus")
	require.False(t, c.Features.Parser.EnableExperimentalFunctions)
	require.False(t, c.Features.PerStepStats || c.Features.DelayedNameRemoval || c.Features.StartTimestamps)
	require.Contains(t, c.ExternalURL.String(), ":9201")
	require.True(t, c.CORSOrigin.MatchString("http://anybody"), "as in Prometheus")
	require.False(t, c.AuthRequired())
}

func TestValues(t *testing.T) {
	c, err := parse(t, "--web.listen-address=127.0.0.1:1", "--web.listen-address=[::1]:0",
		"--web.listen-address=localhost:2", "--web.external-url=https://cassia.example.org/",
		"--web.allowed-host=Cassia.monitoring.svc", "--web.allowed-host=*.example.org", "--web.enable-admin-api",
		"--storage.slot=1d", "--storage.settle=0s", "--retention.raw=0", "--storage.head-bytes=123456789",
		"--storage.cache-bytes=1GiB", "--query.max-bytes=512MB", "--query.lookback-delta=1h30m",
		"--enable-feature=promql-experimental-functions,promql-per-step-stats, promql-delayed-name-removal",
		"--enable-feature=use-start-timestamps,promql-extended-range-selectors,promql-binop-fill-modifiers,promql-duration-expr,")
	require.NoError(t, err)
	require.Empty(t, c.PublicAddresses())
	require.Equal(t, "https://cassia.example.org", c.ExternalURL.String())
	require.Subset(t, c.HostNames(), []string{"localhost", "Cassia.monitoring.svc", "*.example.org"})
	require.True(t, c.AdminAPI)
	require.Equal(t, 24*time.Hour, c.Slot)
	require.False(t, c.AnySettings)
	require.Zero(t, c.Settle)
	require.Zero(t, c.Retention, "rollups are kept as long as samples")
	require.EqualValues(t, 123456789, c.HeadBytes)
	require.EqualValues(t, 1<<30, c.CacheBytes)
	require.EqualValues(t, 512<<20, c.QueryBytes)
	require.Equal(t, 90*time.Minute, c.LookbackDelta)
	f := c.Features
	require.True(t, f.PerStepStats && f.DelayedNameRemoval && f.StartTimestamps)
	require.True(t, f.Parser.EnableExperimentalFunctions && f.Parser.EnableExtendedRangeSelectors &&
		f.Parser.EnableBinopFillModifiers)
}

// TestRoutePrefix checks that the path of the external URL is the default of the route prefix, as in Prometheus.
func TestRoutePrefix(t *testing.T) {
	for _, c := range []struct{ external, prefix, wantURL, want string }{
		{"https://example.org", "", "https://example.org", ""},
		{"https://example.org/", "/", "https://example.org", ""},
		{"https://example.org/cassia", "", "https://example.org/cassia", "/cassia"},
		{"https://example.org/a/b/", "", "https://example.org/a/b", "/a/b"},
		{"https://example.org/cassia", "/", "https://example.org/cassia", ""},
		{"https://example.org/cassia/", "inner/", "https://example.org/cassia", "/inner"},
		{"https://example.org", "/inner/c", "https://example.org", "/inner/c"},
		{"https://example.org/caf%C3%A9", "", "https://example.org/caf%C3%A9", "/café"},
	} {
		parsed, err := parse(t, "--web.external-url="+c.external, "--web.route-prefix="+c.prefix)
		require.NoError(t, err)
		require.Equal(t, c.wantURL, parsed.ExternalURL.String(), c)
		require.Equal(t, c.want, parsed.RoutePrefix, c)
	}
	parsed, err := parse(t, "--web.external-url=/cassia/", "--web.listen-address=:80")
	require.NoError(t, err)
	require.Regexp(t, "^http://[^/]+:80/cassia$", parsed.ExternalURL.String(), "only a path")
	require.Equal(t, "/cassia", parsed.RoutePrefix)
}

func TestBadValues(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "web.yml")
	require.NoError(t, os.WriteFile(broken, []byte("tls_server_config: [1, 2]\n"), 0o600))
	for arg, want := range map[string]string{
		"--web.listen-address=9201":              "must be host:port, such as :9201 or 127.0.0.1:9201",
		"--web.listen-address=:http":             "the port must be a number from 0 to 65535",
		"--web.listen-address=:70000":            "the port must be a number from 0 to 65535",
		"--web.config.file=/no/such/file":        "no such file",
		"--web.config.file=" + broken:            "cannot",
		"--web.external-url=cassia":              "must be a URL such as https://cassia.example.org",
		"--web.external-url=https://x/y?z=1":     "must be a URL such as https://cassia.example.org, or a path",
		"--web.external-url=https://x/y/../z":    "the path must be plain",
		"--web.external-url=/a//b":               "the path must be plain",
		"--web.route-prefix=/a?b":                "must be a plain path, such as /cassia",
		"--web.route-prefix=..":                  "must be a plain path",
		"--web.allowed-host=https://x.org":       "must be a host name such as cassia.example.org, or *.example.org",
		"--web.allowed-host=x.org:9201":          "without a scheme and a port",
		"--web.allowed-host=*":                   "must be a host name",
		"--web.allowed-host=*.":                  "must be a host name",
		"--web.cors.origin=(":                    "must be a regular expression",
		"--storage.engine=scylla":                "unknown engine; must be pebble or cassandra",
		"--target=compact":                       "must be all, write, read or downsample",
		"--target=read":                          "a data directory allows only one process",
		"--storage.partitions=5000":              "must be a number from 1 to 4096",
		"--storage.slot=5h":                      "must be one of 1h, 2h, 3h, 4h, 6h, 8h, 12h and 24h",
		"--storage.slot=90m":                     "must be one of 1h, 2h, 3h, 4h, 6h, 8h, 12h and 24h",
		"--storage.slot=0s":                      "from 1h to 1d",
		"--storage.slot=two hours":               "must be a duration such as 90s, 15m, 2h, 30d or 1y",
		"--storage.settle=-1m":                   "must be a duration",
		"--storage.settle=2d":                    "from 0s to 1d",
		"--retention.raw=2h":                     "must be at least 1d, or 0 to keep samples forever",
		"--retention.5m=5d":                      "must not be shorter than the retention of raw samples, 30d",
		"--retention.1h=soon":                    "must be a duration",
		"--retention.1h=60d":                     "must not be shorter than the retention of 5m rollups",
		"--ha.cluster-label=__name__":            "must be a label name",
		"--ha.replica-label=cluster":             "must differ from the cluster label",
		"--ha.failover-timeout=10ms":             "from 1s to 10m",
		"--ha.failover-timeout=x":                "must be a duration",
		"--ha.held-bytes=1":                      "from 16MiB to 1PiB",
		"--ha.max-clusters=0":                    "must be a number from 1 to 1000000",
		"--otlp.translation-strategy=any":        "must be one of",
		"--otlp.promote-resource-attribute=":     "has no name",
		"--memory.max-bytes=100MiB":              "from 256MiB to 1PiB",
		"--storage.head-bytes=1MiB":              "from 16MiB to 1PiB",
		"--storage.head-bytes=7EiB":              "from 16MiB to 1PiB",
		"--storage.cache-bytes=1":                "from 8MiB to 1TiB",
		"--query.timeout=0s":                     "from 1ms to 1y",
		"--query.lookback-delta=x":               "must be a duration",
		"--query.max-samples=0":                  "must be a number from 1 to 1000000000000",
		"--query.max-concurrency=-1":             "must be a number from 1 to 10000",
		"--query.max-bytes=1000":                 "from 1MiB to 1PiB",
		"--enable-feature=exemplar-storage":      "unknown feature; the features are promql-binop-fill-modifiers, promql-delayed-name-removal,",
		"--enable-feature=promql-per-step-stat,": "unknown feature",
	} {
		_, err := parse(t, arg)
		require.ErrorContains(t, err, want, arg)
		flag, _, _ := strings.Cut(arg, "=")
		require.ErrorContains(t, err, flag+"=", "the message names the flag")
		require.NotContains(t, err.Error(), "\n")
	}
	for arg, want := range map[string]string{
		"--storage.head-bytes=lots": `"lots" isn't a size such as 512MiB or 4GiB`,
		"--query.max-samples=many":  "many",
		"--log.level=loud":          "loud",
		"--log.format=xml":          "xml",
		"--no-such-flag":            "no-such-flag",
		"--storage.path=":           "--storage.path must be a directory",
		"--storage.today=yesterday": "must be a date such as 2026-05-31",
	} {
		_, err := parse(t, arg)
		require.ErrorContains(t, err, want, arg)
	}
}

func TestMemory(t *testing.T) {
	const meminfo = "MemFree: 1 kB\nMemTotal:       8388608 kB\n"
	for about, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"nothing known":      {nil, assumedMemory},
		"the machine's":      {map[string]string{"proc/meminfo": meminfo}, 8 << 30},
		"cgroup 2":           {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "1073741824\n"}, 1 << 30},
		"cgroup 2, above":    {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "2147483648\n"}, 2 << 30},
		"cgroup 2, its root": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "536870912\n"}, 512 << 20},
		"cgroup 2, no limit": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"}, 8 << 30},
		"cgroup 1":           {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "5:cpu,memory:/x\n1:name=systemd:/y\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "1073741824\n"}, 1 << 30},
		"cgroup 1, no limit": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "5:memory:/x\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "9223372036854771712\n"}, 8 << 30},
		"nonsense":           {map[string]string{"proc/meminfo": "MemTotal: much\n", "proc/self/cgroup": "::\nx\n0::/../..\n", "sys/fs/cgroup/memory.max": "-5"}, assumedMemory},
	} {
		root := fstest.MapFS{}
		for name, content := range c.files {
			root[name] = &fstest.MapFile{Data: []byte(content)}
		}
		require.Equal(t, c.want, AvailableMemory(root), about)
	}
}

func TestPartsFitTheMemory(t *testing.T) {
	for _, memory := range []int64{minMemory, 300<<20 + 1, 1 << 30, 24<<30 + 12345, 1 << 40} {
		p := partsOf(memory)
		require.Greater(t, p.Head, int64(minHead))
		require.Greater(t, p.Cache, int64(minCache))
		require.Greater(t, p.Query, int64(minQuery))
		require.Greater(t, p.Unread, int64(minQuery))
		require.LessOrEqual(t, p.Head+p.Cache, memory/2, "the rest is for queries")
		require.LessOrEqual(t, p.Samples*sampleBytes, memory/4)
		require.LessOrEqual(t, defaultLimit(memory), max(minMemory, memory))
	}
}

// TestPartsFollowTheBound checks that values without a flag are computed from the memory limit, regardless of the order
// of flags.
func TestPartsFollowTheBound(t *testing.T) {
	for _, args := range [][]string{
		{"--memory.max-bytes=1GiB", "--storage.cache-bytes=100MiB", "--query.unread-bytes=5MiB"},
		{"--query.unread-bytes=5MiB", "--storage.cache-bytes=100MiB", "--memory.max-bytes=1GiB"},
	} {
		c, err := parse(t, args...)
		require.NoError(t, err)
		require.EqualValues(t, 1<<30, c.Memory)
		require.EqualValues(t, 256<<20, c.HeadBytes)
		require.EqualValues(t, 100<<20, c.CacheBytes)
		require.EqualValues(t, 128<<20, c.QueryBytes)
		require.EqualValues(t, 5<<20, c.UnreadBytes)
		require.Equal(t, 1<<24, c.MaxSamples)
	}
}

func TestCassandra(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(password, []byte("secret\n"), 0o600))
	c, err := parse(t, "--storage.engine=cassandra", "--cassandra.hosts=a, b:19042",
		"--cassandra.hosts=c", "--cassandra.keyspace=metrics", "--cassandra.replication=dc1:3,dc2:3",
		"--cassandra.consistency=QUORUM", "--cassandra.username=cassia", "--cassandra.password-file="+password,
		"--no-cassandra.create-schema", "--target=read", "--retention.raw=90d")
	require.NoError(t, err)
	o := c.Cassandra
	require.Equal(t, []string{"a", "b:19042", "c"}, o.Hosts)
	require.Equal(t, []string{"metrics", "dc1:3,dc2:3", "QUORUM", "cassia", "secret"}, []string{
		o.Keyspace, o.Replication, o.Consistency, o.Username, o.Password,
	})
	require.False(t, o.CreateSchema)
	require.Equal(t, 90*24*time.Hour, o.Retention, "it decides how files are kept apart")
	require.NotContains(t, c.Location(), "secret")

	t.Setenv("CASSIA_CASSANDRA_PASSWORD", "from the environment")
	c, err = parse(t, "--storage.engine=cassandra", "--cassandra.username=cassia")
	require.NoError(t, err)
	require.Equal(t, "from the environment", c.Cassandra.Password)

	for arg, want := range map[string]string{
		"--cassandra.hosts=a:b":                   "the port must be a number",
		"--cassandra.keyspace=My-Keyspace":        "keyspace \"My-Keyspace\"",
		"--cassandra.consistency=MOST":            "unknown consistency level \"MOST\"",
		"--cassandra.replication=many":            "many",
		"--cassandra.password-file=/no/such/file": "no such file",
		"--cassandra.password-file=" + password:   "--cassandra.username is missing",
		"--cassandra.tls-ca=ca.pem":               "TLS isn't enabled",
		"--cassandra.timeout=1ms":                 "from 100ms to 10m",
	} {
		_, err := parse(t, "--storage.engine=cassandra", arg)
		require.ErrorContains(t, err, want, arg)
		require.NotContains(t, err.Error(), "\n")
	}
}
