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

	"github.com/cassia-db/cassia/adapter/relabeling"
	"github.com/cassia-db/cassia/cmd/internal/config"
	"github.com/cassia-db/cassia/cmd/internal/server"
	"github.com/cassia-db/cassia/cmd/internal/ui"
	"github.com/cassia-db/cassia/downsample"
	"github.com/cassia-db/cassia/promql/ruler"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/tenant"
)

// memoryLimit is the share of --memory.max-bytes above which Go collects garbage harder: below that at which queries are ended for what they
// take, see promql/pressure.go, so that it isn't for garbage.
const memoryLimit = 0.75

func addServe(app *kingpin.Application) subcommand {
	cmd := app.Command("serve", "Take samples, keep them, and answer queries.")
	c := config.Register(cmd, config.Memory(os.DirFS("/")))
	return subcommand{cmd.FullCommand(), func(ctx context.Context) error {
		if err := c.Validate(); err != nil {
			return err
		}
		if os.Getenv("GOMEMLIMIT") == "" {
			debug.SetMemoryLimit(int64(memoryLimit * float64(c.Memory)))
		}
		otel.SetTracerProvider(noop.NewTracerProvider()) // No spans are exported. Without a provider the API's default makes several per query.
		flags := map[string]string{}
		for _, f := range cmd.Model().Flags {
			flags[f.Name] = f.Value.String()
		}
		return serve(ctx, c, flags, slog.New(plainLog{promslog.New(&c.Log).Handler()}), func([]string) {})
	}}
}

// process holds the parts of a running server. They are started from the bottom up, and stopped from the
// top down: first nothing comes in any more, then what came in is finished.
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
	registry *prometheus.Registry
	started  time.Time
	// fail ends the process with an error, as soon as it can do so in order.
	fail context.CancelCauseFunc

	engine  openedEngine
	limiter *tenant.Limiter
	// relabeling has the rules for what comes in.
	relabeling *relabeling.Live
	store      *storage.Store
	loop       *downsample.Loop
	// ruler and alertmanagers are nil where there are no rules, or no Alertmanagers.
	ruler         *ruler.Ruler
	alertmanagers *ruler.Alertmanagers
}

// serve runs until ctx ends, which is no error. listening is called with the addresses once they are open.
func serve(ctx context.Context, c *config.Config, flags map[string]string, log *slog.Logger, listening func([]string)) error {
	return newProcess(c, flags, log).run(ctx, listening)
}

func newProcess(c *config.Config, flags map[string]string, log *slog.Logger) *process {
	return &process{c: c, flags: flags, log: log, registry: prometheus.NewRegistry(), started: time.Now()}
}

func (p *process) run(ctx context.Context, listening func([]string)) (err error) {
	log, signals := p.log, ctx
	ctx, p.fail = context.WithCancelCause(ctx)
	defer p.fail(nil)
	p.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildCollector())
	log.Info("starting cassia", "version", buildVersion().Cassia, "revision", buildVersion().Revision)

	if err := p.openLimits(); err != nil {
		return err
	}
	if err := p.openRelabeling(); err != nil {
		return err
	}
	if err := p.openStore(ctx); err != nil {
		return err
	}
	p.relabeling.ForgetWith(p.store.ForgetAliases)
	defer func() { err = errors.Join(err, p.closeStore()) }()

	loopDone, err := p.startLoop(ctx)
	if err != nil {
		return err
	}
	defer func() { p.fail(nil); loopDone() }()

	if err := p.serveHTTP(ctx, listening); err != nil {
		return err
	}
	if signals.Err() == nil {
		return context.Cause(ctx)
	}
	log.Info("stopping: requests have ended, closing the store")
	return nil
}

func (p *process) openStore(ctx context.Context) error {
	so := p.storageOptions(p.c.CacheBytes - p.c.CacheBytes/2)
	o := openOptions{
		cacheBytes: p.c.CacheBytes / 2, log: p.log, admit: storage.Admit(so),
		onFatal: func(err error) { p.fail(fmt.Errorf("the data can't be written any more: %w", err)) },
	}
	var err error
	if p.engine, err = openEngine(ctx, p.c.Engine, o); err != nil {
		return withSettingsFlags(err)
	}
	p.registry.MustRegister(p.engine)
	if e, ok := p.engine.(interface{ HeapBytes() int64 }); ok {
		go boundGarbage(ctx, e.HeapBytes, debug.SetGCPercent)
	}

	if p.store, err = storage.Open(ctx, p.engine, so); err != nil {
		err = withSettingsFlags(errors.Join(err, p.engine.Close()))
		return fmt.Errorf("%s: %s", p.c.Where(), oneLine(err))
	}
	p.logStore()
	go p.watchRoom(ctx)
	go p.sweepSnapshots(ctx)
	go p.giveBack(ctx)
	if err := p.store.LogRetentionChange(ctx); err != nil {
		p.log.Warn("whether the retention has changed isn't known", "err", oneLine(err))
	}
	go p.logReady(ctx)
	return nil
}

// withSettingsFlags adds the flags to the error of a store that was created with others.
func withSettingsFlags(err error) error {
	if errors.Is(err, storage.ErrOtherSettings) {
		return fmt.Errorf("%w; see --storage.slot and --storage.partitions, or choose another store", err)
	}
	return err
}

