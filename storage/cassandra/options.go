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
	// Hosts are nodes to begin with, as host or host:port, best all in one data center. The others of
	// that data center are found through them. At least one.
	Hosts []string
	// Keyspace holds the tables: letters, digits and _, beginning with a letter. Default "cassia".
	Keyspace string
	// Replication is used when the keyspace is created, and ignored when it exists: "3" copies in every
	// data center, "dc1:3,dc2:3" copies in each, or a map as CQL has it. Empty: as many copies as the
	// local data center has nodes, at most 3, and none elsewhere.
	Replication string
	// Consistency is how many replicas must have done a write, and are asked in a read: ONE, TWO, THREE,
	// QUORUM, ALL, LOCAL_QUORUM, EACH_QUORUM or LOCAL_ONE. Below a quorum an acknowledged write may be
	// missed by the next read. EACH_QUORUM is for writes only; then reads take LOCAL_QUORUM. Default
	// LOCAL_QUORUM.
	Consistency string
	// LocalDC is the data center whose nodes are talked to; no other's ever are, for there LOCAL_QUORUM
	// would mean another quorum. Empty: that of the first host that answers.
	LocalDC string

	// Username and Password log in, if Username isn't empty.
	Username, Password string
	// TLS encrypts connections.
	TLS TLSOptions

	// Timeout is how long a request (one batch, one page of a scan, one compare-and-set) may take, its
	// retries included. A node that stays silent gets half of it before another is asked, so that half
	// should be no less than what Cassandra gives itself (5 s for reads). Default 10 s.
	Timeout time.Duration
	// ConnectTimeout is how long a connection may take to be established: longer than a node stands still
	// to collect garbage, for who can't connect doesn't start. Default 10 s.
	ConnectTimeout time.Duration
	// MaxInFlight bounds the requests under way in the whole engine; others wait. Together with 1 MiB a
	// request it bounds memory. Default 128: Cassandra's nodes run 32 writes and 32 reads at once.
	MaxInFlight int

	// CreateSchema makes Open create the keyspace and the tables that are missing. Default true.
	CreateSchema bool
	// Retention is how long what expires is kept; 0: for ever. It decides how wide the windows are in
	// which Cassandra keeps files apart, when a table is created. Default 0.
	Retention time.Duration
	// Retention5m and Retention1h are the same for the rollups' tables.
	Retention5m, Retention1h time.Duration

	// Logger gets events for operators.
	Logger *slog.Logger
	// Now is this process' clock. Default time.Now.
	Now func() time.Time
	// ClusterTime is the clock by which times to live are computed. Default nil: that of the nodes.
	ClusterTime func() time.Time

	// dark is darkTime; tests on a busy machine have more patience.
	dark time.Duration
}

// TLSOptions set how connections are encrypted.
type TLSOptions struct {
	// Enabled encrypts connections.
	Enabled bool
	// CAFile holds the certificates, as PEM, that sign the nodes'; empty: the system's.
	CAFile string
	// CertFile and KeyFile are what this client shows, as PEM; both or none.
	CertFile, KeyFile string
	// ServerName is what the nodes' certificates must be for. Empty: each node's address, as Hosts and
	// the other nodes name it.
	ServerName string
	// SkipVerify takes any certificate: the connection is encrypted, but the server isn't authenticated.
	SkipVerify bool
}

// DefaultOptions returns the documented defaults. Hosts are missing.
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
		dark:           darkTime,
	}
}

// keyspaceName is what needs no quotes in CQL, so that people can type it.
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

// validateSchema returns an error if the options that the schema is made from are invalid.
func (o *Options) validateSchema() error {
	var errs []error
	if !keyspaceName.MatchString(o.Keyspace) {
		errs = append(errs, fmt.Errorf("cassandra: keyspace %q: must start with a lower-case letter and have at most 48 lower-case letters, digits and _", o.Keyspace))
	}
	if _, err := parseReplication(o.Replication); err != nil {
		errs = append(errs, err)
	}
	if o.Retention < 0 || o.Retention5m < 0 || o.Retention1h < 0 {
		errs = append(errs, fmt.Errorf("cassandra: the retention is %s; must be 0 or more", min(o.Retention, o.Retention5m, o.Retention1h)))
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

// levels are what a consistency means for writes, for reads, and for compare-and-set.
type levels struct {
	write, read gocql.Consistency
	serial      gocql.SerialConsistency
}

// consistencies lists the levels that can be chosen. ANY isn't among them: a hint isn't a write.
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
		return levels{}, fmt.Errorf("cassandra: unknown consistency level %q; the levels are LOCAL_QUORUM, QUORUM, EACH_QUORUM, ALL, ONE, TWO, THREE and LOCAL_ONE", name)
	}
	return l, nil
}
