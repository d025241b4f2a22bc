package cassandratest

import (
	"fmt"
	"time"

	"github.com/gocql/gocql"
)

// queryTimeout is how long a busy node may take to change its schema, or to make its first user.
const queryTimeout = 5 * time.Minute

// Query runs statements of CQL, one after the other, as the user who may do everything.
func (c *Cluster) Query(statements ...string) error { return query(c.hosts, statements...) }

func query(hosts []string, statements ...string) error {
	config := gocql.NewCluster(hosts...)
	config.ProtoVersion, config.NumConns = 4, 1
	config.Timeout, config.ConnectTimeout = queryTimeout, queryTimeout
	config.Logger = nowhere{} // errors are returned
	// A node that asks for no password gets none.
	config.Authenticator = gocql.PasswordAuthenticator{Username: Username, Password: Password}
	session, err := config.CreateSession()
	if err != nil {
		return fmt.Errorf("cassandratest: %w", err)
	}
	defer session.Close()
	for _, s := range statements {
		if err := session.Query(s).Exec(); err != nil {
			return fmt.Errorf("cassandratest: %s: %w", s, err)
		}
	}
	return nil
}

// awaitLogin waits until the first user is there: nodes take connections before they have made it.
func (c *Cluster) awaitLogin() error {
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		err := c.Query()
		if err == nil || time.Since(began) > queryTimeout {
			return err
		}
	}
}

// nowhere is a gocql.StdLogger that discards everything.
type nowhere struct{}

func (nowhere) Print(...any)          {}
func (nowhere) Printf(string, ...any) {}
func (nowhere) Println(...any)        {}
