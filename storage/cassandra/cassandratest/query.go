package cassandratest

import (
	"fmt"
	"testing"
	"time"

	"github.com/gocql/gocql"
)

// queryTimeout is the max time in which a busy node changes its schema, or creates its first user.
const queryTimeout = 5 * time.Minute

// Query runs CQL statements, one after the other, as the superuser.
func (c *Cluster) Query(statements ...string) error { return query(c.hosts, statements...) }

// connect opens a session of the superuser.
func connect(hosts []string) (*gocql.Session, error) {
	config := gocql.NewCluster(hosts...)
	config.ProtoVersion, config.NumConns = 4, 1
	config.Timeout, config.ConnectTimeout = queryTimeout, queryTimeout
	config.Logger = discardLogger{} // errors are returned
	// The driver sends the password only to nodes that require one.
	config.Authenticator = gocql.PasswordAuthenticator{Username: Username, Password: Password}
	session, err := config.CreateSession()
	if err != nil {
		return nil, fmt.Errorf("cassandratest: %w", err)
	}
	return session, nil
}

func query(hosts []string, statements ...string) error {
	session, err := connect(hosts)
	if err != nil {
		return err
	}
	defer session.Close()
	for _, s := range statements {
		if err := session.Query(s).Exec(); err != nil {
			return fmt.Errorf("cassandratest: %s: %w", s, err)
		}
	}
	return nil
}

// awaitLogin waits until the first user exists: nodes accept connections before they have created this user.
func (c *Cluster) awaitLogin() error {
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		err := c.Query()
		if err == nil || time.Since(began) > queryTimeout {
			return err
		}
	}
}

// discardLogger is a gocql.StdLogger that discards everything.
type discardLogger struct{}

func (discardLogger) Print(...any)          {}
func (discardLogger) Printf(string, ...any) {}
func (discardLogger) Println(...any)        {}

// Rows returns the rows of a CQL query on the Cassandra that tests share, as maps by column name.
func Rows(t testing.TB, hosts []string, statement string) []map[string]any {
	t.Helper()
	session, err := connect(hosts)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	rows, err := session.Query(statement).Iter().SliceMap()
	if err != nil {
		t.Fatalf("cassandratest: %s: %v", statement, err)
	}
	return rows
}
