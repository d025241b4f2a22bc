package blocks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter/importer"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/storagetest"
)

const hourMS = 3600 * 1000

var day = 24 * time.Hour

// history returns a series with one sample per minute in [from, to).
func history(name string, from, to time.Time, offsetMS int64) series {
	s := series{labels: labels.FromStrings(labels.MetricName, name)}
	total := 0.0
	for i, t := int64(0), from.UnixMilli()+offsetMS; t < to.UnixMilli(); i, t = i+1, t+60_000 {
		switch {
		case name == "temperature":
			total = float64(i*i%89)/8 - 3
		case i%2000 == 1999:
			total = 1
		default:
			total += float64(i % 5)
		}
		if i%1500 < 1300 {
			s.samples.AppendFloat(t, 0, total)
		}
	}
	return s
}

// between returns the samples of a series in [from, to).
func between(s series, from, to time.Time) series {
	part := series{labels: s.labels}
	part.samples.AppendAll(&s.samples)
	part.samples.Clip(from.UnixMilli(), to.UnixMilli()-1)
	return part
}

func bucketsOf(t testing.TB, s *storage.Store, res rollup.Resolution, name string) *rollup.Buckets {
	t.Helper()
	found, err := s.Select(t.Context(), query.Query{
		Tenant: "t", MinT: 0, MaxT: math.MaxInt64 / 2, Resolution: res, Columns: rollup.AllColumns,
		Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, name)},
	})
	require.NoError(t, err)
	b := &rollup.Buckets{}
	if len(found) > 0 {
		require.Len(t, found, 1)
		require.NoError(t, found[0].Buckets(b, &query.BucketBuffers{}))
	}
	return b
}

// breaking is a source that fails after some batches.
type breaking struct {
	importer.Source
	after int
}

var errBroken = errors.New("the source broke off")

func (b breaking) Batches(ctx context.Context, after string) iter.Seq2[importer.Batch, error] {
	return func(yield func(importer.Batch, error) bool) {
		n := 0
		for batch, err := range b.Source.Batches(ctx, after) {
			if n++; n > b.after {
				yield(importer.Batch{}, errBroken)
				return
			}
			if !yield(batch, err) {
				return
			}
		}
	}
}

// TestDownsampledBlocksAreStored imports overlapping blocks of samples and of 5m and 1h windows, as Thanos keeps them.
// The store keeps raw samples for some time, 5m rollups for longer, and 1h rollups forever. The import is interrupted
// after every batch. Each time is stored once, at the finest resolution that the store keeps. A sample at the edge of
// two windows is in the bucket of the later window.
func TestDownsampledBlocksAreStored(t *testing.T) {
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	for _, offset := range []int64{0, 23_000} {
		s := storagetest.Open(t, memory.New(), storagetest.FixedClock(now), func(o *storage.Options) {
			o.Partitions, o.Retention, o.Retention5m, o.Retention1h = 2, 10*day, 60*day, 0
		})
		storagetest.CheckAtEnd(t, s)
		begin := now.Add(-150 * day).Truncate(7 * day)
		early, late := begin.Add(4*day), begin.Add(6*day)
		dir := t.TempDir()
		var all []series
		for _, name := range []string{"requests_total", "temperature"} {
			all = append(all, history(name, begin, late, offset))
		}
		parts := func(from, to time.Time) (list []series) {
			for _, x := range all {
				list = append(list, between(x, from, to))
			}
			return list
		}
		write(t, dir, parts(early, late)...)
		fine := begin.Add(2 * day)
		writeDownsampled(t, dir, nil, 300_000, 140, parts(fine, late)...)
		writeDownsampled(t, dir, nil, hourMS, 140, parts(begin, late)...)
		o := importer.Options{
			Into: importer.NewLocal(s, func() time.Time { return now }), Tenant: "t", Name: "blocks", Target: "here",
			Checkpoint: filepath.Join(t.TempDir(), "c"),
		}
		runs := 0
		for ; ; runs++ {
			source := open(t, Options{Dirs: []string{dir}, Selection: importer.Everything(), BatchBytes: 20_000})
			o.Source = breaking{source, 1}
			if r, err := importer.Run(t.Context(), o); err == nil {
				require.Zero(t, r.All.TooCoarse)
				require.Positive(t, r.All.LeftOut)
				break
			} else {
				require.ErrorIs(t, err, errBroken)
			}
		}
		require.Greater(t, runs, 5)
		check := func() {
			for _, x := range all {
				name := x.labels.Get(labels.MetricName)
				require.Zero(t, bucketsOf(t, s, rollup.FiveMinutes, name).Len())
				got := bucketsOf(t, s, rollup.OneHour, name)
				var want rollup.Buckets
				old, recent := between(x, begin, early), between(x, early, late)
				moved := chunk.Samples{}
				moved.AppendAll(leftClosed(&old.samples, hourMS))
				moved.AppendAll(&recent.samples)
				moved.Normalize()
				rollup.AppendEvery(&want, &moved, hourMS)
				require.Equal(t, want.End, got.End)
				require.Equal(t, want.Count, got.Count)
				require.Equal(t, want.Min, got.Min)
				require.Equal(t, want.Max, got.Max)
				for i, end := range got.End {
					require.InDelta(t, want.Sum[i], got.Sum[i], 1e-9*max(1, math.Abs(want.Sum[i])))
					isOld := end <= early.UnixMilli()
					require.Equal(t, isOld, got.Flags[i]&rollup.Aggregated != 0)
				}
			}
		}
		check()
		o.Source, o.Checkpoint = open(t, Options{Dirs: []string{dir}, Selection: importer.Everything()}), ""
		r, err := importer.Run(t.Context(), o)
		require.NoError(t, err)
		require.Zero(t, r.Stats.Samples)
		check()
		stats, err := importer.Verify(t.Context(), o, func(d importer.Difference) { require.Fail(t, d.String()) })
		require.NoError(t, err)
		require.Positive(t, stats.RolledUp)
		require.Positive(t, stats.Left)
		c, err := importer.ReadContents(t.Context(), importer.ReadOptions{Source: o.Source, Now: now})
		require.NoError(t, err)
		require.Equal(t, c.TooCoarse, c.Downsampled, "a destination that keeps all samples")
		require.Positive(t, c.Downsampled)
	}
}

