package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/util/features"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/adapter/relabeling"
	"github.com/cassia-db/cassia/cmd/internal/config"
	"github.com/cassia-db/cassia/cmd/internal/server"
	"github.com/cassia-db/cassia/cmd/internal/ui"
	"github.com/cassia-db/cassia/downsample"
	"github.com/cassia-db/cassia/promql"
	"github.com/cassia-db/cassia/promql/ruler"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/panics"
	"github.com/cassia-db/cassia/storage/pebble"
	"github.com/cassia-db/cassia/storage/tenant"
)

// memoryLimit is the share of --memory.max-bytes above which Go collects garbage more often. Queries are canceled at a
// higher share, see promql/pressure.go, so that garbage alone never causes a query to be canceled.
const memoryLimit = 0.75

func addServe(app *kingpin.Application) subcommand {
	cmd := app.Command("serve", "Run the server: receive samples, store them and answer queries.")
	c := config.RegisterFlags(cmd, config.AvailableMemory(os.DirFS("/")))
	return subcommand{cmd.FullCommand(), func(ctx context.Context) error {
		if err := c.Validate(); err != nil {
			return err
		}
		if os.Getenv("GOMEMLIMIT") == "" {
			debug.SetMemoryLimit(int64(memoryLimit * float64(c.Memory)))
		}
		// No spans are exported. OpenTelemetry's default provider would still allocate several objects per query.
		otel.SetTracerProvider(noop.NewTracerProvider())
		flags := map[string]string{}
		for _, f := range cmd.Model().Flags {
			flags[f.Name] = f.Value.String()
		}
		p := newProcess(c, flags, slog.New(plainLog{promslog.New(&c.Log).Handler()}))
		defer p.recovery.Start()()
		if err := p.run(ctx, func([]string) {}); err != nil {
			return serveError{err}
		}
		return nil
	}}
}

// process holds the components of a running server. In this drawing, the components are started from the bottom up and
// stopped from the top down: new requests are rejected first, and the accepted requests are completed.
//
//	        server: HTTP
//	       /      |      \
//	remotewrite  promql   api ── /-/seal, /metrics, status
//	       \      |      /   \
//	        \  Queryable      downsample: sealing loop
//	         \    |           /
//	        storage: Store
//	              |
//	        pebble or cassandra: Engine
type process struct {
	c        *config.Config
	flags    map[string]string
	log      *slog.Logger
	registry *panics.Registry
	recovery *panics.Recovery
	started  time.Time
	// fail shuts the process down gracefully. Its argument becomes the error of the process.
	fail context.CancelCauseFunc

	opening opening
	front   *frontServer
	engine  openedEngine
	limiter *tenant.Limiter
	// bodies limits the memory used by request bodies, across all endpoints that receive samples.
	bodies *adapter.Budget
	// relabeling holds the relabeling rules for incoming samples.
	relabeling *relabeling.Live
	store      *storage.Store
	loop       *downsample.Loop
	// ruler is nil if there are no rules, and alertmanagers is nil if there are no Alertmanagers.
	ruler         *ruler.Ruler
	alertmanagers *ruler.Alertmanagers
}

// stopWithin is the max time that a process takes to stop, including server's drainTimeout for the requests in
// progress. Then the process exits even if the disk doesn't respond.
const stopWithin = 25 * time.Second

func newProcess(c *config.Config, flags map[string]string, log *slog.Logger) *process {
	registry := panics.NewRegistry()
	return &process{
		c: c, flags: flags, log: log, registry: registry, recovery: panics.New(log, registry), started: time.Now(),
		bodies: adapter.NewBudget(c.BodyBytes()),
	}
}

// run runs the process. It returns when the process has stopped, but at the latest stopWithin after signals has ended.
func (p *process) run(signals context.Context, listening func([]string)) error {
	ctx, fail := context.WithCancelCause(signals)
	p.fail = fail
	defer fail(nil)
	ended := make(chan error, 1)
	go func() { ended <- p.runComponents(ctx, signals, listening) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(stopWithin):
		p.log.Warn(
			"closing the store took too long; exiting without closing it. The next start recovers all acknowledged " +
				"samples",
		)
		if signals.Err() != nil {
			return nil
		}
		return context.Cause(ctx)
	}
}

