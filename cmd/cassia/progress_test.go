package main

import (
	"context"
	"fmt"
	"io/fs"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter/exporter"
	"github.com/cassia-db/cassia/adapter/importer"
	"github.com/cassia-db/cassia/adapter/importer/lines"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/pebble"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// workClock is a clock that advances only with the amount of work, so that the tests don't depend on the machine's
// speed.
type workClock struct{ at atomic.Int64 }

func (c *workClock) now() time.Time { return time.Unix(0, c.at.Load()) }

// advance advances the clock by the time for one row with the given number of bytes.
func (c *workClock) advance(bytes int) { c.at.Add(int64(bytes+8) * int64(100*time.Microsecond)) }

// advancePerRow advances the clock for each row that is read.
func (c *workClock) advancePerRow(rows iter.Seq2[engine.Row, error]) iter.Seq2[engine.Row, error] {
	return func(yield func(engine.Row, error) bool) {
		for row, err := range rows {
			c.advance(len(row.Value))
			if !yield(row, err) {
				return
			}
		}
	}
}

// throttledEngine is an engine whose reads and writes of rows advance a clock.
type throttledEngine struct {
	*memory.Engine
	clock *workClock
}

func (e *throttledEngine) Scan(ctx context.Context, r engine.Range) iter.Seq2[engine.Row, error] {
	return e.clock.advancePerRow(e.Engine.Scan(ctx, r))
}

func (e *throttledEngine) Write(ctx context.Context, batches []engine.Batch) error {
	for _, b := range batches {
		for _, m := range b.Mutations {
			e.clock.advance(len(m.Value))
		}
	}
	return e.Engine.Write(ctx, batches)
}

// shownLines records progress lines and the times at which they are shown.
type shownLines struct {
	now   func() time.Time
	lines []shownLine
}

type shownLine struct {
	at   time.Time
	text string
}

func (s *shownLines) Write(p []byte) (int, error) {
	s.lines = append(s.lines, shownLine{s.now(), string(p)})
	return len(p), nil
}

// bar returns a bar on a simulated terminal whose output is recorded.
func (s *shownLines) bar() *progressBar {
	return &progressBar{w: s, isTerminal: true, now: s.now, began: s.now(), shown: s.now()}
}

var (
	shownDone = regexp.MustCompile(`\] +([0-9.]+)%  `)
	shownLeft = regexp.MustCompile(`/s, (\S+) left`)
)

// requireHonest requires that the displayed remaining time is within a factor of two of the actual remaining time, plus
// a second for rounding. It ignores lines before 10 % of the work is done, and lines shown when the actual remaining
// time is less than the given part of the total time.
func (s *shownLines) requireHonest(t *testing.T, began time.Time, part float64) {
	t.Helper()
	end, held := s.now(), 0
	for _, l := range s.lines {
		done := shownDone.FindStringSubmatch(l.text)
		if done == nil {
			continue // This line clears the bar.
		}
		percent, err := strconv.ParseFloat(done[1], 64)
		require.NoError(t, err)
		truth := end.Sub(l.at)
		if percent < 10 || truth.Seconds() < part*end.Sub(began).Seconds() {
			continue
		}
		m := shownLeft.FindStringSubmatch(l.text)
		require.NotNil(t, m, l.text)
		left, err := time.ParseDuration(m[1])
		require.NoError(t, err)
		require.LessOrEqual(t, left, 2*truth+time.Second, "after %s of %s: %q", l.at.Sub(began), end.Sub(began), l.text)
		require.GreaterOrEqual(t, 2*left, truth, "after %s of %s: %q", l.at.Sub(began), end.Sub(began), l.text)
		held++
	}
	require.Greater(t, held, 5, "%v", s.lines)
}

// unevenSamples writes samples of many days. The number of samples differs from day to day.
func unevenSamples(t *testing.T, eng engine.Engine, now time.Time) {
	t.Helper()
	s := storagetest.Start(t, eng, storagetest.FixedClock(now))
	b := s.NewBatch("default")
	for day := range 12 {
		for i := range 6 + 3*(day%3) {
			ls := labels.FromStrings("__name__", fmt.Sprintf("metric_%d_total", i%5), "host", fmt.Sprint(i))
			storagetest.Add(t, b, ls, storagetest.Samples(
				now.AddDate(0, 0, -day).UnixMilli(), -30_000, 2500,
				func(k int) float64 { return float64(97*k + k*k%97) },
			)...)
		}
	}
	require.NoError(t, b.Commit(t.Context()))
	require.NoError(t, s.SealAll(t.Context()))
	require.NoError(t, s.Close())
}

// TestRemainingTimeOfACheck checks the displayed remaining time of a check that is slowed down by throttled reads of
// rows.
func TestRemainingTimeOfACheck(t *testing.T) {
	t.Parallel()
	now, clock := time.Now(), &workClock{}
	eng := &throttledEngine{memory.New(), clock}
	unevenSamples(t, eng, now)
	s := storagetest.Open(t, eng, storagetest.FixedClock(now))
	shown := &shownLines{now: clock.now}
	began := clock.now()
	bar := &meterBar{bar: shown.bar(), what: "checking", unit: dayBytes}
	_, err := s.Check(bar.withMeter(t.Context()), func(problem string) { t.Error(problem) })
	require.NoError(t, err)
	shown.requireHonest(t, began, 0.1)
}

// throttledPebble is a Pebble engine whose reads advance a clock. Unlike throttledEngine, Pebble estimates the
// number of bytes to read.
type throttledPebble struct {
	*pebble.Engine
	clock *workClock
}

func (t *throttledPebble) Scan(ctx context.Context, r engine.Range) iter.Seq2[engine.Row, error] {
	return t.clock.advancePerRow(t.Engine.Scan(ctx, r))
}

// TestRemainingTimeOfACheckOfADirectory checks the displayed remaining time of a check with throttled reads of rows
// from Pebble, which estimates the number of bytes to read.
func TestRemainingTimeOfACheckOfADirectory(t *testing.T) {
	t.Parallel()
	now, clock := time.Now(), &workClock{}
	eng := &throttledPebble{storagetest.Pebble(t), clock}
	unevenSamples(t, eng, now)
	require.NoError(t, eng.CompactAll(t.Context()))
	s := storagetest.Open(t, eng, storagetest.FixedClock(now))
	shown := &shownLines{now: clock.now}
	began := clock.now()
	bar := &meterBar{bar: shown.bar(), what: "checking", unit: dayBytes}
	_, err := s.Check(bar.withMeter(t.Context()), func(problem string) { t.Error(problem) })
	require.NoError(t, err)
	shown.requireHonest(t, began, 0.1)
}

// TestRemainingTimeOfAnExport checks the displayed remaining time of an export that is slowed down by throttled reads
// of rows.
func TestRemainingTimeOfAnExport(t *testing.T) {
	t.Parallel()
	now, clock := time.Now(), &workClock{}
	eng := &throttledEngine{memory.New(), clock}
	unevenSamples(t, eng, now)
	s := storagetest.Open(t, eng, storagetest.FixedClock(now))
	shown := &shownLines{now: clock.now}
	began := clock.now()
	o := exporter.Options{
		Tenant: "default", MinT: 0, MaxT: now.UnixMilli(), Now: time.Now, Progress: shown.bar().showExport,
	}
	_, err := exporter.TextFile(t.Context(), s, exporter.CSV, o, filepath.Join(t.TempDir(), "a.csv"))
	require.NoError(t, err)
	shown.requireHonest(t, began, 0.1)
}

// TestRemainingTimeOfAnImport checks the displayed remaining time of an import that is slowed down by throttled writes
// of rows.
func TestRemainingTimeOfAnImport(t *testing.T) {
	t.Parallel()
	now, clock := time.Now(), &workClock{}
	file := filepath.Join(t.TempDir(), "a.om")
	var text []byte
	for i := range 60 {
		for k := range 600 {
			text = fmt.Appendf(
				text, "m_total{i=\"%d\"} %d %d\n", i, 97*k+k*k%97, now.Add(time.Duration(k-600)*time.Minute).Unix(),
			)
		}
	}
	require.NoError(t, os.WriteFile(file, append(text, "# EOF\n"...), 0o600))
	eng := &throttledEngine{memory.New(), clock}
	s := storagetest.Open(t, eng, storagetest.FixedClock(now))
	shown := &shownLines{now: clock.now}
	began := clock.now()
	_, err := importer.Run(t.Context(), importer.Options{
		Into: importer.NewLocal(s, func() time.Time { return now }), Tenant: "default",
		Source:   lines.New(lines.Options{Path: file, Format: lines.OpenMetrics, Selection: importer.Everything(), BatchBytes: 32 << 10}),
		Progress: (&importPrinter{bar: shown.bar()}).printProgress,
	})
	require.NoError(t, err)
	shown.requireHonest(t, began, 0.1)
}

// bytesIn returns a clock that advances with the number of bytes in a directory.
func bytesIn(dir string) func() time.Time {
	return func() time.Time {
		total := int64(0)
		_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error { // Files may be renamed concurrently.
			if err == nil && !d.IsDir() {
				if info, err := d.Info(); err == nil {
					total += info.Size()
				}
			}
			return nil
		})
		return time.Unix(0, total*int64(100*time.Microsecond))
	}
}

