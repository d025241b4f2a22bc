package cassandra

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"strconv"
	"time"

	"github.com/gocql/gocql"
)

// Options configure an Engine.
type Options struct {
	// Hosts are the initial nodes, as host or host:port, preferably all in one data center. The other nodes of that
	// data center are discovered through them. At least one is required.
	Hosts []string
	// Keyspace is the keyspace of the tables: letters, digits and _, starting with a letter. Default "cassia".
	Keyspace string
	// Replication is used when the keyspace is created, and ignored if it exists: "3" replicas in every data center,
	// "dc1:3,dc2:3" per data center, or a CQL map. Empty: as many replicas as the local data center has nodes, at most
	// 3, and none elsewhere.
	Replication string
	// Consistency is the number of replicas that must have applied a write, and that a read queries: ONE, TWO, THREE,
	// QUORUM, ALL, LOCAL_QUORUM, EACH_QUORUM or LOCAL_ONE. With less than a quorum, a read may miss an acknowledged
	// write. EACH_QUORUM applies to writes; reads then use LOCAL_QUORUM. Default LOCAL_QUORUM.
	Consistency string
	// LocalDC is the data center whose nodes are used. Nodes of other data centers are never used, because LOCAL_QUORUM
	// there would be a different quorum. Empty: the data center of the first host that responds.
	LocalDC string

	// Username and Password are the credentials, if Username isn't empty.
	Username, Password string
	// TLS encrypts connections.
	TLS TLSOptions

	// Timeout is the max time of a request (one batch, one page of a scan, one compare-and-set), including its retries.
	// A request is sent to another node after half of Timeout. Half of Timeout should therefore be at least Cassandra's
	// own timeout (5 s for reads). Default 10 s.
	Timeout time.Duration
	// ConnectTimeout is the max time to establish a connection. It should be longer than a node's garbage collection
	// pauses, because a process that can't connect doesn't start. Default 10 s.
	ConnectTimeout time.Duration
	// MaxInFlight is the max number of requests under way in the engine; further requests wait. With at most 1 MiB per
	// request, it also limits memory. Default 128, because a Cassandra node runs 32 writes and 32 reads concurrently.
	MaxInFlight int

	// CreateSchema makes Open create a missing keyspace and missing tables. Default true.
	CreateSchema bool
	// Retention is the retention of rows that expire. 0 means forever. When a table is created, it determines the width
	// of the windows by which Cassandra groups files. Default 0.
	Retention time.Duration
	// Retention5m and Retention1h are the retentions of the tables of 5m and 1h rollups.
	Retention5m, Retention1h time.Duration

	// Logger logs events for operators.
	Logger *slog.Logger
	// Now is this process' clock. Default time.Now.
	Now func() time.Time
	// ClusterTime is the clock by which TTLs are computed. If it is nil, the nodes' clock is used. Default nil.
	ClusterTime func() time.Time

	// noNodeTimeout is the constant with the same name, or more in tests on slow machines.
	noNodeTimeout time.Duration
}

// TLSOptions configure the encryption of connections.
type TLSOptions struct {
	// Enabled encrypts connections.
	Enabled bool
	// CAFile is a file with the PEM certificates of the authorities that sign the nodes' certificates. If it is empty,
	// the system's authorities are used.
	CAFile string
	// CertFile and KeyFile are the files of the PEM client certificate and its key. Either both or none must be set.
	CertFile, KeyFile string
	// ServerName is the name that the nodes' certificates must have. Empty: the address of each node, as in Hosts or as
	// reported by other nodes.
	ServerName string
	// SkipVerify accepts any certificate: the connection is encrypted, but the server isn't authenticated.
	SkipVerify bool
}

// DefaultOptions returns the documented defaults, without Hosts.
func DefaultOptions() Options {
	return Options{
		Keyspace:       "cassia",
		Consistency:    "LOCAL_QUORUM",
		Timeout:        10 * time.Second,
		ConnectTimeout: 10 * time.Second,
		MaxInFlight:    128,
		CreateSchema:   true,
		Logger:         slog.New(slog.DiscardHandler),
		Now:            time.Now,
		noNodeTimeout:  noNodeTimeout,
	}
}

