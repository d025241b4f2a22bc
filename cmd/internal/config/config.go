package config

import (
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/grafana/regexp"
	"github.com/prometheus/common/promslog"
	promslogflag "github.com/prometheus/common/promslog/flag"

	"github.com/cassia-db/cassia/adapter/otlp"
	"github.com/cassia-db/cassia/cmd/internal/auth"
	"github.com/cassia-db/cassia/cmd/internal/webconfig"
)

// RefuseRollups is the value of --remote-read.rollups with which remote read is rejected if raw samples have expired.
const RefuseRollups = "refuse"

// SnapOff is the value of --query.snap with which windows aren't moved.
const SnapOff = "off"

// Config has the flags of cassia serve. Its fields are set when the command line is parsed, and checked by Validate.
type Config struct {
	// ListenAddresses are host:port. WebConfigFile is exporter-toolkit's file with TLS and basic authentication, or
	// empty. Validate reads it into Web, which is nil without a file.
	ListenAddresses []string
	WebConfigFile   string
	Web             *webconfig.File
	AdminAPI        bool
	// LimitsFile has the limits of tenants, or is empty. Federation allows queries to name multiple tenants.
	LimitsFile string
	Federation bool
	// RelabelFile has rules that drop and change incoming series, or is empty.
	RelabelFile string
	// Lifecycle allows POST /-/reload.
	Lifecycle bool
	// AuthFile is the file of users, or empty. Validate reads it into Auth.
	AuthFile string
	Auth     *auth.Guard
	// ExternalURL is the URL by which other programs reach this process. Validate sets it if no flag does.
	ExternalURL *url.URL
	// RoutePrefix is the prefix of all paths: empty, or a path without a trailing slash. Validate sets it.
	RoutePrefix string
	// AllowedHosts are other names of this process, where *.example.org means all names below example.org.
	AllowedHosts []string
	// CORSOrigin matches the origins whose pages may read responses of the API. Validate sets it.
	CORSOrigin *regexp.Regexp

	// Engine has the flags of the storage engine.
	*Engine
	// Target is the role of this process: all, write, read or downsample.
	Target       string
	Slot, Settle time.Duration
	// Partitions is the requested number of partitions; 0: the store's number, or the default of the engine for a new
	// store.
	Partitions  int
	AnySettings bool
	Retention   Retention
	HeadBytes   int64
	CacheBytes  int64

	QueryTimeout, LookbackDelta time.Duration
	// LogSlowerThan is the min duration of queries that are logged; 0: none are.
	LogSlowerThan              time.Duration
	MaxSamples, MaxConcurrency int
	QueryBytes, UnreadBytes    int64
	// Memory is the memory limit of the process in bytes. Validate derives the parts of it that no flag sets.
	Memory int64
	// ReadRollups is expand or refuse. It decides about remote reads of samples that have expired.
	ReadRollups string
	// Snap is auto or off. With auto, the edges of windows may be moved slightly.
	Snap string
	// CounterSuffixes are suffixes of metric names. Of the rollups of these metrics, only the sum can be queried by
	// name.
	CounterSuffixes []string
	Features        Features
	HA              HA
	Rules           Rules
	Backup          Backup
	Metadata        Metadata
	// SelfMonitoring stores the process' own metrics.
	SelfMonitoring bool

	// OTLP configures the translation of OTLP names and attributes.
	OTLP otlp.Translation

	Log promslog.Config

	externalURL, routePrefix, corsOrigin, slot, settle, timeout, lookback, slower string
	retention                                                                     retentionText
	cmd                                                                           *kingpin.CmdClause
	features                                                                      []string
	set                                                                           setByUser
}

// setByUser has the parts of the memory that are set on the command line.
type setByUser struct{ head, cache, query, unread, samples bool }

