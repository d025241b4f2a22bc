package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/cassia-db/cassia/cmd/internal/config"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/pebble"
)

// offlineStore holds the flags of commands that open the store themselves: in a directory that no server uses, or in a
// cluster, whose servers may be running.
type offlineStore struct {
	*config.Engine
	// retention is the retention with which the store is opened. The zero value keeps samples forever, so that all of
	// them are readable.
	retention config.Retention
	// queryBytes is the max number of bytes that one query may read; 0: the store's default.
	queryBytes int64
	// isReadOnly opens the store only for reading. No file and no row is changed.
	isReadOnly bool
	// logsNothing is set if the command reports all damage itself. Messages in the log would repeat it, or tell the user
	// to run the command that is running.
	logsNothing bool
	// createsMissing is set for commands that create a missing directory, keyspace or store. A new store has default
	// settings.
	createsMissing bool
}

func offlineFlags(cmd *kingpin.CmdClause) offlineStore {
	return offlineStore{Engine: config.RegisterEngine(cmd)}
}

// withStore opens the store, calls use, and closes the store.
func (o offlineStore) withStore(ctx context.Context, use func(*storage.Store) error) (err error) {
	if err := o.Validate(); err != nil {
		return err
	}
	o.Cassandra.CreateSchema = o.Cassandra.CreateSchema && o.createsMissing
	if !o.retention.IsForEver() {
		o.SetRetention(o.retention)
	}
	wrong := func(err error) error {
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, storage.ErrNoStore) {
			return fmt.Errorf("%s: no Cassia data found", o.Location())
		}
		return fmt.Errorf("%s: %s", o.Location(), oneLine(err))
	}
	if _, err := os.Stat(o.Path); err != nil && o.Kind == config.EnginePebble && !o.createsMissing {
		return wrong(err)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	if o.logsNothing {
		log = slog.New(slog.DiscardHandler)
	}
	so := o.storageOptions(log)
	eng, err := openEngine(ctx, o.Engine, openOptions{log: log, isReadOnly: o.isReadOnly, mustExist: !o.createsMissing,
		admit: storage.CheckDescription(so)})
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

func (o offlineStore) storageOptions(log *slog.Logger) storage.Options {
	so := storage.DefaultOptions()
	so.Logger = log
	so.Elapsed = elapsedTime
	so.Today = o.Today
	so.ReadOnly = o.isReadOnly
	// Without a retention file, the store's classes are left unchanged.
	so.AddClasses = !o.isReadOnly && len(o.retention.Classes) > 0
	if o.createsMissing {
		so.AnySettings = true
	} else {
		so.Slot = 0
	}
	o.retention.SetOptions(&so)
	so.QueryBytes = cmp.Or(o.queryBytes, so.QueryBytes)
	if o.Kind == config.EngineCassandra {
		so.Shared = true
		so.Self = membership.Process{Name: "a command", Target: "read", Version: buildVersion().Cassia}
	}
	return so
}

// checkClasses returns an error if the store has retention classes but no retention file was given. Without the file,
// the command can't apply the retention of the classes.
func (o offlineStore) checkClasses(s *storage.Store) error {
	known := s.Retention().ClassNames()
	if len(known) == 0 || o.retention.FromFile {
		return nil
	}
	return fmt.Errorf(
		"%s: this store has retention classes (%s); set --retention.file to the file that the servers use, or to an "+
			"empty file if they use none",
		o.Location(), strings.Join(known, ", "),
	)
}