// storageOptions returns the options of the store, whose own cache may take cacheBytes.
func (p *process) storageOptions(cacheBytes int64) storage.Options {
	so := storage.DefaultOptions()
	so.Slot = p.c.Slot
	so.Partitions = p.c.Partitions
	so.AnySettings = p.c.AnySettings
	p.c.Retention.Into(&so)
	so.AddClasses = true
	so.HeadBytes = p.c.HeadBytes
	so.CacheBytes = cacheBytes
	so.QueryBytes = p.c.QueryBytes
	so.Shared = p.shared()
	so.Follow = p.does("read")
	so.Self = membership.Process{Name: p.c.ExternalURL.Host, Target: p.c.Target, Version: buildVersion().Cassia, StartedMS: p.started.UnixMilli()}
	so.Limiter = p.limiter
	so.Elapsed = elapsed
	so.Today = p.c.Today
	so.Logger = p.log.With("component", "storage")
	so.Registerer = p.registry
	return so
}

// giveBack returns the memory of sealed samples to the system, until ctx ends.
func (p *process) giveBack(ctx context.Context) {
	ticker := time.NewTicker(giveBackInterval)
	defer ticker.Stop()
	giveBack(ctx, ticker.C, p.store.HeadBytes, debug.FreeOSMemory)
}

// logStore logs which store it is: at a wrong path a new one would be made, while the data are elsewhere.
func (p *process) logStore() {
	at := p.c.Where()
	if dir, err := filepath.Abs(p.c.Path); err == nil && p.c.Kind == config.EnginePebble {
		at = dir
	}
	if created, isNew := p.store.Created(); isNew {
		p.log.Info("there was no store, so a new one was made", "engine", p.c.Kind, "at", at)
	} else {
		p.log.Info("opened the store", "engine", p.c.Kind, "at", at, "created", created.UTC().Format(time.RFC3339))
	}
}

// shared reports whether other processes may use the same data.
func (p *process) shared() bool { return p.c.Kind == config.EngineCassandra }

// does reports whether a role is among what this process does.
func (p *process) does(role string) bool { return p.c.Target == "all" || p.c.Target == role }

func (p *process) logReady(ctx context.Context) {
	err := p.store.WaitReady(ctx)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		p.log.Error("the head could not be rebuilt: queries are refused, writes are taken", "err", err)
	default:
		p.log.Info("ready for queries", "after", time.Since(p.started).Round(time.Millisecond))
	}
}

func (p *process) closeStore() error {
	err := errors.Join(p.store.Close(), p.engine.Close())
	if err == nil {
		p.log.Info("stopped", "ran", time.Since(p.started).Round(time.Second))
	}
	return err
}

// startLoop starts what follows on writing. The returned function waits for its end, after ctx has ended.
func (p *process) startLoop(ctx context.Context) (wait func(), err error) {
	lo := downsample.DefaultOptions()
	lo.Settle = p.c.Settle
	lo.Shared = p.shared()
	lo.Idle = !p.does("downsample")
	lo.Logger = p.log.With("component", "downsample")
	lo.Registerer = p.registry
	if p.loop, err = downsample.New(p.store, lo); err != nil {
		return nil, err
	}
	var running sync.WaitGroup
	running.Go(func() { p.loop.Run(ctx) })
	return running.Wait, nil
}

// serveHTTP starts what needs the store, from what has no routes to the listener, and serves requests until ctx ends.
func (p *process) serveHTTP(ctx context.Context, listening func([]string)) error {
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
	metrics := server.NewMetrics(p.registry)
	options := server.Options{
		API:    p.only("read", "queries", p.newAPI(evaluator, known, metrics)),
		Write:  p.only("write", "samples", write),
		Routes: slices.Concat(writes, p.queryRoutes(evaluator, plain), []server.Route{haRoute(ha), backupsRoute(schedule)}, p.page(evaluator)),
		HTTP:   metrics,
	}
	return p.listen(ctx, options, listening)
}

// listen serves the routes until ctx ends.
func (p *process) listen(ctx context.Context, o server.Options, listening func([]string)) error {
	o.NotFound = ui.NotFound
	o.Ready = p.store.Ready
	o.AdminAPI = p.c.AdminAPI
	o.SealAll = p.store.SealAll
	o.Downsampling = func(ctx context.Context) any { return p.loop.Status(ctx) }
	o.Federation = p.c.Federation
	o.Gatherer = p.registry
	o.Logger = p.log.With("component", "http")
	files := server.NewReloaders(p.registry, p.log, time.Now)
	p.authorize(&o, files)
	files.Add("--limits.file", p.loadLimits)
	files.Add("--write.relabel-file", p.loadRelabeling)
	if p.ruler != nil {
		files.Add("--rule.files", p.ruler.Reload)
	}
	files.OnHangup(ctx)
	s, err := server.Listen(p.c.ListenAddresses, p.c.WebConfigFile, server.NewHandler(o), o.Logger)
	if err != nil {
		return err
	}
	for _, warning := range p.c.Warnings() {
		p.log.Warn(warning)
	}
	defer p.startSelfMonitoring(ctx, s.Addresses())()
	listening(s.Addresses())
	return s.Serve(ctx)
}

// only returns h if the process has a role, and otherwise a handler that refuses requests and names the process' role.
func (p *process) only(role, what string, h http.Handler) http.Handler {
	if !p.does(role) {
		return server.Elsewhere(what, p.c.Target)
	}
	return h
}

// buildCollector makes the build part of the metrics.
func buildCollector() prometheus.Collector {
	v := buildVersion()
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "cassia_build_info", Help: "Which build this is; the value is always 1.",
		ConstLabels: prometheus.Labels{"version": v.Cassia, "revision": v.Revision, "goversion": runtime.Version()}},
		func() float64 { return 1 })
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