// Register declares the flags of a command. memory is the memory in bytes of the machine or the control group. The
// default memory limit of the process is a share of it, and the defaults of the parts are shares of that limit.
func Register(cmd *kingpin.CmdClause, memory int64) *Config {
	c := &Config{Engine: RegisterEngine(cmd), cmd: cmd}
	parts := PartsOf(bound(memory))

	cmd.Flag("web.listen-address", "Address to listen on, as host:port. Repeatable.").Default(":9201").StringsVar(&c.ListenAddresses)
	cmd.Flag("web.config.file", "File that enables TLS or basic authentication, in the format of the Prometheus exporter-toolkit. Reloaded when the file or a "+
		"certificate changes.").StringVar(&c.WebConfigFile)
	cmd.Flag("auth.file", "YAML file of users: names, hashes of passwords and tokens, names in client certificates, roles and tenants. Reloaded on "+
		"SIGHUP and POST /-/reload. Default: no authentication; every request is allowed.").StringVar(&c.AuthFile)
	cmd.Flag("web.enable-admin-api", "Enable the admin API: POST /-/seal and other requests that change data.").BoolVar(&c.AdminAPI)
	cmd.Flag("limits.file", "YAML file with limits per tenant: rates, series, sizes and queries. Reloaded on SIGHUP and POST /-/reload.").StringVar(&c.LimitsFile)
	cmd.Flag("write.relabel-file", "YAML file with write_relabel_configs, as in prometheus.yml, for all tenants or for one tenant. The rules drop or change "+
		"incoming series. Reloaded on SIGHUP and POST /-/reload.").StringVar(&c.RelabelFile)
	cmd.Flag("tenants.federation", "Allow queries over more than one tenant, named as a|b.").BoolVar(&c.Federation)
	cmd.Flag("web.enable-lifecycle", "Enable POST /-/reload, which reloads configuration files as SIGHUP does.").BoolVar(&c.Lifecycle)
	cmd.Flag("web.external-url", "URL under which Cassia is reachable from outside, such as https://example.org/cassia, or only its path, /cassia. Links in alerts "+
		"start with it. Default: the host name with the port of the first listen address.").StringVar(&c.externalURL)
	cmd.Flag("web.route-prefix", "Path prefix of all requests that this process serves. Set it to / if a proxy removes the path of --web.external-url. "+
		"Default: the path of --web.external-url.").StringVar(&c.routePrefix)
	cmd.Flag("web.allowed-host", "Host name by which clients without a login may reach Cassia through a proxy on the same machine or in the same pod, such as "+
		"cassia.monitoring.svc, or *.example.org for all names below example.org. Always accepted: IP addresses, localhost, names without a dot, "+
		"the machine's name, and the name in --web.external-url. Repeatable.").StringsVar(&c.AllowedHosts)
	cmd.Flag("web.cors.origin", "CORS: regular expression, matched in full, for origins whose pages may read responses of the query API, such as "+
		"https?://grafana\\.example\\.org. Credentials are never allowed, and other origins can't make changes.").
		Default(".*").StringVar(&c.corsOrigin)

	bytesFlag(cmd, "memory.max-bytes", "Maximum memory of this process, which includes the limits set by other flags. Near the limit, queries wait or fail. "+
		"Default: 60% of the memory of the machine, or of its cgroup.", bound(memory), &c.Memory)
	cmd.Flag("target", "Role of this process in a cluster: write receives samples, read answers queries, downsample seals, all does everything.").
		Default("all").StringVar(&c.Target)
	cmd.Flag("storage.partitions", "Number of staging partitions, which share the work of sealing. Default: unchanged in an existing store; in a new one 4, "+
		"or 16 on Cassandra. To change it, see cassia schema set-period.").IntVar(&c.Partitions)
	cmd.Flag("storage.slot", "Width of a slot, the unit of sealing: a multiple of 1h that divides 24h. Default: unchanged in an existing store; 2h in "+
		"a new one. To change it, see cassia schema set-period.").StringVar(&c.slot)
	cmd.Flag("storage.settle", "Grace period: how long a slot waits for late samples after its end before it is sealed.").Default("15m").StringVar(&c.settle)
	bytesFlag(cmd, "storage.head-bytes", "Maximum size of the head, which holds samples that are not yet sealed. Above it, new series are rejected; at 125% "+
		"of it, all samples are rejected. Default: a quarter of --memory.max-bytes.", parts.Head,
		&c.HeadBytes).IsSetByUser(&c.set.head)
	bytesFlag(cmd, "storage.cache-bytes", "Maximum size of the caches of sealed data: a third for blocks, the rest for series indexes. Default: a fifth of --memory.max-bytes.", parts.Cache, &c.CacheBytes).IsSetByUser(&c.set.cache)
	retentionFlags(cmd, &c.retention)

	cmd.Flag("query.timeout", "Maximum duration of a query before it is aborted.").Default("2m").StringVar(&c.timeout)
	cmd.Flag("query.max-samples", "Maximum number of samples that a query may load into memory. Default: 50000000, or the number that fits into a quarter "+
		"of --memory.max-bytes if that is lower.").Default(strconv.FormatInt(parts.Samples,
		10)).IsSetByUser(&c.set.samples).IntVar(&c.MaxSamples)
	cmd.Flag("query.max-concurrency", "Maximum number of concurrent queries.").Default("20").IntVar(&c.MaxConcurrency)
	cmd.Flag("query.lookback-delta", "Lookback delta: maximum age of a sample that an instant selector returns.").Default("5m").StringVar(&c.lookback)
	cmd.Flag("query.log-slower-than", "Log queries that take longer than this; 0 disables the slow query log.").Default("10s").StringVar(&c.slower)
	bytesFlag(cmd, "query.max-bytes", "Maximum number of encoded bytes that a query may read, and of label bytes that its functions may create. Default: an "+
		"eighth of --memory.max-bytes.", parts.Query, &c.QueryBytes).IsSetByUser(&c.set.query)
	bytesFlag(cmd, "query.unread-bytes", "Maximum memory for query results until clients have read them. Above it, large queries wait. Default: a sixteenth of --memory.max-bytes.", parts.Unread, &c.UnreadBytes).IsSetByUser(&c.set.unread)
	cmd.Flag("query.snap", "auto: range queries that would read more than two days of samples per series may snap window edges to rollup "+
		"buckets. Edges move by at most 1% of the range, and the response has an info annotation. off: edges are never snapped.").Default("auto").EnumVar(&c.Snap, "auto", SnapOff)
	cmd.Flag("remote-read.rollups", "How remote read handles time ranges whose raw samples have expired: expand reconstructs samples from rollups, refuse returns 422.").Default("expand").EnumVar(&c.ReadRollups, "expand", RefuseRollups)
	cmd.Flag("query.counter-suffix", "Suffix of metric names, such as _total. Of the rollups of metrics with this suffix, only the sum can be queried by name "+
		"(foo_total_sum), not min, max, count and avg. Repeatable.").StringsVar(&c.CounterSuffixes)
	cmd.Flag("enable-feature", "Comma-separated names of optional PromQL features to enable, as in Prometheus. One or more of: ["+featureNames()+"]").StringsVar(&c.features)

	otlpFlags(cmd, &c.OTLP)
	haFlags(cmd, &c.HA)
	rulesFlags(cmd, &c.Rules)
	metadataFlags(cmd, &c.Metadata)
	backupFlags(cmd, &c.Backup)
	cmd.Flag("self-monitoring", "Store Cassia's own metrics every 15s in the tenant cassia. --no-self-monitoring disables it.").Default("true").BoolVar(&c.SelfMonitoring)

	c.Log.Level, c.Log.Format = promslog.NewLevel(), promslog.NewFormat()
	cmd.Flag(promslogflag.LevelFlagName, promslogflag.LevelFlagHelp).Default("info").SetValue(c.Log.Level)
	cmd.Flag(promslogflag.FormatFlagName, promslogflag.FormatFlagHelp).Default("logfmt").SetValue(c.Log.Format)
	return c
}

// flagError returns an error for a flag's value with the remedy, in one line.
func flagError(flag, value, problem string) error {
	return fmt.Errorf("--%s=%s: %s", flag, value, problem)
}
