package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/alecthomas/kingpin/v2"

	"github.com/cassia-db/cassia/cmd/internal/config"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/pebble"
)

// offline is for commands that work on stored data by themselves: on a directory while no server does, on a
// cluster beside the servers.
type offline struct {
	*config.Engine
	// retention is what the store is opened with. For ever, the zero value, makes everything readable.
	retention config.Retention
	// queryBytes bounds what one query may read; 0: the store's default.
	queryBytes int64
	// readOnly opens the store for reading only: nothing is changed, no file and no row.
	readOnly bool
	// create makes a directory or a keyspace, and a store of the default settings, where there is none.
	create bool
}

func offlineFlags(cmd *kingpin.CmdClause) offline { return offline{Engine: config.RegisterEngine(cmd)} }

// withStore opens the store, with all that it holds readable, and closes it after use.
func (o offline) withStore(ctx context.Context, use func(*storage.Store) error) (err error) {
	if err := o.Validate(); err != nil {
		return err
	}
	o.Cassandra.CreateSchema = o.Cassandra.CreateSchema && o.create
	if !o.retention.IsForEver() {
		o.SetRetention(o.retention)
	}
	wrong := func(err error) error {
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, storage.ErrNoStore) {
			return fmt.Errorf("%s: no Cassia data found", o.Where())
		}
		return fmt.Errorf("%s: %s", o.Where(), oneLine(err))
	}
	if _, err := os.Stat(o.Path); err != nil && o.Kind == config.EnginePebble && !o.create {
		return wrong(err)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	so := o.storageOptions(log)
	eng, err := openEngine(ctx, o.Engine, openOptions{log: log, readOnly: o.readOnly, mustExist: !o.create, admit: storage.Admit(so)})
	if errors.Is(err, pebble.ErrNoData) {
		return wrong(storage.ErrNoStore)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, eng.Close()) }()
	s, err := storage.Open(ctx, eng, so)
	if err != nil {
		return wrong(err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.WaitReady(ctx); err != nil {
		return wrong(err)
	}
	return use(s)
}

func (o offline) storageOptions(log *slog.Logger) storage.Options {
	so := storage.DefaultOptions()
	so.Logger = log
	so.Elapsed = elapsed
	so.Today = o.Today
	so.ReadOnly = o.readOnly
	// A command without a retention file leaves the store's classes as they are.
	so.AddClasses = !o.readOnly && len(o.retention.Classes) > 0
	if o.create {
		so.AnySettings = true
	} else {
		so.Slot = 0
	}
	o.retention.Into(&so)
	so.QueryBytes = cmp.Or(o.queryBytes, so.QueryBytes)
	if o.Kind == config.EngineCassandra {
		so.Shared = true
		so.Self = membership.Process{Name: "a command", Target: "read", Version: buildVersion().Cassia}
	}
	return so
}
