package config

import (
	"fmt"
	"net/url"
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
	webFlags(cmd, c)
	storageFlags(cmd, c, bound(memory), parts)
	queryFlags(cmd, c, parts)
	otlpFlags(cmd, &c.OTLP)
	haFlags(cmd, &c.HA)
	rulesFlags(cmd, &c.Rules)
	metadataFlags(cmd, &c.Metadata)
	backupFlags(cmd, &c.Backup)
	cmd.Flag(
		"self-monitoring",
		"Store Cassia's own metrics every 15s in the tenant cassia. --no-self-monitoring disables it.",
	).Default("true").BoolVar(&c.SelfMonitoring)

	c.Log.Level, c.Log.Format = promslog.NewLevel(), promslog.NewFormat()
	cmd.Flag(promslogflag.LevelFlagName, promslogflag.LevelFlagHelp).Default("info").SetValue(c.Log.Level)
	cmd.Flag(promslogflag.FormatFlagName, promslogflag.FormatFlagHelp).Default("logfmt").SetValue(c.Log.Format)
	return c
}

// flagError returns an error for a flag's value with the remedy, in one line.
func flagError(flag, value, problem string) error {
	return fmt.Errorf("--%s=%s: %s", flag, value, problem)
}
