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

// Names of engines, as --storage.engine takes them.
const (
	EnginePebble    = "pebble"
	EngineCassandra = "cassandra"
)

// passwordVariable is an environment variable that may hold the password, instead of a file.
const passwordVariable = "CASSIA_CASSANDRA_PASSWORD"

// Engine holds the flags of the engine that keeps the data.
type Engine struct {
	// Kind is EnginePebble or EngineCassandra; Path is Pebble's directory.
	Kind, Path string
	// Cassandra is how to reach the cluster, without what other flags decide.
	Cassandra cassandra.Options
	// Today is the date that the operator gave; zero: no flag gave it.
	Today time.Time

	hosts        []string
	passwordFile string
	today        string
}

// RegisterEngine declares the flags of whatever works on stored data.
func RegisterEngine(cmd *kingpin.CmdClause) *Engine {
	e := &Engine{Cassandra: cassandra.DefaultOptions()}
	o := &e.Cassandra
	cmd.Flag("storage.engine", "What keeps the data: pebble, in a directory of this machine, or cassandra, in a cluster that any number of processes share.").
		Default(EnginePebble).StringVar(&e.Kind)
	cmd.Flag("storage.path", "Directory of the data, for pebble.").Default("data").StringVar(&e.Path)
	cmd.Flag("storage.today", "Today's date, as 2026-05-31, for pebble: a clock that says the same is believed, however long the machine was off. For one start.").StringVar(&e.today)
	cmd.Flag("cassandra.hosts", "Nodes to begin with, as host or host:port with commas between, best all of one data center; they name the others.").
		Default("127.0.0.1:9042").StringsVar(&e.hosts)
	cmd.Flag("cassandra.keyspace", "Keyspace of the tables.").Default(o.Keyspace).StringVar(&o.Keyspace)
	cmd.Flag("cassandra.replication", "Copies to keep, where the keyspace is created: a number for every data center, or dc1:3,dc2:3. Default: one a node, at most 3.").StringVar(&o.Replication)
	cmd.Flag("cassandra.consistency", "How many copies must be written, and are read, before an answer: LOCAL_QUORUM, QUORUM, EACH_QUORUM, ALL, ONE, TWO, THREE or LOCAL_ONE.").
		Default(o.Consistency).StringVar(&o.Consistency)
	cmd.Flag("cassandra.local-dc", "Data center whose nodes are talked to. Default: that of the first host that answers.").StringVar(&o.LocalDC)
	cmd.Flag("cassandra.username", "User to log in as.").StringVar(&o.Username)
	cmd.Flag("cassandra.password-file", "File that holds the user's password. Or set the environment variable "+passwordVariable+".").StringVar(&e.passwordFile)
	cmd.Flag("cassandra.tls", "Encrypt connections.").BoolVar(&o.TLS.Enabled)
	cmd.Flag("cassandra.tls-ca", "File with the certificates that sign the nodes'. Default: the system's.").StringVar(&o.TLS.CAFile)
	cmd.Flag("cassandra.tls-cert", "File with the certificate that this process shows.").StringVar(&o.TLS.CertFile)
	cmd.Flag("cassandra.tls-key", "File with its key.").StringVar(&o.TLS.KeyFile)
	cmd.Flag("cassandra.tls-server-name", "Name that the nodes' certificates are for. Default: each node's address.").StringVar(&o.TLS.ServerName)
	cmd.Flag("cassandra.tls-skip-verify", "Take any certificate.").BoolVar(&o.TLS.SkipVerify)
	cmd.Flag("cassandra.timeout", "How long one request to the cluster may take, its retries included.").Default(o.Timeout.String()).DurationVar(&o.Timeout)
	cmd.Flag("cassandra.create-schema", "Create the keyspace and the tables that are missing; with --no-cassandra.create-schema, say what is missing and end.").
		Default("true").BoolVar(&o.CreateSchema)
	return e
}

// Validate checks what the flags were set to, and reads the password.
func (e *Engine) Validate() error {
	if e.Kind != EnginePebble && e.Kind != EngineCassandra {
		return flagError("storage.engine", e.Kind, "unknown engine, must be pebble or cassandra")
	}
	if e.Kind == EnginePebble {
		if e.Path == "" {
			return errors.New("--storage.path must name a directory")
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
			return flagError("cassandra.password-file", e.passwordFile, "there is no --cassandra.username that it is for")
		}
		e.Cassandra.Password = ""
	}
	return nil
}

// Where names the data in messages, as the flags that lead there.
func (e *Engine) Where() string {
	if e.Kind == EngineCassandra {
		return fmt.Sprintf("--storage.engine=cassandra --cassandra.hosts=%s --cassandra.keyspace=%s", strings.Join(e.Cassandra.Hosts, ","), e.Cassandra.Keyspace)
	}
	return "--storage.path=" + e.Path
}

// SetRetention sets how long the cluster's tables are kept.
func (e *Engine) SetRetention(r Retention) {
	e.Cassandra.Retention, e.Cassandra.Retention5m, e.Cassandra.Retention1h = r.Raw, r.FiveMinutes, r.OneHour
}
