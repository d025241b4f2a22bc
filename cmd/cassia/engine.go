package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cassia-db/cassia/cmd/internal/config"
	"github.com/cassia-db/cassia/storage/cassandra"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/panics"
	"github.com/cassia-db/cassia/storage/pebble"
)

// openedEngine is an engine with its metrics.
type openedEngine interface {
	engine.Engine
	prometheus.Collector
}

// openOptions are the options for opening an engine that aren't set by flags.
type openOptions struct {
	cacheBytes int64 // size of Pebble's block cache; 0: Pebble's default
	log        *slog.Logger
	// isReadOnly opens the files only for reading. With mustExist, opening fails if the directory doesn't exist.
	isReadOnly, mustExist bool
	// admit is the option of the same name in pebble.Options.
	admit func(description []byte) error
	// onFatal is called when the engine stops accepting writes.
	onFatal func(error)
	// waiting is the option of the same name in pebble.Options.
	waiting func(error)
}

// pebbleOptions returns the default options of an engine in a directory. Tests replace it to simulate write errors.
var pebbleOptions = pebble.DefaultOptions

// openEngine opens the engine that the flags select. Its error is one line with the cause and the remedy.
func openEngine(ctx context.Context, c *config.Engine, o openOptions) (openedEngine, error) {
	if c.Kind == config.EngineCassandra {
		return openCassandra(ctx, c, o)
	}
	po := pebbleOptions()
	if o.cacheBytes > 0 {
		po.CacheBytes = o.cacheBytes
	}
	po.Logger = o.log.With("component", "pebble")
	po.OnFatal, po.Waiting = o.onFatal, o.waiting
	po.ReadOnly, po.MustExist, po.Admit = o.isReadOnly, o.mustExist, o.admit
	e, err := pebble.OpenContext(ctx, c.Path, po)
	if errors.Is(err, engine.ErrLocked) {
		return nil, inUseError{c.Location(), o.isReadOnly}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Location(), err)
	}
	return e, nil
}

// inUseError means that another process has the directory open. It matches engine.ErrLocked in errors.Is.
type inUseError struct {
	where      string
	isReadOnly bool
}

func (e inUseError) Error() string {
	if e.isReadOnly {
		return e.where + ": in use by another process. Stop that process, or take a backup with cassia backup, which " +
			"works while the server runs, and examine the backup"
	}
	return e.where + ": in use by another process; stop that process, or choose another directory"
}

func (inUseError) Unwrap() error { return engine.ErrLocked }

func openCassandra(ctx context.Context, c *config.Engine, o openOptions) (openedEngine, error) {
	co := c.Cassandra
	co.Logger = o.log.With("component", "cassandra")
	e, err := cassandra.Open(ctx, co)
	if errors.Is(err, cassandra.ErrLogin) {
		return nil, fmt.Errorf("%s: %s; check --cassandra.username and --cassandra.password-file",
			c.Location(), oneLine(err))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %s", c.Location(), oneLine(err))
	}
	if !o.log.Enabled(ctx, slog.LevelWarn) { // Commands that print only their result don't print warnings.
		return e, nil
	}
	return inspectCluster(ctx, e, co.Logger), nil
}

// inspectedEngine is an engine on Cassandra with a one-time inspection of its cluster. The inspection runs in the
// background, so that an unresponsive node doesn't delay the start.
type inspectedEngine struct {
	*cassandra.Engine
	cancel     context.CancelFunc
	inspection sync.WaitGroup
}

// inspectCluster logs findings about the cluster.
func inspectCluster(ctx context.Context, e *cassandra.Engine, log *slog.Logger) *inspectedEngine {
	l := &inspectedEngine{Engine: e}
	ctx, l.cancel = context.WithCancel(ctx)
	l.inspection.Go(panics.WrapContained("examining the cluster", func() {
		found, err := e.Findings(ctx)
		if err != nil && ctx.Err() == nil {
			log.Warn("can't examine the cluster", "err", oneLine(err))
		}
		for _, f := range found {
			log.Warn(f.What, "do", f.Do)
		}
	}))
	return l
}

func (i *inspectedEngine) Close() error {
	i.cancel()
	i.inspection.Wait()
	return i.Engine.Close()
}