// TestRemainingTimeOfABackupAndARestore checks the displayed remaining times of a backup and a restore that are slowed
// down by throttled writes of files.
func TestRemainingTimeOfABackupAndARestore(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Hour)
	folder := filepath.Join(t.TempDir(), "backups")
	run := func(what, into string, part float64, do func(ctx context.Context) error) {
		shown := &shownLines{now: bytesIn(into)}
		began := shown.now()
		bar := &meterBar{bar: shown.bar(), what: what, unit: dayBytes}
		require.NoError(t, do(bar.withMeter(t.Context())))
		shown.requireHonest(t, began, part)
	}
	// The file is large in comparison with the buffer that is read before any of it is written.
	snapshot, eng := filepath.Join(t.TempDir(), "snapshot"), storagetest.Pebble(t)
	samples, rng := storagetest.Start(t, eng, storagetest.FixedClock(now)), rand.New(rand.NewPCG(1, 1))
	b := samples.NewBatch("default")
	for i := range 50 {
		ls := labels.FromStrings("__name__", fmt.Sprintf("metric_%d_total", i%5), "host", fmt.Sprint(i))
		storagetest.Add(t, b, ls, storagetest.Samples(now.UnixMilli(), -30_000, 3000, func(int) float64 {
			return rng.Float64()
		})...)
	}
	require.NoError(t, b.Commit(t.Context()))
	require.NoError(t, samples.SealAll(t.Context()))
	require.NoError(t, samples.Close())
	require.NoError(t, eng.CompactAll(t.Context()))
	require.NoError(t, makeCheckpoint(t.Context(), eng, snapshot))
	name := backupName(now)
	// On this clock, the verification at the end of a backup takes no time, although it is a fifth of the work. The
	// actual remaining time is therefore unknown in the last part.
	run("backing up", folder, 0.3, func(ctx context.Context) error {
		_, err := pebble.Backup(ctx, snapshot, folder, name, pebble.Keep{}, now)
		return err
	})
	restored := filepath.Join(t.TempDir(), "restored")
	run("restoring", restored, 0.1, func(ctx context.Context) error {
		_, err := pebble.Restore(ctx, folder, name, restored)
		return err
	})
}