// TestWrongTimeRange reads blocks whose chunks are outside of the time range in meta.json. Only days that the range
// overlaps are read. Each chunk with selected samples on other days is reported once.
func TestWrongTimeRange(t *testing.T) {
	from, to := time.UnixMilli(start).UTC().Truncate(day), time.UnixMilli(start).UTC().Truncate(day).Add(3*day)
	x := history("requests_total", from, to, 23_000)
	for name, writeBlock := range map[string]func(dir string) string{
		"samples": func(dir string) string { return write(t, dir, x) },
		"windows": func(dir string) string { return writeDownsampled(t, dir, nil, 300_000, 100, x) },
	} {
		for _, c := range []struct {
			name             string
			minTime, maxTime int64
			sel              importer.Selection
			isLost           bool
		}{
			{"right", x.samples.T[0], x.samples.T[x.samples.Len()-1] + 1, importer.Everything(), false},
			{"the same days", from.Add(day / 2).UnixMilli(), to.Add(-day / 2).UnixMilli(), importer.Everything(), false},
			{"starts too late", from.Add(day + time.Hour).UnixMilli(), to.UnixMilli(), importer.Everything(), true},
			{"ends too early", from.UnixMilli(), from.Add(2 * time.Hour).UnixMilli(), importer.Everything(), true},
			{"no time", 0, 0, importer.Everything(), true},
			{"no time at the start of a day", from.UnixMilli() + 1, from.UnixMilli() + 1, importer.Everything(), true},
			{"only selected days", from.Add(day + time.Hour).UnixMilli(), to.UnixMilli(), importer.Selection{MinMS: from.Add(day + 3*time.Hour).UnixMilli(), MaxMS: math.MaxInt64}, false},
		} {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				dir := t.TempDir()
				changeTimes(t, writeBlock(dir), c.minTime, c.maxTime)
				samples, skipped := 0, map[string]bool{}
				for b, err := range open(t, Options{
					Dirs: []string{dir}, Selection: c.sel, BatchBytes: 20_000,
				}).Batches(t.Context(), "") {
					require.NoError(t, err)
					for _, s := range b.Series {
						samples += s.Samples.Len()
					}
					for _, s := range b.Buckets {
						samples += s.Buckets.Samples()
					}
					for _, s := range b.Skipped {
						require.Contains(t, s.Why, "outside of the time range in meta.json")
						require.False(t, skipped[s.What], s.What)
						skipped[s.What] = true
					}
				}
				require.Equal(t, c.isLost, len(skipped) > 0)
				if selected := c.sel.MinMS > math.MinInt64; !selected {
					require.Equal(t, c.isLost, samples < x.samples.Len())
				}
			})
		}
	}
}

// changeTimes sets the time range in the meta.json of a block.
func changeTimes(t testing.TB, dir string, minTime, maxTime int64) {
	t.Helper()
	path := filepath.Join(dir, "meta.json")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	m := map[string]json.RawMessage{}
	require.NoError(t, json.Unmarshal(text, &m))
	m["minTime"], m["maxTime"] = json.RawMessage(fmt.Sprint(minTime)), json.RawMessage(fmt.Sprint(maxTime))
	text, err = json.Marshal(m)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o644))
}

// TestDuplicateWindows imports two blocks that share windows. The shared windows are stored once, and counted as
// skipped.
func TestDuplicateWindows(t *testing.T) {
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	s := storagetest.Open(t, memory.New(), storagetest.FixedClock(now), func(o *storage.Options) {
		o.Partitions, o.Retention, o.Retention5m, o.Retention1h = 2, 10*day, 60*day, 0
	})
	storagetest.CheckAtEnd(t, s)
	begin := now.Add(-40 * day)
	x := history("temperature", begin, begin.Add(3*day), 23_000)
	first, second := between(x, begin, begin.Add(2*day)), between(x, begin.Add(day), begin.Add(3*day))
	both := between(x, begin.Add(day), begin.Add(2*day))
	shared := both.samples.Len()
	dir := t.TempDir()
	writeDownsampled(t, dir, nil, 300_000, 140, first)
	writeDownsampled(t, dir, nil, 300_000, 140, second)
	r, err := importer.Run(t.Context(), importer.Options{
		Into: importer.NewLocal(s, func() time.Time { return now }), Tenant: "t", Name: "blocks", Target: "here",
		Source: open(t, Options{Dirs: []string{dir}, Selection: importer.Everything()}),
	})
	require.NoError(t, err)
	require.Equal(t, shared, r.Stats.LeftOut)
	require.Equal(t, x.samples.Len()+shared, r.Stats.RollupsOnly)
	require.Equal(t, x.samples.Len(), bucketsOf(t, s, rollup.FiveMinutes, "temperature").Samples())
}
