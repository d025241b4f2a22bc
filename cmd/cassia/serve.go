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

	"github.com/cassia-db/cassia/adapter/relabeling"
	"github.com/cassia-db/cassia/adapter/remotewrite"
	"github.com/cassia-db/cassia/cmd/internal/config"
	"github.com/cassia-db/cassia/cmd/internal/server"
	"github.com/cassia-db/cassia/cmd/internal/ui"
	"github.com/cassia-db/cassia/downsample"
	"github.com/cassia-db/cassia/promql"
	"github.com/cassia-db/cassia/promql/api"
	"github.com/cassia-db/cassia/promql/ruler"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/tenant"
)

// memoryLimit is the share of the memory above which Go collects garbage harder: below that at which queries are ended for what they
// take, see promql/pressure.go, so that it isn't for garbage.
const memoryLimit = 0.75

func addServe(app *kingpin.Application) subcommand {
	cmd := app.Command("serve", "Take samples, keep them, and answer queries.")
	memory := config.Memory(os.DirFS("/"))
	c := config.Register(cmd, memory)
	return subcommand{cmd.FullCommand(), func(ctx context.Context) error {
		if err := c.Validate(); err != nil {
			return err
		}
		if os.Getenv("GOMEMLIMIT") == "" {
			debug.SetMemoryLimit(int64(memoryLimit * float64(memory)))
		}
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

// serve runs until ctx ends, which is no error. listening is told the addresses once they are open.
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
	o := openOptions{
		cacheBytes: p.c.CacheBytes / 2, log: p.log,
		onFatal: func(err error) { p.fail(fmt.Errorf("the data can't be written any more: %w", err)) },
	}
	var err error
	if p.engine, err = openEngine(ctx, p.c.Engine, o); err != nil {
		return err
	}
	p.registry.MustRegister(p.engine)
	if e, ok := p.engine.(interface{ HeapBytes() int64 }); ok {
		go boundGarbage(ctx, e.HeapBytes, debug.SetGCPercent)
	}

	so := storage.DefaultOptions()
	so.Slot, so.Partitions, so.AnySettings = p.c.Slot, p.c.Partitions, p.c.AnySettings
	p.c.Retention.Into(&so)
	so.AddClasses = true
	so.HeadBytes, so.CacheBytes, so.QueryBytes = p.c.HeadBytes, p.c.CacheBytes-o.cacheBytes, p.c.QueryBytes
	so.Shared, so.Follow = p.shared(), p.does("read")
	so.Self = storage.Process{Name: p.c.ExternalURL.Host, Target: p.c.Target, Version: buildVersion().Cassia, StartedMS: p.started.UnixMilli()}
	so.Limiter, so.Elapsed, so.Today = p.limiter, elapsed, p.c.Today
	so.Logger, so.Registerer = p.log.With("component", "storage"), p.registry
	if p.store, err = storage.Open(ctx, p.engine, so); err != nil {
		err = errors.Join(err, p.engine.Close())
		if errors.Is(err, storage.ErrOtherSettings) {
			return fmt.Errorf("%s: %s; see --storage.slot and --storage.partitions, or choose another store", p.c.Where(), oneLine(err))
		}
		return fmt.Errorf("%s: %s", p.c.Where(), oneLine(err))
	}
	p.tellStore()
	go p.watchRoom(ctx)
	go p.giveBack(ctx)
	if err := p.store.TellRetention(ctx); err != nil {
		p.log.Warn("whether the retention has changed isn't known", "err", oneLine(err))
	}
	go p.tellReady(ctx)
	return nil
}

// giveBack returns the memory of what was sealed to the system, until ctx ends.
func (p *process) giveBack(ctx context.Context) {
	ticker := time.NewTicker(giveBackInterval)
	defer ticker.Stop()
	giveBack(ctx, ticker.C, p.store.HeadBytes, debug.FreeOSMemory)
}

// tellStore says which store it is: at a wrong path a new one would be made, while the data are elsewhere.
func (p *process) tellStore() {
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

// shared says whether other processes may use the same data.
func (p *process) shared() bool { return p.c.Kind == config.EngineCassandra }

// does says whether a role is among what this process does.
func (p *process) does(role string) bool { return p.c.Target == "all" || p.c.Target == role }

func (p *process) tellReady(ctx context.Context) {
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
	lo.Settle, lo.Shared, lo.Idle = p.c.Settle, p.shared(), !p.does("downsample")
	lo.Logger, lo.Registerer = p.log.With("component", "downsample"), p.registry
	if p.loop, err = downsample.New(p.store, lo); err != nil {
		return nil, err
	}
	var running sync.WaitGroup
	running.Go(func() { p.loop.Run(ctx) })
	return running.Wait, nil
}

func (p *process) serveHTTP(ctx context.Context, listening func([]string)) error {
	writes := remotewrite.DefaultOptions()
	writes.Logger, writes.Registerer = p.log.With("component", "remotewrite"), p.registry
	writes.Limiter, writes.Rules = p.limiter, p.relabeling.Batch
	writes.Metadata = func(_ context.Context, tenant string, m remotewrite.Metadata) {
		p.noteMetadata(tenant, m.Metric, m.Type, m.Unit, m.Help)
	}
	ha, stopReplicas, err := p.startReplicas(ctx)
	if err != nil {
		return err
	}
	defer stopReplicas()
	writes.HA = ha
	write, err := remotewrite.Handler(p.store, writes)
	if err != nil {
		return err
	}
	known := features.NewRegistry()
	evaluator := p.newEngine(known)
	defer evaluator.Close()
	metrics := server.NewMetrics(p.registry)
	stopRules, err := p.startRules(ctx, evaluator)
	if err != nil {
		return err
	}
	defer stopRules()
	schedule, stopBackups := p.startBackups(ctx)
	defer stopBackups()
	var queries http.Handler = p.newAPI(evaluator, known, metrics)
	if !p.does("read") {
		queries = server.Elsewhere("queries", p.c.Target)
	}
	if !p.does("write") {
		write = server.Elsewhere("samples", p.c.Target)
	}
	routes, err := p.moreRoutes(evaluator)
	if err != nil {
		return err
	}
	files := server.NewReloaders(p.registry, p.log, time.Now)
	options := server.Options{
		API: queries, Write: write, Routes: slices.Concat(routes, []server.Route{haRoute(ha), backupsRoute(schedule), p.federate(evaluator)}, p.importRoutes(), p.page(evaluator)), NotFound: ui.NotFound,
		Ready: p.store.Ready, AdminAPI: p.c.AdminAPI, SealAll: p.store.SealAll,
		Downsampling: func(ctx context.Context) any { return p.loop.Status(ctx) },
		Federation:   p.c.Federation,
		Gatherer:     p.registry, HTTP: metrics, Logger: p.log.With("component", "http"),
	}
	p.lock(&options, files)
	files.Add("--limits.file", p.loadLimits)
	files.Add("--write.relabel-file", p.loadRelabeling)
	if p.ruler != nil {
		files.Add("--rule.files", p.ruler.Reload)
	}
	files.OnHangup(ctx)
	s, err := server.Listen(p.c.ListenAddresses, p.c.WebConfigFile, server.NewHandler(options), p.log.With("component", "http"))
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

func (p *process) newEngine(known features.Collector) *promql.Engine {
	o := promql.DefaultOptions()
	o.Timeout, o.MaxSamples, o.MaxConcurrency, o.LookbackDelta = p.c.QueryTimeout, p.c.MaxSamples, p.c.MaxConcurrency, p.c.LookbackDelta
	o.Memory = p.c.Memory
	o.LogSlowerThan, o.UnreadBytes, o.NoSnap = p.c.LogSlowerThan, p.c.UnreadBytes, p.c.Snap == config.SnapOff
	f := p.c.Features
	o.Parser, o.PerStepStats, o.DelayedNameRemoval, o.StartTimestamps = f.Parser, f.PerStepStats, f.DelayedNameRemoval, f.StartTimestamps
	o.Limiter = p.limiter
	o.Features, o.Logger, o.Registerer = known, p.log.With("component", "promql"), p.registry
	return promql.NewEngine(o)
}

// queryable is what all reads of series go through.
func (p *process) queryable() *promql.Queryable {
	return promql.NewQueryable(p.store, p.c.CounterSuffixes...)
}

func (p *process) newAPI(evaluator *promql.Engine, known features.Collector, metrics *server.Metrics) http.Handler {
	snapshot, dir := p.snapshots()
	return api.New(api.Options{
		Snapshot: snapshot, DataDir: dir, RefuseRollups: p.c.ReadRollups == config.RefuseRollups,
		Engine: evaluator, Queryable: p.queryable(), Parser: p.c.Features.Parser, Ready: p.store.Ready,
		Exemplars: promql.NewExemplars(p.store), Queries: evaluator, Rules: p.rules, Alertmanagers: p.alertmanagerList(),
		Version: buildVersion(), Started: p.started, Now: time.Now, Retention: p.c.Retention.String(), Flags: p.flags,
		ListenAddress: p.c.ListenAddresses[0], ExternalURL: p.c.ExternalURL, CORSOrigin: p.c.CORSOrigin, AdminAPI: p.c.AdminAPI,
		Delete: p.store.Delete, CleanTombstones: p.store.CleanTombstones,
		Instrument: metrics.Instrument, Features: known, Metadata: p.metadata,
		Cardinality: p.store.Cardinality, Limits: p.limitsOf(evaluator), Enter: evaluator.Enter,
		Gatherer: p.registry, Registerer: p.registry, Logger: p.log.With("component", "api"),
	})
}

func (p *process) metadata(ctx context.Context, tenant, metric string, limit int) (map[string][]api.MetricMetadata, error) {
	found, err := p.store.Metadata(ctx, tenant, metric, limit)
	if err != nil {
		return nil, err
	}
	out := make(map[string][]api.MetricMetadata, len(found))
	for name, list := range found {
		for _, m := range list {
			out[name] = append(out[name], api.MetricMetadata{Type: m.Type, Help: m.Help, Unit: m.Unit})
		}
	}
	return out, nil
}

// buildCollector makes the build part of the metrics.
func buildCollector() prometheus.Collector {
	v := buildVersion()
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "cassia_build_info", Help: "Which build this is; the value is always 1.",
		ConstLabels: prometheus.Labels{"version": v.Cassia, "revision": v.Revision, "goversion": runtime.Version()}},
		func() float64 { return 1 })
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
