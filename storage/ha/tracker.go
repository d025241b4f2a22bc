package ha

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/panics"
)

var (
	// ErrHeldFull means that the samples held for replicas that aren't elected have reached a size limit. No sample of
	// the batch was accepted; retry later.
	ErrHeldFull = errors.New(
		"ha: too many writes are waiting: too many samples are held for replicas that are not elected",
	)
	// errReelected means that another replica was elected during a write. The caller must retry.
	errReelected = fmt.Errorf("%w: another replica was elected concurrently", engine.ErrUnavailable)
)

// NameError is the reason why samples of a replica are rejected.
type NameError struct {
	// Reason is a short constant for counters: one of the constants below.
	Reason string
	// Detail describes the defect. If a limit was exceeded, it names the limit.
	Detail string
}

func (e *NameError) Error() string { return e.Reason + ": " + e.Detail }

// Reasons of NameErrors.
const (
	reasonInvalidUTF8         = "invalid_utf8"
	reasonReplicaLabelTooLong = "ha_label_too_long"
	ReasonTooManyClusters     = "too_many_ha_clusters"
	reasonTooManyReplicas     = "too_many_ha_replicas"
)

const (
	// maxReplicaLabel is the max length of the names of clusters and replicas, in bytes.
	maxReplicaLabel = 256
	// maxReplicas bounds the replicas of a cluster that have sent to this process within forgetReplicaAfter.
	maxReplicas        = 16
	forgetReplicaAfter = time.Hour
	// forgetClusterAfter is the silence after which a cluster doesn't count towards Options.Clusters.
	forgetClusterAfter = 24 * time.Hour
	// electionBuckets is the number of partitions of table chosen. With 16, concurrent changes rarely hit the same
	// partition, and all of them can be read every few seconds.
	electionBuckets = 16
	// replicaTimeout bounds one pass of a cluster, and one read of all elections.
	replicaTimeout = 30 * time.Second
	// replicaWorkers is the number of clusters that RunPass processes concurrently.
	replicaWorkers = 32
)

// Options configure a Tracker.
type Options struct {
	// Failover is the silence of the elected replica after which another is elected. It must be longer than the
	// interval between requests of a replica. Default 30 s.
	Failover time.Duration
	// ClusterBytes and Bytes bound the samples that this process holds, per cluster and in total. Default 256 MiB and 1
	// GiB.
	ClusterBytes, Bytes int64
	// Clusters is the max number of clusters per tenant. Default 100.
	Clusters int
	// Still disables the background passes, for tests.
	Still bool
	// Registerer registers the metrics. If it is nil, they aren't exported.
	Registerer prometheus.Registerer
}

// DefaultOptions returns the documented defaults.
func DefaultOptions() Options {
	return Options{Failover: 30 * time.Second, ClusterBytes: 256 << 20, Bytes: 1 << 30, Clusters: 100}
}

// Tracker elects one replica of each cluster of a tenant. Samples of the elected replica are stored. Samples of the
// others are durably held until the elected replica's watermark is a margin beyond them, or until their replica is
// elected.
//
//	Commit ─► election ─┬─► elected: committer, as any sample
//	             ▲      └─► others:  held ─┬─► deleted, once the elected replica's watermark is a margin beyond them
//	             │                         └─► committer, if their replica is elected
//	  chosen: one row per cluster, changed with compare-and-set by all processes
//
// design/ha-pairs.md explains why no sample is lost, and how many samples may be stored twice.
type Tracker struct {
	env     Env
	opts    Options
	metrics *metrics

	mu       sync.Mutex
	clusters map[ClusterName]*cluster
	bytes    int64 // size of the held rows that this process owns, of all clusters

	cancel  context.CancelFunc
	running sync.WaitGroup
}

// ClusterName names a cluster of replicas of a tenant.
type ClusterName struct{ Tenant, Cluster string }