// runComponents starts all components, serves requests until ctx ends, and stops the components. signals ends when the
// process receives a signal to stop.
func (p *process) runComponents(ctx, signals context.Context, listening func([]string)) (err error) {
	p.registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildCollector())
	p.log.Info("starting Cassia", "version", buildVersion().Cassia, "revision", buildVersion().Revision)

	if err := p.openLimits(); err != nil {
		return err
	}
	if err := p.openRelabeling(); err != nil {
		return err
	}
	front, err := p.listen(ctx)
	if err != nil {
		return err
	}
	p.front = front
	defer func() {
		p.fail(nil)
		_ = front.wait() // The error of a failed listener is returned as the cause of ctx.
	}()
	if err := p.openStore(ctx); err != nil {
		return p.notOpened(ctx, signals, err)
	}
	p.relabeling.OnChange(p.store.ClearAliases)
	p.limiter.SetClearAliases(p.store.ClearAliases)
	defer func() { err = errors.Join(err, p.closeStore()) }()

	loopDone, err := p.startLoop(ctx)
	if err != nil {
		return err
	}
	defer func() { p.fail(nil); loopDone() }()

	if err := p.serveHTTP(ctx, front, listening); err != nil {
		return err
	}
	if signals.Err() == nil {
		return context.Cause(ctx)
	}
	p.log.Info("stopping: all requests have finished, closing the store")
	return nil
}

// notOpened returns the error of a process that couldn't open its store. It returns nil if the process was stopped
// while it was opening the store.
func (p *process) notOpened(ctx, signals context.Context, err error) error {
	switch {
	case !errors.Is(err, context.Canceled):
		return err
	case signals.Err() != nil:
		p.log.Info("stopped before the store was open")
		return nil
	}
	return context.Cause(ctx)
}

// blocksShare is the divisor of --storage.cache-bytes that gives the size of the engine's block cache. The rest is used
// for series indexes.
const blocksShare = 3

func (p *process) openStore(ctx context.Context) error {
	so := p.storageOptions(p.c.CacheBytes - p.c.CacheBytes/blocksShare)
	o := openOptions{
		cacheBytes: p.c.CacheBytes / blocksShare, log: p.log, admit: storage.CheckDescription(so),
		onFatal: func(err error) { p.fail(fmt.Errorf("can't write data any more: %w", err)) },
		waiting: p.opening.waitFor,
	}
	var err error
	if p.engine, err = openEngine(ctx, p.c.Engine, o); err != nil {
		return withSettingsFlags(err)
	}
	p.registry.MustRegister(p.engine)
	if e, ok := p.engine.(interface{ HeapBytes() int64 }); ok {
		go panics.Repeat(ctx, "bounding garbage", func() { tuneGC(ctx, e.HeapBytes, debug.SetGCPercent) })
	}

	if p.store, err = p.openRows(ctx, so); err != nil {
		err = withSettingsFlags(errors.Join(err, p.engine.Close()))
		return fmt.Errorf("%s: %w", p.c.Location(), oneLineError{err})
	}
	p.logStore()
	go panics.Repeat(ctx, "watching free space", func() { p.watchRoom(ctx) })
	go panics.Repeat(ctx, "removing old snapshots", func() { p.sweepSnapshots(ctx) })
	go panics.Repeat(ctx, "returning memory", func() { p.giveBack(ctx) })
	if err := p.store.Retention().LogChange(ctx); err != nil {
		p.log.Warn("can't determine whether the retention has changed", "err", oneLine(err))
	}
	go panics.WrapContained("logging that queries are answered", func() { p.logReady(ctx) })()
	return nil
}

// Retries of a process that can't open the store. The pause doubles with each attempt.
const (
	firstOpenPause  = 100 * time.Millisecond
	lastOpenPause   = 5 * time.Second // upper bound
	openLogInterval = time.Minute     // between logs of the error
)

