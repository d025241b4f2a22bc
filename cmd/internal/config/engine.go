package config

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/cassia-db/cassia/storage/cassandra"
)

// Values of --storage.engine.
const (
	EnginePebble    = "pebble"
	EngineCassandra = "cassandra"
)

// passwordVariable is the environment variable that may contain the password instead of a file.
const passwordVariable = "CASSIA_CASSANDRA_PASSWORD"

// Engine holds the flags of the storage engine.
type Engine struct {
	// Kind is EnginePebble or EngineCassandra; Path is Pebble's directory.
	Kind, Path string
	// Cassandra holds the options of the cluster, except those that are computed from other flags.
	Cassandra cassandra.Options
	// Today is the current date as set by the operator, or zero.
	Today time.Time

	hosts        []string
	passwordFile string
	today        string
}

// RegisterEngine declares the flags that select the storage engine and its location.
func RegisterEngine(cmd *kingpin.CmdClause) *Engine {
	e := &Engine{Cassandra: cassandra.DefaultOptions()}
	o := &e.Cassandra
	cmd.Flag("storage.engine",
		"Storage engine: pebble uses a directory on this machine; cassandra uses a cluster that any number of "+
			"processes share.").
		Default(EnginePebble).StringVar(&e.Kind)
	cmd.Flag("storage.path", "Data directory of the pebble engine.").Default("data").StringVar(&e.Path)
	cmd.Flag("storage.today", "Today's date, such as 2026-05-31, to confirm that the machine's clock is right after a "+
		"long downtime (pebble engine). If the clock shows this date, it is trusted. Applies to one start.").
		StringVar(&e.today)
	cmd.Flag("cassandra.hosts", "Initial contact points of the Cassandra cluster: comma-separated host or host:port, "+
		"preferably of one data center. The other nodes are discovered.").
		Default("127.0.0.1:9042").StringsVar(&e.hosts)
	cmd.Flag("cassandra.keyspace", "Cassandra keyspace.").Default(o.Keyspace).StringVar(&o.Keyspace)
	cmd.Flag(
		"cassandra.replication",
		"Replication factor of a new keyspace: one number for all data centers, or dc1:3,dc2:3. Default: the number "+
			"of nodes, at most 3.",
	).StringVar(&o.Replication)
	cmd.Flag("cassandra.consistency",
		"Consistency level of reads and writes: LOCAL_QUORUM, QUORUM, EACH_QUORUM, ALL, ONE, TWO, THREE or LOCAL_ONE.").
		Default(o.Consistency).StringVar(&o.Consistency)
	cmd.Flag(
		"cassandra.local-dc", "Data center to connect to. Default: the data center of the first host that responds.",
	).StringVar(&o.LocalDC)
	cmd.Flag("cassandra.username", "User name for Cassandra.").StringVar(&o.Username)
	cmd.Flag(
		"cassandra.password-file",
		"File with the password of that user. Alternatively, set the environment variable "+passwordVariable+".",
	).StringVar(&e.passwordFile)
	cmd.Flag("cassandra.tls", "Connect to Cassandra with TLS.").BoolVar(&o.TLS.Enabled)
	cmd.Flag(
		"cassandra.tls-ca", "File with the CA certificates of the nodes. Default: the system's CA certificates.",
	).StringVar(&o.TLS.CAFile)
	cmd.Flag("cassandra.tls-cert", "File with the client certificate of this process.").StringVar(&o.TLS.CertFile)
	cmd.Flag("cassandra.tls-key", "File with the key of the client certificate.").StringVar(&o.TLS.KeyFile)
	cmd.Flag(
		"cassandra.tls-server-name", "Server name in the certificates of the nodes. Default: the address of each node.",
	).StringVar(&o.TLS.ServerName)
	cmd.Flag("cassandra.tls-skip-verify", "Don't verify the certificates of the nodes.").BoolVar(&o.TLS.SkipVerify)
	cmd.Flag(
		"cassandra.timeout", "Request timeout, including retries.",
	).Default(o.Timeout.String()).DurationVar(&o.Timeout)
	cmd.Flag("cassandra.create-schema",
		"Create the keyspace and missing tables. With --no-cassandra.create-schema, list the missing tables and exit.").
		Default("true").BoolVar(&o.CreateSchema)
	return e
}

// Validate checks the flags and reads the password.
func (e *Engine) Validate() error {
	if e.Kind != EnginePebble && e.Kind != EngineCassandra {
		return flagError("storage.engine", e.Kind, "unknown engine; must be pebble or cassandra")
	}
	if e.Kind == EnginePebble {
		if e.Path == "" {
			return errors.New("--storage.path must be a directory")
		}
		if e.today != "" {
			var err error
			if e.Today, err = time.Parse(time.DateOnly, e.today); err != nil {
				return flagError("storage.today", e.today, "must be a date such as 2026-05-31")
			}
		}
		return nil
	}
	e.Cassandra.Hosts = nil
	for _, list := range e.hosts {
		e.Cassandra.Hosts = append(e.Cassandra.Hosts, strings.Split(list, ",")...)
	}
	e.Cassandra.Hosts = slices.DeleteFunc(e.Cassandra.Hosts, func(h string) bool { return strings.TrimSpace(h) == "" })
	for i, h := range e.Cassandra.Hosts {
		e.Cassandra.Hosts[i] = strings.TrimSpace(h)
	}
	if err := e.readPassword(); err != nil {
		return err
	}
	if err := e.Cassandra.Validate(); err != nil {
		return fmt.Errorf("--storage.engine=cassandra: %s", oneLine(err))
	}
	return nil
}

func (e *Engine) readPassword() error {
	e.Cassandra.Password = os.Getenv(passwordVariable)
	if e.passwordFile != "" {
		text, err := os.ReadFile(e.passwordFile)
		if err != nil {
			return flagError("cassandra.password-file", e.passwordFile, oneLine(err))
		}
		e.Cassandra.Password = strings.TrimRight(string(text), "\r\n")
	}
	if e.Cassandra.Username == "" {
		if e.passwordFile != "" {
			return flagError("cassandra.password-file", e.passwordFile, "--cassandra.username is missing")
		}
		e.Cassandra.Password = ""
	}
	return nil
}

// Location describes the location of the data for messages, as the flags that select it.
func (e *Engine) Location() string {
	if e.Kind == EngineCassandra {
		return fmt.Sprintf("--storage.engine=cassandra --cassandra.hosts=%s --cassandra.keyspace=%s",
			strings.Join(e.Cassandra.Hosts, ","), e.Cassandra.Keyspace)
	}
	return "--storage.path=" + e.Path
}

// SetRetention sets the retention for which the cluster's tables are optimized.
func (e *Engine) SetRetention(r Retention) {
	e.Cassandra.Retention, e.Cassandra.Retention5m, e.Cassandra.Retention1h = r.Raw, r.FiveMinutes, r.OneHour
}