// Env is the part of the store that a Tracker uses.
type Env struct {
	Engine engine.Engine
	Member *membership.Member
	// Writer is this process' name in the staging log.
	Writer string
	Host   Host
	// Now is the clock. MaxAhead is the maximum by which a sample may be ahead of it.
	Now      func() time.Time
	MaxAhead time.Duration
	// Corrupt is called for unreadable rows.
	Corrupt func(*engine.Table, error)
	Logger  *slog.Logger
}

// Host stores and deletes held samples.
type Host interface {
	// HeldWriter returns a new writer for held samples of a tenant.
	HeldWriter(tenant string) HeldWriter
	DeleteHeld(ctx context.Context, at ClusterName, rows []HeldID) error
}

// New returns a Tracker that has read the elections and runs passes in the background. The caller must close the
// Tracker before the store.
func New(ctx context.Context, env Env, opts Options) (*Tracker, error) {
	switch {
	case opts.Failover < time.Second:
		return nil, errors.New("ha: the failover timeout must be at least one second")
	case opts.ClusterBytes <= 0 || opts.Bytes <= 0 || opts.Clusters <= 0:
		return nil, errors.New("ha: the limits for replicas must be greater than 0")
	}
	r := &Tracker{env: env, opts: opts, clusters: map[ClusterName]*cluster{}}
	if err := r.readElections(ctx); err != nil {
		return nil, err
	}
	r.metrics = newMetrics(r, opts.Registerer)
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r.cancel = cancel
	if !opts.Still {
		r.running.Go(func() { panics.Repeat(background, "electing replicas", func() { r.run(background) }) })
	}
	return r, nil
}

// Close stops the background passes and writes the watermarks. Held rows are kept: another running process, or the next
// process that starts, adopts them. Commit must not be called after Close.
func (r *Tracker) Close() {
	r.cancel()
	r.running.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), replicaTimeout)
	defer cancel()
	for _, c := range r.listClusters() {
		if ch, known := c.current(); known {
			if err := c.writeElection(ctx, ch); err != nil {
				r.env.Logger.Warn("can't store the progress of the elected replica",
					"tenant", c.at.Tenant, "cluster", c.at.Cluster, "err", err)
			}
		}
	}
}

func (r *Tracker) now() time.Time { return r.env.Now() }

// maxElectionAge returns half of the time after which other processes may elect another replica. An election decides
// about samples until it is this old, and a heartbeat gives the right to store the elected replica's samples for this
// long.
func (r *Tracker) maxElectionAge() time.Duration { return r.opts.Failover / 2 }

// margin returns the time by which the watermark must have passed held samples of other replicas before they are
// deleted. If a series of the previous replica lags the watermark by at most margin, its missing samples are stored
// from the held samples of the next replica.
func (r *Tracker) margin() time.Duration { return r.opts.Failover }

// lag returns the max time by which the elected replica may lag another replica before it is replaced.
func (r *Tracker) lag() time.Duration { return max(4*r.opts.Failover, 2*time.Minute) }

// maxGap returns the max time between two samples of the elected replica. After a longer gap, another replica is elected
// if it has samples in the gap.
func (r *Tracker) maxGap() time.Duration { return 3 * r.opts.Failover }

// interval returns the time between two passes.
func (r *Tracker) interval() time.Duration { return r.opts.Failover / 6 }

