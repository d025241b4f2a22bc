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
)

// RefuseRollups is the value of --remote-read.rollups with which remote read is refused where samples are gone.
const RefuseRollups = "refuse"

// SnapOff is the value of --query.snap with which windows stay where they are.
const SnapOff = "off"

// Config holds the flags of cassia serve. Its fields are set once the command line is parsed, and checked
// by Validate.
type Config struct {
	// ListenAddresses are host:port; WebConfigFile is exporter-toolkit's TLS and basic auth file, or empty.
	ListenAddresses []string
	WebConfigFile   string
	AdminAPI        bool
	// LimitsFile has the limits of tenants, or is empty; Federation lets queries name several tenants.
	LimitsFile string
	Federation bool
	// RelabelFile has rules that drop and change series as they come in, or is empty.
	RelabelFile string
	// Lifecycle allows POST /-/reload.
	Lifecycle bool
	// AuthFile names the file of users, or is empty; Auth is what Validate read from it.
	AuthFile string
	Auth     *auth.Guard
	// ExternalURL is how others reach this process; Validate fills it where no flag did.
	ExternalURL *url.URL
	// CORSOrigin matches the origins whose pages may read answers of the API; Validate sets it.
	CORSOrigin *regexp.Regexp

	// Engine are the settings of the engine that keeps the data.
	*Engine
	// Target is what this process does: all, write, read or downsample.
	Target       string
	Slot, Settle time.Duration
	// Partitions is how many partitions are asked for; 0: as the store has it, and for a new one by its engine.
	Partitions  int
	AnySettings bool
	Retention   Retention
	HeadBytes   int64
	CacheBytes  int64

	QueryTimeout, LookbackDelta time.Duration
	// LogSlowerThan is from when on a query is logged; 0: none is.
	LogSlowerThan              time.Duration
	MaxSamples, MaxConcurrency int
	QueryBytes, UnreadBytes    int64
	// Memory bounds what the process may use in all, bytes. Validate computes parts of it from it that no flag sets.
	Memory int64
	// ReadRollups is expand or refuse: what remote read does where samples are gone.
	ReadRollups string
	// Snap is auto or off: whether edges of windows may be moved by a little.
	Snap string
	// CounterSuffixes are endings of metrics' names whose rollups are only summed.
	CounterSuffixes []string
	Features        Features
	HA              HA
	Rules           Rules
	Backup          Backup
	Metadata        Metadata
	// SelfMonitoring stores the process' own metrics.
	SelfMonitoring bool

	// OTLP sets how names and attributes of OTLP are translated.
	OTLP otlp.Translation

	Log promslog.Config

	externalURL, corsOrigin, slot, settle, timeout, lookback, slower string
	retention                                                        retentionText
	cmd                                                              *kingpin.CmdClause
	features                                                         []string
	set                                                              setByUser
	locks                                                            webAuth
}

// setByUser are the flags of parts of the memory that the command line sets.
type setByUser struct{ head, cache, query, unread, samples bool }

