package cassandra

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cassia-db/cassia/storage/engine"
)

// setStripes is the number of locks that serialize compare-and-set operations in the process, by partition.
const setStripes = 64

// Engine is an engine.Engine on Cassandra, and a prometheus.Collector.
type Engine struct {
	opts       Options
	level      levels
	dc         string // the data center whose nodes are used
	session    *gocql.Session
	nodes      *nodes
	statements map[*engine.Table]*statements
	metrics    *metrics
	log        *slog.Logger

	clock atomic.Pointer[clusterClock] // the last reading

	oneByOne atomic.Bool // the cluster rejects requests for multiple partitions, see ScanSeveral

	slots   chan struct{}             // limits requests under way
	setting [setStripes]chan struct{} // locked during a compare-and-set
	seed    maphash.Seed              // spreads partitions over setting

	ctx   context.Context // ends when the engine is closed
	close context.CancelFunc

	mu     sync.Mutex
	uses   int           // the number of requests under way
	idle   chan struct{} // closed when closing and no request is under way
	closed bool
}

var (
	_ engine.Engine        = (*Engine)(nil)
	_ prometheus.Collector = (*Engine)(nil)
)

// Open connects to a cluster and returns when the schema exists. If a retry can't help, the error is an ErrSettings:
// one line with the cause and the remedy.
func Open(ctx context.Context, opts Options) (*Engine, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	level, err := parseConsistency(opts.Consistency)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		opts: opts, level: level, log: opts.Logger, metrics: newMetrics(),
		statements: map[*engine.Table]*statements{},
		slots:      make(chan struct{}, opts.MaxInFlight),
		idle:       make(chan struct{}),
		seed:       maphash.MakeSeed(),
	}
	for i := range e.setting {
		e.setting[i] = make(chan struct{}, 1)
	}
	for _, t := range engine.Tables {
		e.statements[t] = newStatements(opts.Keyspace, t)
	}
	c, err := opts.readCluster(ctx)
	if err != nil {
		return nil, err
	}
	if err := opts.prepareSchema(ctx, c); err != nil {
		return nil, err
	}
	e.dc = c.LocalDC
	if err := e.connect(c); err != nil {
		return nil, err
	}
	e.ctx, e.close = context.WithCancel(context.Background())
	if _, err := e.Clock(ctx); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// connect opens the session for requests.
func (e *Engine) connect(c *Cluster) error {
	watch := &connectWatch{}
	cfg, err := e.opts.clusterConfig(watch, e.opts.contactHosts(c)...)
	if err != nil {
		return err
	}
	e.nodes = newNodes(e.dc, e.log)
	cfg.Keyspace = e.opts.Keyspace
	cfg.HostFilter = gocql.DataCentreHostFilter(e.dc)
	cfg.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(e.nodes, gocql.ShuffleReplicas())
	if e.session, err = gocql.NewSession(*cfg); err != nil {
		return watch.explainError(&e.opts, fmt.Errorf("connect to data center %s: %w", e.dc, err))
	}
	e.nodes.setQuiet(false)
	return nil
}

// acquire registers a request, so that Close waits for it. If it returns nil, the caller must call release.
func (e *Engine) acquire() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return engine.ErrClosed
	}
	e.uses++
	return nil
}

func (e *Engine) release() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.uses--
	if e.closed && e.uses == 0 {
		close(e.idle)
	}
}

// begin starts a call of an exported method: it returns the error of ctx, or registers the call as acquire does.
func (e *Engine) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if e.ctx.Err() != nil {
		return engine.ErrClosed
	}
	return nil
}

// Close implements engine.Engine. Requests under way return engine.ErrClosed; their rows may have been written or not.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return engine.ErrClosed
	}
	e.closed = true
	if e.uses == 0 {
		close(e.idle)
	}
	e.mu.Unlock()
	e.close()
	<-e.idle
	e.nodes.setQuiet(true)
	e.session.Close()
	return nil
}

// Drop implements engine.Engine. It only checks its arguments: rows that may be dropped have a TTL, and Cassandra
// deletes a window's files as a whole when they have expired.
func (e *Engine) Drop(ctx context.Context, t *engine.Table, prefix engine.Key) error {
	if err := e.begin(ctx); err != nil {
		return err
	}
	return engine.CheckDrop(t, prefix)
}

// clusterConfig returns the configuration that all sessions share. It has no keyspace.
func (o *Options) clusterConfig(watch *connectWatch, hosts ...string) (*gocql.ClusterConfig, error) {
	c := gocql.NewCluster(hosts...)
	// gocql supports version 4 best, and so does every Cassandra from 3.0 on.
	c.ProtoVersion = 4
	c.Logger = logger{o.Logger}
	c.ConnectObserver = watch
	// After half of a request's time, another node is tried.
	c.Timeout = o.Timeout / 2
	c.ConnectTimeout = o.ConnectTimeout
	c.SocketKeepalive = 15 * time.Second
	// Reconnect to down nodes every two seconds: unnecessary attempts are cheap compared to not using a node that is up
	// again.
	c.ReconnectInterval = reconnectInterval
	c.ReconnectionPolicy = &gocql.ConstantReconnectionPolicy{MaxRetries: 1, Interval: 100 * time.Millisecond}
	// Every statement has its own timestamp.
	c.DefaultTimestamp = false
	// The engine has about 50 statements, which are prepared per node.
	c.MaxPreparedStmts = 10_000
	c.MaxWaitSchemaAgreement = schemaAgreement
	if o.Username != "" {
		c.Authenticator = gocql.PasswordAuthenticator{Username: o.Username, Password: o.Password}
	}
	if o.TLS.Enabled {
		config, err := o.TLS.readConfig()
		if err != nil {
			return nil, err
		}
		c.SslOpts = &gocql.SslOptions{Config: config, EnableHostVerification: !o.TLS.SkipVerify}
	}
	return c, nil
}