// keyspaceName matches names that need no quotes in CQL, so that operators can type them.
var keyspaceName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,47}$`)

// Validate returns an error if the options are invalid.
func (o *Options) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf("cassandra: "+format, args...)) }
	if len(o.Hosts) == 0 {
		wrong("no hosts are set; set one or more nodes as host:port")
	}
	for _, h := range o.Hosts {
		if err := checkHost(h); err != nil {
			wrong("host %q: %w", h, err)
		}
	}
	errs = append(errs, o.validateSchema())
	if _, err := parseConsistency(o.Consistency); err != nil {
		errs = append(errs, err)
	}
	if o.Username == "" && o.Password != "" {
		wrong("a password is set without a username")
	}
	if (o.TLS.CertFile == "") != (o.TLS.KeyFile == "") {
		wrong("TLS: certificate and key must be set together")
	}
	if !o.TLS.Enabled && o.TLS != (TLSOptions{}) {
		wrong("TLS: files or names are set, but TLS isn't enabled")
	}
	within := func(name string, d, low, high time.Duration) {
		if d < low || d > high {
			wrong("%s is %s; must be between %s and %s", name, d, low, high)
		}
	}
	within("Timeout", o.Timeout, 100*time.Millisecond, 10*time.Minute)
	within("ConnectTimeout", o.ConnectTimeout, 100*time.Millisecond, 10*time.Minute)
	if o.MaxInFlight < 1 || o.MaxInFlight > 1<<14 {
		wrong("MaxInFlight is %d; must be between 1 and %d", o.MaxInFlight, 1<<14)
	}
	if o.Logger == nil {
		wrong("Logger is nil")
	}
	if o.Now == nil {
		wrong("Now is nil")
	}
	return errors.Join(errs...)
}

// validateSchema returns an error if the options of the schema are invalid.
func (o *Options) validateSchema() error {
	var errs []error
	if !keyspaceName.MatchString(o.Keyspace) {
		errs = append(errs, fmt.Errorf(
			"cassandra: keyspace %q: must start with a lower-case letter and have at most 48 lower-case letters, "+
				"digits and _",
			o.Keyspace,
		))
	}
	if _, err := parseReplication(o.Replication); err != nil {
		errs = append(errs, err)
	}
	if o.Retention < 0 || o.Retention5m < 0 || o.Retention1h < 0 {
		errs = append(errs, fmt.Errorf("cassandra: the retention is %s; must be 0 or more",
			min(o.Retention, o.Retention5m, o.Retention1h)))
	}
	return errors.Join(errs...)
}

func checkHost(h string) error {
	host, port, err := net.SplitHostPort(h)
	if err != nil {
		host, port = h, "9042"
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return errors.New("the port must be a number between 1 and 65535")
	}
	if host == "" {
		return errors.New("the host name is missing")
	}
	return nil
}

// levels are the consistency levels of writes, reads, and compare-and-set.
type levels struct {
	write, read gocql.Consistency
	serial      gocql.SerialConsistency
}

// consistencies are the valid levels. ANY isn't valid, because a hint isn't a durable write.
var consistencies = map[string]levels{
	"ONE":          {gocql.One, gocql.One, gocql.Serial},
	"TWO":          {gocql.Two, gocql.Two, gocql.Serial},
	"THREE":        {gocql.Three, gocql.Three, gocql.Serial},
	"QUORUM":       {gocql.Quorum, gocql.Quorum, gocql.Serial},
	"ALL":          {gocql.All, gocql.All, gocql.Serial},
	"EACH_QUORUM":  {gocql.EachQuorum, gocql.LocalQuorum, gocql.Serial},
	"LOCAL_QUORUM": {gocql.LocalQuorum, gocql.LocalQuorum, gocql.LocalSerial},
	"LOCAL_ONE":    {gocql.LocalOne, gocql.LocalOne, gocql.LocalSerial},
}

func parseConsistency(name string) (levels, error) {
	l, ok := consistencies[name]
	if !ok {
		return levels{}, fmt.Errorf(
			"cassandra: unknown consistency level %q; the levels are LOCAL_QUORUM, QUORUM, EACH_QUORUM, ALL, ONE, "+
				"TWO, THREE and LOCAL_ONE",
			name,
		)
	}
	return l, nil
}
