package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/cassia-db/cassia/cmd/internal/bench"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/pebble"
)

// disk holds the sizes of the data in bytes.
type disk struct {
	// prometheus is the size of all blocks including their indexes.
	prometheus int64
	// left is the size of Cassia's directory after a server has run for a while and stopped. compacted is its size
	// after all files have been merged once, and tables contains the sizes of its tables at that time.
	left, compacted int64
	tables          map[string]uint64
}

// measureDisk runs a server that cleans up after filling, and then measures the files. It compacts and measures a copy,
// whose files are links, and removes the copy.
func measureDisk(ctx context.Context, dir, cassia string) (d disk, err error) {
	progress("measuring disk")
	if d.prometheus, err = bench.DirBytes(filepath.Join(dir, "prometheus", "data")); err != nil {
		return d, err
	}
	home := filepath.Join(dir, "cassia")
	if err := tidyUp(ctx, cassiaServer{path: cassia, dir: home}); err != nil {
		return d, err
	}
	data, copied := filepath.Join(home, "data"), filepath.Join(home, "compacted")
	if d.left, err = bench.DirBytes(data); err != nil {
		return d, err
	}
	if err := os.RemoveAll(copied); err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(copied)) }()
	if err := withEngine(data, func(e *pebble.Engine) error { return e.Checkpoint(copied) }); err != nil {
		return d, err
	}
	d.tables = map[string]uint64{}
	err = withEngine(copied, func(e *pebble.Engine) error {
		if err := e.CompactAll(ctx); err != nil {
			return err
		}
		for _, t := range engine.Tables {
			if d.tables[t.Name], err = e.Usage(ctx, t, nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return d, err
	}
	d.compacted, err = bench.DirBytes(copied)
	return d, err
}

func withEngine(dir string, use func(*pebble.Engine) error) (err error) {
	e, err := pebble.Open(dir, pebble.DefaultOptions())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	return use(e)
}

// tidyUp starts a server, waits until it is idle, and stops it.
func tidyUp(ctx context.Context, s server) error {
	process, err := start(ctx, s)
	if err != nil {
		return err
	}
	defer process.Kill()
	return process.Terminate(time.Minute)
}

// start starts a server and waits until it is ready and idle.
func start(ctx context.Context, s server) (*promrig.Process, error) {
	address, err := promrig.FreeAddress()
	if err != nil {
		return nil, err
	}
	program, err := s.program(address)
	if err != nil {
		return nil, err
	}
	process, err := promrig.StartReady(ctx, program)
	if err != nil {
		return nil, err
	}
	if err := quiet(ctx, process.PID()); err != nil {
		process.Kill()
		return nil, err
	}
	return process, nil
}