// TestResumedImportOfRollups checks that a resumed import also prints the number of samples that earlier runs stored
// only as rollups.
func TestResumedImportOfRollups(t *testing.T) {
	var b strings.Builder
	r := importer.Report{
		Resumed: true, Stats: storage.ImportStats{RollupsOnly: 3},
		All: storage.ImportStats{RollupsOnly: 10, LeftOut: 1, Known: 1},
	}
	(&importPrinter{}).printReport(&b, r, time.Second)
	require.Contains(t, b.String(), "imported 0 samples in 1s, 3/s; 3 only in the rollups\n")
	require.Contains(t, b.String(), "including earlier runs: 0 samples; 1 was already stored; 9 only in the rollups\n")
}

// TestImportOfTheFuture checks that the error of an import in which most samples are in the future suggests the cause:
// timestamps in milliseconds were parsed as seconds.
func TestImportOfTheFuture(t *testing.T) {
	for ahead, asks := range map[int]bool{3: false, 4: true} {
		var b strings.Builder
		(&importPrinter{}).printReport(
			&b, importer.Report{Stats: storage.ImportStats{Samples: 1, Known: 2, Ahead: ahead}}, time.Second,
		)
		require.Contains(t, b.String(), "in the future\n")
		require.Equal(t, asks, strings.Contains(b.String(), "most timestamps are in the future: are they in the unit"),
			b.String())
	}
}