// openRows opens the store in the engine. If the data directory can't be read or written for a reason that may be
// temporary, it retries, as opening the engine does.
func (p *process) openRows(ctx context.Context, so storage.Options) (*storage.Store, error) {
	var logged time.Time
	for pause := firstOpenPause; ; pause = min(2*pause, lastOpenPause) {
		s, err := storage.Open(ctx, p.engine, so)
		if err == nil || p.c.Kind != config.EnginePebble || !pebble.MayEnd(err) {
			return s, err
		}
		p.opening.waitFor(err)
		if now := time.Now(); now.Sub(logged) >= openLogInterval {
			logged = now
			p.log.Error(
				"can't open the store yet; retrying until the cause is fixed: free disk space, or correct the limit "+
					"or the permissions",
				"err", oneLine(err),
			)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// withSettingsFlags adds the names of the flags to an error about a store that was created with other settings.
func withSettingsFlags(err error) error {
	if errors.Is(err, storage.ErrOtherSettings) {
		return fmt.Errorf("%w; check --storage.slot and --storage.partitions, or choose another store", err)
	}
	return err
}

// storageOptions returns the options of the store. cacheBytes is the max size of the store's cache, without the
// engine's block cache.
func (p *process) storageOptions(cacheBytes int64) storage.Options {
	so := storage.DefaultOptions()
	so.Slot = p.c.Slot
	so.Partitions = p.c.Partitions
	so.AnySettings = p.c.AnySettings
	p.c.Retention.SetOptions(&so)
	so.AddClasses = true
	so.HeadBytes = p.c.HeadBytes
	so.CacheBytes = cacheBytes
	so.QueryBytes = p.c.QueryBytes
	so.Shared = p.isShared()
	so.RetryRebuild = true
	so.Follow = p.hasRole("read")
	so.Self = membership.Process{Name: p.c.ExternalURL.Host, Target: p.c.Target, Version: buildVersion().Cassia,
		StartedMS: p.started.UnixMilli()}
	so.Limiter = p.limiter
	so.Elapsed = elapsedTime
	so.Today = p.c.Today
	so.Logger = p.log.With("component", "storage")
	so.Registerer = p.registry
	return so
}

// giveBack returns the memory of sealed samples to the operating system. It runs until ctx ends.
func (p *process) giveBack(ctx context.Context) {
	ticker := time.NewTicker(giveBackInterval)
	defer ticker.Stop()
	giveBack(ctx, ticker.C, p.store.HeadBytes, debug.FreeOSMemory)
}

// logStore logs the store's location and identity. With them, an operator can detect a wrong path: at a path without a
// store, a new, empty store is created.
func (p *process) logStore() {
	at := p.c.Location()
	if dir, err := filepath.Abs(p.c.Path); err == nil && p.c.Kind == config.EnginePebble {
		at = dir
	}
	if created, isNew := p.store.Created(); isNew {
		p.log.Info("created a new store", "engine", p.c.Kind, "at", at)
	} else {
		p.log.Info("opened the store", "engine", p.c.Kind, "at", at, "created", created.UTC().Format(time.RFC3339))
	}
}

// isShared reports whether other processes may use the same store.
func (p *process) isShared() bool { return p.c.Kind == config.EngineCassandra }

// hasRole reports whether this process has a role.
func (p *process) hasRole(role string) bool { return p.c.Target == "all" || p.c.Target == role }

func (p *process) logReady(ctx context.Context) {
	err := p.store.WaitReady(ctx)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		p.log.Error("can't rebuild the head: queries fail, writes are accepted", "err", err)
	default:
		p.log.Info("ready for queries", "after", time.Since(p.started).Round(time.Millisecond))
	}
}

func (p *process) closeStore() error {
	err := errors.Join(p.store.Close(), p.engine.Close())
	if errors.Is(err, pebble.ErrUnclosed) {
		p.log.Warn("stopped without closing the store; the next start recovers all acknowledged samples",
			"err", oneLine(err))
		return nil
	}
	if err == nil {
		p.log.Info("stopped", "ran", time.Since(p.started).Round(time.Second))
	}
	return err
}

// startLoop starts the background work: sealing, rollups, retention and compaction. The returned function waits until
// the work has stopped, which it does when ctx ends.
func (p *process) startLoop(ctx context.Context) (wait func(), err error) {
	lo := downsample.DefaultOptions()
	lo.Settle = p.c.Settle
	lo.Shared = p.isShared()
	lo.Idle = !p.hasRole("downsample")
	lo.Logger = p.log.With("component", "downsample")
	lo.Registerer = p.registry
	if p.loop, err = downsample.New(p.store, lo); err != nil {
		return nil, err
	}
	var running sync.WaitGroup
	running.Go(func() { panics.Repeat(ctx, "downsampling", func() { p.loop.Run(ctx) }) })
	return running.Wait, nil
}

// serveHTTP starts the components that need the store, and serves all requests until ctx ends.
func (p *process) serveHTTP(ctx context.Context, front *frontServer, listening func([]string)) error {
	ha, stopReplicas, err := p.startReplicas(ctx)
	if err != nil {
		return err
	}
	defer stopReplicas()
	known := features.NewRegistry()
	evaluator := p.newEngine(known)
	defer evaluator.Close()
	stopRules, err := p.startRules(ctx, evaluator)
	if err != nil {
		return err
	}
	defer stopRules()
	stopMetadata, err := p.startMetadata(ctx)
	if err != nil {
		return err
	}
	defer stopMetadata()
	schedule, stopBackups := p.startBackups(ctx)
	defer stopBackups()

	write, err := p.newRemoteWrite(ha)
	if err != nil {
		return err
	}
	plain, err := p.newJSON(evaluator)
	if err != nil {
		return err
	}
	writes, err := p.writeRoutes(plain)
	if err != nil {
		return err
	}
	o := front.options
	o.API = p.requireRole("read", "queries", p.newAPI(evaluator, known, front))
	o.Write = p.requireRole("write", "samples", write)
	o.Routes = slices.Concat(writes, p.queryRoutes(evaluator, plain),
		[]server.Route{haRoute(ha), backupsRoute(schedule)}, p.pageRoutes(evaluator))
	o.NotFound = ui.NotFound
	o.Ready = p.store.Ready
	o.SealAll = p.store.SealAll
	o.Downsampling = func(ctx context.Context) any { return p.loop.Status(ctx) }
	if p.ruler != nil {
		front.files.Add("--rule.files", p.ruler.Reload)
	}
	front.options = o
	front.serve(server.NewHandler(o))
	for _, warning := range p.c.Warnings() {
		p.log.Warn(warning)
	}
	defer p.startSelfMonitoring(ctx, front.server.Addresses())()
	listening(front.server.Addresses())
	return front.wait()
}

// requireRole returns h if the process has a role. Otherwise it returns a handler that rejects requests and names the
// role of the process.
func (p *process) requireRole(role, what string, h http.Handler) http.Handler {
	if !p.hasRole(role) {
		return server.ElsewhereHandler(what, p.c.Target)
	}
	if role != "read" {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if e := server.ExchangeOf(r); e != nil {
			r = r.WithContext(promql.WithClient(r.Context(), e))
		}
		h.ServeHTTP(w, r)
	})
}

// buildCollector returns the metric that reports the version of the build.
func buildCollector() prometheus.Collector {
	v := buildVersion()
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "cassia_build_info",
		Help:        "Build information; the value is always 1.",
		ConstLabels: prometheus.Labels{"version": v.Cassia, "revision": v.Revision, "goversion": runtime.Version()}},
		func() float64 { return 1 })
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// oneLineError is an error whose text is a single line.
type oneLineError struct{ error }

func (e oneLineError) Error() string { return oneLine(e.error) }
func (e oneLineError) Unwrap() error { return e.error }
