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

// foreignKeyspace is any name that CQL takes, with quotes if need be.
var foreignKeyspace = regexp.MustCompile(`^[a-zA-Z0-9_]{1,48}$`)

// Foreign opens a session to read a keyspace that something else than Cassia keeps. Unlike Open it asks
// nothing that Cassandra 3.0 hasn't: history is moved off old clusters. Requests are sent again for half a minute when nodes are
// slow or missing, so all of them must be reads; Options.Timeout is for each try. Statements name tables without the
// keyspace. Whoever calls it closes the session.
func Foreign(ctx context.Context, opts Options) (*gocql.Session, error) {
	if !foreignKeyspace.MatchString(opts.Keyspace) {
		return nil, refuse("keyspace %q: the name must have at most 48 letters, digits and _", opts.Keyspace)
	}
	checked := opts
	checked.Keyspace = DefaultOptions().Keyspace // Cassia's own names are narrower.
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
	cfg.ProtoVersion = 0 // What the nodes speak.
	cfg.Timeout = opts.Timeout
	cfg.Keyspace = opts.Keyspace
	cfg.Consistency = level.read
	cfg.DefaultIdempotence = true
	cfg.RetryPolicy = backoffPolicy{&gocql.ExponentialBackoffRetryPolicy{NumRetries: 8, Min: 100 * time.Millisecond, Max: 10 * time.Second}}
	cfg.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(gocql.RoundRobinHostPolicy(), gocql.ShuffleReplicas())
	if opts.LocalDC != "" {
		cfg.HostFilter = gocql.DataCentreHostFilter(opts.LocalDC)
	}
	session, err := gocql.NewSession(*cfg)
	switch {
	case err == nil:
		return session, nil
	case isMissing(*cfg):
		return nil, refuse("keyspace %s doesn't exist", opts.Keyspace)
	}
	return nil, watch.explain(&opts, fmt.Errorf("cassandra: connect to %s: %w", strings.Join(opts.Hosts, ","), err))
}

// isMissing finds out whether it is the keyspace that a session lacks, which the driver doesn't report.
func isMissing(cfg gocql.ClusterConfig) bool {
	keyspace := cfg.Keyspace
	cfg.Keyspace, cfg.PoolConfig.HostSelectionPolicy = "", gocql.RoundRobinHostPolicy() // no two sessions share a policy
	session, err := gocql.NewSession(cfg)
	if err != nil {
		return false
	}
	defer session.Close()
	_, err = session.KeyspaceMetadata(keyspace)
	return errors.Is(err, gocql.ErrKeyspaceDoesNotExist)
}

// backoffPolicy sends again what may do better later, and nothing else: a wrong statement stays wrong.
type backoffPolicy struct {
	*gocql.ExponentialBackoffRetryPolicy
}

var _ gocql.RetryPolicy = backoffPolicy{}

// GetRetryType implements gocql.RetryPolicy.
func (p backoffPolicy) GetRetryType(err error) gocql.RetryType {
	if !transient(err) {
		return gocql.Rethrow
	}
	return p.ExponentialBackoffRetryPolicy.GetRetryType(err)
}