func (r *Tracker) run(ctx context.Context) {
	ticker := time.NewTicker(r.interval())
	defer ticker.Stop()
	for {
		r.RunPass(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// RunPass does the work that is due for every cluster. Errors are logged, and the next pass retries.
func (r *Tracker) RunPass(ctx context.Context) {
	if err := r.readElections(ctx); err != nil && ctx.Err() == nil {
		r.env.Logger.Warn("can't read the elected replicas; retrying", "err", err)
	}
	r.removeRetired()
	var g errgroup.Group
	g.SetLimit(replicaWorkers)
	for _, c := range r.listClusters() {
		g.Go(panics.WrapError("electing replicas", func() error {
			if err := c.runPass(ctx); err != nil && ctx.Err() == nil {
				r.env.Logger.Warn("can't process the replicas of a cluster; retrying",
					"tenant", c.at.Tenant, "cluster", c.at.Cluster, "err", err)
			}
			return nil
		}))
	}
	_ = g.Wait() // No function returns an error.
}

func choicePartition(at ClusterName) engine.Key {
	hash := xxhash.Sum64String(at.Tenant + "\x00" + at.Cluster)
	return engine.Key{engine.Int(int64(hash % electionBuckets))}
}

func choiceKey(at ClusterName) engine.Key {
	return engine.Key{engine.Text(at.Tenant), engine.Text(at.Cluster)}
}

// readElections reads the elections of all clusters.
func (r *Tracker) readElections(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	for bucket := range int64(electionBuckets) {
		begun := r.now()
		for row, err := range r.env.Engine.Scan(ctx, engine.Range{
			Table: engine.Chosen, Partition: engine.Key{engine.Int(bucket)},
		}) {
			if err != nil {
				return fmt.Errorf("ha: reading the elected replicas: %w", err)
			}
			at := ClusterName{row.Clustering[0].Text, row.Clustering[1].Text}
			c := r.findCluster(at)
			if c == nil && isRetired(row.Value) {
				continue
			}
			if c == nil {
				c = r.addCluster(at)
			}
			c.cacheElection(row.Value, begun)
		}
	}
	return nil
}

func (r *Tracker) findCluster(at ClusterName) *cluster {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clusters[at]
}

func (r *Tracker) addCluster(at ClusterName) *cluster {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.addLocked(at)
}

// record adds a cluster if it is unknown, and records a request of a replica. The cluster can't be removed in between.
// record returns false if the cluster has too many replicas.
func (r *Tracker) record(at ClusterName, replica string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.addLocked(at).heard.record(replica, r.now())
}

// addLocked returns a cluster, which it adds if it is unknown. The caller must hold the lock.
func (r *Tracker) addLocked(at ClusterName) *cluster {
	c := r.clusters[at]
	if c == nil {
		at = ClusterName{strings.Clone(at.Tenant), strings.Clone(at.Cluster)}
		c = newCluster(r, at)
		r.clusters[at] = c
	}
	return c
}

// CheckReplica returns a *NameError if the samples of a replica must be rejected because of its names or a limit.
// Otherwise it records the request.
func (r *Tracker) CheckReplica(tenant, clusterLabel, replica string) error {
	if !utf8.ValidString(clusterLabel) || !utf8.ValidString(replica) {
		return &NameError{Reason: reasonInvalidUTF8, Detail: "the name of its cluster or replica isn't valid UTF-8"}
	}
	if len(clusterLabel) > maxReplicaLabel || len(replica) > maxReplicaLabel {
		return &NameError{
			Reason: reasonReplicaLabelTooLong,
			Detail: fmt.Sprintf("the name of a cluster or replica has more than %d bytes", maxReplicaLabel),
		}
	}
	at := ClusterName{tenant, clusterLabel}
	if r.findCluster(at) == nil && r.heardClusters(tenant) >= r.opts.Clusters {
		return &NameError{
			Reason: ReasonTooManyClusters,
			Detail: fmt.Sprintf("the tenant has the maximum of %d replica clusters", r.opts.Clusters),
		}
	}
	if !r.record(at, replica) {
		return &NameError{
			Reason: reasonTooManyReplicas,
			Detail: fmt.Sprintf("the cluster has the maximum of %d replicas", maxReplicas),
		}
	}
	return nil
}

// heardClusters returns the number of a tenant's clusters that were active within forgetClusterAfter.
func (r *Tracker) heardClusters(tenant string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	since := r.now().Add(-forgetClusterAfter)
	for at, c := range r.clusters {
		if at.Tenant == tenant && c.hasRequestSince(since) {
			n++
		}
	}
	return n
}

// reserveBytes reserves bytes for held rows. It returns false if the limit would be exceeded.
func (r *Tracker) reserveBytes(n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bytes+n > r.opts.Bytes {
		return false
	}
	r.bytes += n
	return true
}

func (r *Tracker) releaseBytes(n int64) {
	r.mu.Lock()
	r.bytes -= n
	r.mu.Unlock()
}
