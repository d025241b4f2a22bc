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

// RefuseRollups is the value of --remote-read.rollups that rejects remote reads for which raw samples have expired.
const RefuseRollups = "refuse"

// SnapOff is the value of --query.snap that never moves the boundaries of range windows.
const SnapOff = "off"

// Config holds the flags of cassia serve. Its fields are set when the command line is parsed, and checked and completed
// by Validate.
type Config struct {
	// ListenAddresses are of the form host:port. WebConfigFile is the web configuration file of Prometheus'
	// exporter-toolkit, with TLS and basic authentication, or empty. Validate reads it into Web, which is nil if there
	// is no file.
	ListenAddresses []string
	WebConfigFile   string
	Web             *webconfig.File
	AdminAPI        bool
	// LimitsFile is the file with the limits of tenants, or empty. Federation allows queries to name multiple tenants.
	LimitsFile string
	Federation bool
	// RelabelFile is the file with the relabeling rules for incoming series, or empty.
	RelabelFile string
	// Lifecycle allows POST /-/reload.
	Lifecycle bool
	// AuthFile is the file of users, or empty. Validate reads it into Auth.
	AuthFile string
	Auth     *auth.Guard
	// ExternalURL is the URL by which other programs reach this process. Validate computes it if the flag isn't set.
	ExternalURL *url.URL
	// RoutePrefix is the prefix of all paths: empty, or a path without a trailing slash. Validate sets it.
	RoutePrefix string
	// AllowedHosts contains further host names of this process; *.example.org stands for all names below example.org.
	AllowedHosts []string
	// CORSOrigin matches the origins whose pages may read responses of the API. Validate compiles it.
	CORSOrigin *regexp.Regexp

	// Engine holds the flags of the storage engine.
	*Engine
	// Target is the role of this process: all, write, read or downsample.
	Target       string
	Slot, Settle time.Duration
	// Partitions is the requested number of partitions. 0 means the existing number or, for a new store, the engine's
	// default.
	Partitions  int
	AnySettings bool
	Retention   Retention
	HeadBytes   int64
	CacheBytes  int64

	QueryTimeout, LookbackDelta time.Duration
	// LogSlowerThan is the min duration of queries that are logged; 0 disables this.
	LogSlowerThan              time.Duration
	MaxSamples, MaxConcurrency int
	QueryBytes, UnreadBytes    int64
	// Memory is the memory limit of the process in bytes. Validate computes the parts of it that aren't set by flags.
	Memory int64
	// ReadRollups is expand or refuse. It determines whether remote reads of expired raw samples return rollups or
	// fail.
	ReadRollups string
	// Snap is auto or off. With auto, the boundaries of range windows may be moved slightly.
	Snap string
	// CounterSuffixes are suffixes of metric names, such as _total. For metrics with such a name, only the sum of the
	// rollups can be queried by name.
	CounterSuffixes []string
	Features        Features
	HA              HA
	Rules           Rules
	Backup          Backup
	Metadata        Metadata
	// SelfMonitoring is set if the process stores its own metrics.
	SelfMonitoring bool

	// OTLP configures how OTLP names and attributes are translated.
	OTLP otlp.Translation

	Log promslog.Config

	externalURL, routePrefix, corsOrigin, slot, settle, timeout, lookback, slower string
	retention                                                                     retentionText
	cmd                                                                           *kingpin.CmdClause
	features                                                                      []string
	set                                                                           setByUser
}

// setByUser records which parts of the memory limit are set by flags.
type setByUser struct{ isHeadSet, isCacheSet, isQuerySet, isUnreadSet, isSamplesSet bool }

// RegisterFlags declares the flags of a command. memory is the memory of the machine or the control group, in bytes.
// The default of --memory.max-bytes is a share of memory. The defaults of its parts, such as --storage.cache-bytes, are
// shares of that default.
func RegisterFlags(cmd *kingpin.CmdClause, memory int64) *Config {
	c := &Config{Engine: RegisterEngine(cmd), cmd: cmd}
	parts := partsOf(defaultLimit(memory))
	webFlags(cmd, c)
	storageFlags(cmd, c, defaultLimit(memory), parts)
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

// flagError returns a one-line error for a flag's value. problem describes the valid values or the remedy.
func flagError(flag, value, problem string) error {
	return fmt.Errorf("--%s=%s: %s", flag, value, problem)
}
