package cassandra

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/gocql/gocql"
)

// foreignKeyspace matches all names that CQL supports, with quotes if necessary.
var foreignKeyspace = regexp.MustCompile(`^[a-zA-Z0-9_]{1,48}$`)

// OpenForeign opens a session to read a keyspace of another program. Unlike Open, it uses only features of Cassandra
// 3.0, because history is imported from old clusters. Requests are retried for half a minute if nodes are slow or
// missing, so they must only read. Options.Timeout applies to each attempt. Statements name tables without the
// keyspace. The caller must close the session.
func OpenForeign(ctx context.Context, opts Options) (*gocql.Session, error) {
	if !foreignKeyspace.MatchString(opts.Keyspace) {
		return nil, newRefusal("keyspace %q: the name must have at most 48 letters, digits and _", opts.Keyspace)
	}
	checked := opts
	checked.Keyspace = DefaultOptions().Keyspace // Validate rejects some names that other programs use.
	if err := checked.Validate(); err != nil {
		return nil, err
	}
	level, err := parseConsistency(opts.Consistency)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	watch := &connectWatch{}
	cfg, err := opts.clusterConfig(watch, opts.Hosts...)
	if err != nil {
		return nil, err
	}
	cfg.ProtoVersion = 0 // Negotiate the version with the nodes.
	cfg.Timeout = opts.Timeout
	cfg.Keyspace = opts.Keyspace
	cfg.Consistency = level.read
	cfg.DefaultIdempotence = true
	cfg.RetryPolicy = backoffPolicy{
		&gocql.ExponentialBackoffRetryPolicy{NumRetries: 8, Min: 100 * time.Millisecond, Max: 10 * time.Second},
	}
	cfg.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(
		gocql.RoundRobinHostPolicy(), gocql.ShuffleReplicas(),
	)
	if opts.LocalDC != "" {
		cfg.HostFilter = gocql.DataCentreHostFilter(opts.LocalDC)
	}
	session, err := gocql.NewSession(*cfg)
	switch {
	case err == nil:
		return session, nil
	case isMissing(*cfg):
		return nil, newRefusal("keyspace %s doesn't exist", opts.Keyspace)
	}
	return nil, watch.explainError(
		&opts, fmt.Errorf("cassandra: connect to %s: %w", strings.Join(opts.Hosts, ","), err),
	)
}

// isMissing reports whether a session couldn't be opened because the keyspace doesn't exist, which the driver doesn't
// report.
func isMissing(cfg gocql.ClusterConfig) bool {
	keyspace := cfg.Keyspace
	// Sessions must not share a policy.
	cfg.Keyspace, cfg.PoolConfig.HostSelectionPolicy = "", gocql.RoundRobinHostPolicy()
	session, err := gocql.NewSession(cfg)
	if err != nil {
		return false
	}
	defer session.Close()
	_, err = session.KeyspaceMetadata(keyspace)
	return errors.Is(err, gocql.ErrKeyspaceDoesNotExist)
}

// backoffPolicy retries only transient errors.
type backoffPolicy struct {
	*gocql.ExponentialBackoffRetryPolicy
}

var _ gocql.RetryPolicy = backoffPolicy{}

func (p backoffPolicy) GetRetryType(err error) gocql.RetryType {
	if !isTransient(err) {
		return gocql.Rethrow
	}
	return p.ExponentialBackoffRetryPolicy.GetRetryType(err)
}
