package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/pprof"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/pebble"
)

// tenant is the tenant of requests without a tenant header.
const tenant = "default"

// batchSamples is the approximate number of samples per commit.
const batchSamples = 20_000

// settle is the time after the end of a day at which the day's last slots are sealed.
const settle = 15 * time.Minute

// fillProfile is the file in Cassia's folder with the CPU profile of filling.
const fillProfile = "fill.pprof"

// costs holds the CPU times of filling Cassia.
type costs struct {
	// Write is the CPU time until all samples are durable. Seal is the CPU time from then until all are sealed and have
	// rollups. Pebble's background work counts for the phase in which it runs.
	Write, Seal time.Duration
}

// fillCassia writes the samples with package storage in this process, and seals each day after it has ended.
func fillCassia(ctx context.Context, dir string, d dataset) (c costs, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return c, err
	}
	eng, err := pebble.Open(filepath.Join(dir, "data"), pebble.DefaultOptions())
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, eng.Close()) }()
	var clock atomic.Int64 // milliseconds
	clock.Store(d.startMs())
	o := storage.DefaultOptions()
	o.Retention, o.Now = 0, func() time.Time { return time.UnixMilli(clock.Load()) }
	store, err := storage.Open(ctx, eng, o)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := store.WaitReady(ctx); err != nil {
		return c, err
	}
	var profile bytes.Buffer
	if err := pprof.StartCPUProfile(&profile); err != nil {
		return c, err
	}
	defer pprof.StopCPUProfile()
	w := newWriter(d, store)
	for day := range d.Days {
		began := ownCPU()
		if err := w.day(ctx, &clock); err != nil {
			return c, err
		}
		written := ownCPU()
		clock.Add(settle.Milliseconds())
		if err := store.SealAll(ctx); err != nil {
			return c, err
		}
		for p := range store.Partitions() {
			if err := store.UnlistSlots(ctx, p); err != nil {
				return c, err
			}
		}
		c.Write, c.Seal = c.Write+written-began, c.Seal+ownCPU()-written
		if day%10 == 9 {
			progress("%d days, %.1f s of CPU for writing, %.1f for sealing", day+1, c.Write.Seconds(), c.Seal.Seconds())
		}
	}
	pprof.StopCPUProfile()
	return c, os.WriteFile(filepath.Join(dir, fillProfile), profile.Bytes(), 0o600)
}

// writer writes a dataset to a store, one day at a time.
type writer struct {
	*generator
	store   *storage.Store
	labels  []labels.Labels
	aliases [][]byte
}

func newWriter(d dataset, store *storage.Store) *writer {
	w := &writer{generator: newGenerator(d), store: store}
	for i := range d.series() {
		ls := d.labelsOf(i)
		w.labels, w.aliases = append(w.labels, ls), append(w.aliases, []byte(ls.String()))
	}
	return w
}

// day commits the samples of one day and advances the clock.
func (w *writer) day(ctx context.Context, clock *atomic.Int64) error {
	for left := w.stepsOfDay(); left > 0; {
		steps := min(left, max(1, batchSamples/w.series()))
		left -= steps
		clock.Store(w.now + int64(steps)*w.IntervalMs)
		batch := w.store.NewBatch(tenant)
		for range steps {
			err := w.step(func(i int, t int64, v float64) error {
				s, ok := batch.Lookup(w.aliases[i])
				if !ok {
					var err error
					if s, err = batch.Define(w.aliases[i], w.labels[i]); err != nil {
						return err
					}
				}
				return batch.Float(s, t, 0, v)
			})
			if err != nil {
				return err
			}
		}
		if err := batch.Commit(ctx); err != nil {
			return err
		}
	}
	return nil
}

// blockMs is the length of the longest blocks that Prometheus' compaction creates: 20.25 days. Lengths are two hours
// times a power of three, and at most 31 days.
const blockMs = int64(2*time.Hour/time.Millisecond) * 3 * 3 * 3 * 3 * 3

// fillPrometheus writes the samples as blocks with the same boundaries as after Prometheus' compaction.
func fillPrometheus(ctx context.Context, dir string, d dataset) error {
	data := filepath.Join(dir, "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	g := newGenerator(d)
	refs, all := make([]promstorage.SeriesRef, d.series()), make([]labels.Labels, d.series())
	for i := range all {
		all[i] = d.labelsOf(i)
	}
	for g.now < d.EndMs {
		clear(refs)
		upTo := min(d.EndMs, (g.now/blockMs+1)*blockMs)
		if err := writeBlock(ctx, data, g, upTo, all, refs); err != nil {
			return err
		}
		progress("a block until %s", time.UnixMilli(upTo).UTC().Format(time.RFC3339))
	}
	return nil
}

// writeBlock writes the samples before upTo (in milliseconds) as one block.
func writeBlock(
	ctx context.Context, dir string, g *generator, upTo int64, all []labels.Labels, refs []promstorage.SeriesRef,
) (err error) {
	w, err := tsdb.NewBlockWriter(slog.New(slog.DiscardHandler), dir, blockMs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	for g.now < upTo {
		app := w.Appender(ctx)
		for range max(1, batchSamples/g.series()) {
			if g.now >= upTo {
				break
			}
			err := g.step(func(i int, t int64, v float64) (err error) {
				refs[i], err = app.Append(refs[i], all[i], t, v)
				return err
			})
			if err != nil {
				return errors.Join(err, app.Rollback())
			}
		}
		if err := app.Commit(); err != nil {
			return err
		}
	}
	if _, err := w.Flush(ctx); err != nil {
		return fmt.Errorf("writing a block: %w", err)
	}
	return nil
}

// ownCPU returns the user and system time of this process.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