// Register declares the flags of a command. memory is the machine's, or that of the control group, bytes: the process may use a
// share of it, and what takes memory a share of that.
func Register(cmd *kingpin.CmdClause, memory int64) *Config {
	c := &Config{Engine: RegisterEngine(cmd), cmd: cmd}
	parts := PartsOf(bound(memory))

	cmd.Flag("web.listen-address", "Address to listen on, as host:port. Can be repeated.").Default(":9201").StringsVar(&c.ListenAddresses)
	cmd.Flag("web.config.file", "File that enables TLS or basic authentication, in the form of Prometheus' exporter-toolkit.").StringVar(&c.WebConfigFile)
	cmd.Flag("auth.file", "YAML file of the users: their passwords, tokens or certificates (as hashes or names), their roles and tenants. It is read again upon SIGHUP. Default: everybody may do everything.").StringVar(&c.AuthFile)
	cmd.Flag("web.enable-admin-api", "Allow POST /-/seal, and other changes over HTTP.").BoolVar(&c.AdminAPI)
	cmd.Flag("limits.file", "YAML file with what tenants may use: rates, series, sizes, queries. Read again by SIGHUP and POST /-/reload.").StringVar(&c.LimitsFile)
	cmd.Flag("write.relabel-file", "YAML file with write_relabel_configs, as in prometheus.yml, for all tenants and for single ones: they drop and change series as they come in. Read again by SIGHUP and POST /-/reload.").StringVar(&c.RelabelFile)
	cmd.Flag("tenants.federation", "Let requests that read name several tenants, as a|b.").BoolVar(&c.Federation)
	cmd.Flag("web.enable-lifecycle", "Allow POST /-/reload, which reads files again as the signal SIGHUP does.").BoolVar(&c.Lifecycle)
	cmd.Flag("web.external-url", "URL by which others reach Cassia. Default: the machine's name with the port of the first listen address.").StringVar(&c.externalURL)
	cmd.Flag("web.cors.origin", "Regular expression of the origins whose pages may read answers of the query API, from beginning to end, such as https?://grafana\\.example\\.org. Never with a browser's passwords, and no foreign page may change anything.").
		Default(".*").StringVar(&c.corsOrigin)

	bytesFlag(cmd, "memory.max-bytes", "Memory that this process may use in all; what other flags bound is part of it. Queries wait, and are refused, before it is reached. Default: 60% of the machine's memory, or of the control group's.", bound(memory), &c.Memory)
	cmd.Flag("target", "What this process does, where several share a cluster: write takes samples, read answers queries, downsample seals, all does all of it.").
		Default("all").StringVar(&c.Target)
	cmd.Flag("storage.partitions", "Into how many partitions the work of sealing is divided. Default: as the store has it; for a new one 4, over Cassandra 16. See cassia schema set-period.").IntVar(&c.Partitions)
	cmd.Flag("storage.slot", "Width of the unit of sealing: a multiple of 1h that divides 24h. Default: as the store has it; 2h for a new one. See cassia schema set-period.").StringVar(&c.slot)
	cmd.Flag("storage.settle", "How long after its end a slot waits for late samples before it is sealed.").Default("15m").StringVar(&c.settle)
	bytesFlag(cmd, "storage.head-bytes", "Memory for samples that aren't sealed yet; above it, new series are refused, and a quarter above it samples of known ones. Default: a quarter of --memory.max-bytes.", parts.Head, &c.HeadBytes).IsSetByUser(&c.set.head)
	bytesFlag(cmd, "storage.cache-bytes", "Memory for caches of sealed data, half of it for blocks and half for indexes of series. Default: an eighth of --memory.max-bytes.", parts.Cache, &c.CacheBytes).IsSetByUser(&c.set.cache)
	retentionFlags(cmd, &c.retention)

	cmd.Flag("query.timeout", "Maximum time that a query may take before it is aborted.").Default("2m").StringVar(&c.timeout)
	cmd.Flag("query.max-samples", "Maximum number of samples that a query may hold in memory. Default: 50000000, or as many as a quarter of --memory.max-bytes holds.").Default(strconv.FormatInt(parts.Samples, 10)).IsSetByUser(&c.set.samples).IntVar(&c.MaxSamples)
	cmd.Flag("query.max-concurrency", "Maximum number of queries that run at once.").Default("20").IntVar(&c.MaxConcurrency)
	cmd.Flag("query.lookback-delta", "How old a sample may be and still count as current.").Default("5m").StringVar(&c.lookback)
	cmd.Flag("query.log-slower-than", "Queries that take longer get a line in the log; 0: none does.").Default("10s").StringVar(&c.slower)
	bytesFlag(cmd, "query.max-bytes", "Maximum number of encoded bytes that a query may read, and of bytes of labels that its functions may make. Default: an eighth of --memory.max-bytes.", parts.Query, &c.QueryBytes).IsSetByUser(&c.set.query)
	bytesFlag(cmd, "query.unread-bytes", "Memory for answers until clients have read them; above it, queries wait. Default: a sixteenth of --memory.max-bytes.", parts.Unread, &c.UnreadBytes).IsSetByUser(&c.set.unread)
	cmd.Flag("query.snap", "Whether range queries that would read more than two days of samples a series may move the edges of windows to those of rollups, by at most a hundredth of the range and with an info: auto or off.").Default("auto").EnumVar(&c.Snap, "auto", SnapOff)
	cmd.Flag("remote-read.rollups", "What remote read answers where raw samples have expired: expand makes samples of rollups, refuse answers 422.").Default("expand").EnumVar(&c.ReadRollups, "expand", RefuseRollups)
	cmd.Flag("query.counter-suffix", "Ending of the names of metrics of which, among the names of rollups (foo_min, foo_max, foo_sum, foo_count, foo_avg), only the sum exists. Can be repeated.").StringsVar(&c.CounterSuffixes)
	cmd.Flag("enable-feature", "Comma separated names of optional features of the query language, as in Prometheus. One or more of: ["+featureNames()+"]").StringsVar(&c.features)

	otlpFlags(cmd, &c.OTLP)
	haFlags(cmd, &c.HA)
	rulesFlags(cmd, &c.Rules)
	metadataFlags(cmd, &c.Metadata)
	backupFlags(cmd, &c.Backup)
	cmd.Flag("self-monitoring", "Store Cassia's own metrics, every 15s, as the tenant cassia. --no-self-monitoring turns it off.").Default("true").BoolVar(&c.SelfMonitoring)

	c.Log.Level, c.Log.Format = promslog.NewLevel(), promslog.NewFormat()
	cmd.Flag(promslogflag.LevelFlagName, promslogflag.LevelFlagHelp).Default("info").SetValue(c.Log.Level)
	cmd.Flag(promslogflag.FormatFlagName, promslogflag.FormatFlagHelp).Default("logfmt").SetValue(c.Log.Format)
	return c
}

// flagError returns the error of a flag's value with the remedy, in one line.
func flagError(flag, value, problem string) error {
	return fmt.Errorf("--%s=%s: %s", flag, value, problem)
}
