package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/alecthomas/kingpin/v2"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/pebble"
)

// offline is for commands that work on a data directory while no server does.
type offline struct{ path string }

func offlineFlags(cmd *kingpin.CmdClause) *offline {
	o := &offline{}
	cmd.Flag("storage.path", "Directory of the data.").Default("data").StringVar(&o.path)
	return o
}

// withStore opens the store, with all that it holds readable, and closes it after use.
func (o *offline) withStore(ctx context.Context, use func(*storage.Store) error) (err error) {
	wrong := func(err error) error {
		switch {
		case errors.Is(err, engine.ErrLocked):
			return fmt.Errorf("--storage.path=%s: another process has it open; stop that one first", o.path)
		case errors.Is(err, os.ErrNotExist), errors.Is(err, storage.ErrNoStore):
			return fmt.Errorf("--storage.path=%s: there are no data of Cassia's", o.path)
		}
		return fmt.Errorf("--storage.path=%s: %s", o.path, oneLine(err))
	}
	if _, err := os.Stat(o.path); err != nil {
		return wrong(err)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	eo := pebble.DefaultOptions()
	eo.Logger = log
	eng, err := pebble.Open(o.path, eo)
	if err != nil {
		return wrong(err)
	}
	defer func() { err = errors.Join(err, eng.Close()) }()
	so := storage.DefaultOptions()
	so.Slot, so.Retention, so.Logger = 0, 0, log
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
