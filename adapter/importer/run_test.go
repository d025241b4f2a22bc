package importer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
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
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/storagetest"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func openStore(t *testing.T, change func(*storage.Options)) *storage.Store {
	s := storagetest.Open(
		t, memory.New(), storagetest.FixedClock(now), func(o *storage.Options) { o.Partitions = 2 }, change,
	)
	storagetest.CheckAtEnd(t, s)
	return s
}

func local(s *storage.Store) importer.Destination {
	return importer.NewLocal(s, func() time.Time { return now })
}

// dailySource is a source with one batch per day. It fails at the days in breakAt.
type dailySource struct {
	n, series int
	breakAt   map[int]bool // days at which the source fails, once each
	change    func(day int, s *chunk.Samples)
	read      []int
}

var errBroken = errors.New("the source broke off")

func (d *dailySource) Plan(context.Context) (importer.Plan, error) { return importer.Plan{}, nil }

func (d *dailySource) Batches(_ context.Context, after string) iter.Seq2[importer.Batch, error] {
	return func(yield func(importer.Batch, error) bool) {
		first := 0
		if after != "" {
			if _, err := fmt.Sscan(after, &first); err != nil {
				yield(importer.Batch{}, err)
				return
			}
		}
		for day := first; day < d.n; day++ {
			if d.breakAt[day] {
				delete(d.breakAt, day)
				yield(importer.Batch{}, errBroken)
				return
			}
			d.read = append(d.read, day)
			b := importer.Batch{Position: fmt.Sprint(day + 1), Done: float64(day+1) / float64(d.n)}
			for i := range d.series {
				s := &chunk.Samples{}
				for k := range 144 {
					t := now.AddDate(0, 0, day-d.n).Add(time.Duration(k) * 10 * time.Minute).UnixMilli()
					v := float64(k * i)
					if k%50 == 7 {
						v = math.NaN()
					}
					s.AppendFloat(t, 0, v)
				}
				if d.change != nil {
					d.change(day, s)
				}
				b.Series = append(b.Series, storage.ImportedSeries{
					Labels: labels.FromStrings("__name__", fmt.Sprint("m", i%2), "i", fmt.Sprint(i)), Samples: s,
				})
			}
			if day == 1 {
				b.Skipped = []importer.Skip{{What: "a line", Why: "it isn't one", Samples: 3}}
			}
			if !yield(b, nil) {
				return
			}
		}
	}
}

// TestRunGoesOn interrupts a source repeatedly: each run resumes where the last one stopped.
func TestRunGoesOn(t *testing.T) {
	s := openStore(t, nil)
	src := &dailySource{n: 8, series: 5, breakAt: map[int]bool{0: true, 2: true, 3: true, 7: true}}
	var told []float64
	o := importer.Options{
		Into: local(s), Tenant: "default", Source: src, Name: "days", Target: "here",
		Checkpoint: filepath.Join(t.TempDir(), "checkpoint"),
		Progress:   func(p importer.Progress) { told = append(told, p.Done) },
	}
	all := 8 * 5 * 144
	samples, runs := 0, 0
	for {
		r, err := importer.Run(t.Context(), o)
		samples += r.Stats.Samples
		runs++
		if err == nil {
			require.Equal(t, all, r.All.Samples)
			require.Equal(t, 3, r.Skipped)
			break
		}
		require.ErrorIs(t, err, errBroken)
	}
	require.Equal(t, 5, runs)
	require.Equal(t, all, samples)
	require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7}, src.read)
	require.IsIncreasing(t, told)

	stats, err := importer.Verify(t.Context(), o, func(d importer.Difference) { t.Error(d) })
	require.NoError(t, err)
	require.Equal(t, importer.VerifyStats{SeriesDays: stats.SeriesDays, Samples: all}, stats)
	require.GreaterOrEqual(t, stats.SeriesDays, 40)

	again, err := importer.Run(t.Context(), o)
	require.NoError(t, err)
	require.True(t, again.Resumed)
	require.Zero(t, again.Stats.Known, "there was nothing left to read")

	for _, other := range []func(*importer.Options){
		func(o *importer.Options) { o.Tenant = "other" }, func(o *importer.Options) { o.Name = "x" },
		func(o *importer.Options) { o.Target = "x" },
	} {
		changed := o
		other(&changed)
		_, err := importer.Run(t.Context(), changed)
		require.ErrorIs(t, err, importer.ErrOtherImport)
	}
	require.NoError(t, os.WriteFile(o.Checkpoint, []byte("{"), 0o600))
	_, err = importer.Run(t.Context(), o)
	require.ErrorContains(t, err, o.Checkpoint)
}

// TestRunAfterLostCheckpoint imports the same samples again without a checkpoint: no sample is stored twice.
func TestRunAfterLostCheckpoint(t *testing.T) {
	s := openStore(t, nil)
	path := filepath.Join(t.TempDir(), "checkpoint")
	o := importer.Options{Into: local(s), Tenant: "default", Source: &dailySource{n: 3, series: 4}, Checkpoint: path}
	first, err := importer.Run(t.Context(), o)
	require.NoError(t, err)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var c importer.Checkpoint
	require.NoError(t, json.Unmarshal(text, &c))
	require.True(t, c.Complete)
	require.NoError(t, os.Remove(path))
	second, err := importer.Run(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, first.Stats.Samples, second.Stats.Known)
	require.Zero(t, second.Stats.Samples)
}

// TestRunIntoAnotherStore uses the checkpoint of another store: the run imports everything and reports OtherStore.
func TestRunIntoAnotherStore(t *testing.T) {
	o := importer.Options{Tenant: "default", Checkpoint: filepath.Join(t.TempDir(), "checkpoint")}
	for i := range 2 {
		o.Into, o.Source = local(openStore(t, nil)), &dailySource{n: 3, series: 4}
		r, err := importer.Run(t.Context(), o)
		require.NoError(t, err)
		require.Equal(t, i == 1, r.OtherStore)
		require.False(t, r.Resumed)
		require.Equal(t, 3*4*144, r.Stats.Samples)
	}
	r, err := importer.Run(t.Context(), o)
	require.NoError(t, err)
	require.False(t, r.OtherStore)
	require.True(t, r.Complete)
}

// TestRunCanceled checks that a canceled run returns the context's error and stops the source.
func TestRunCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	src := &dailySource{n: 100, series: 1}
	o := importer.Options{
		Into: local(openStore(t, nil)), Tenant: "default", Source: src, Progress: func(importer.Progress) { cancel() },
	}
	_, err := importer.Run(ctx, o)
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, len(src.read), 100)
}

// TestVerifyTellsWhatDiffers changes a value, removes samples and adds samples in the source. Verify must report
// exactly the days and series that differ.
func TestVerifyTellsWhatDiffers(t *testing.T) {
	for name, keep := range map[string]time.Duration{"raw": 0, "rollups": 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, func(o *storage.Options) { o.Retention, o.Retention5m = keep, 0 })
			r := rand.New(rand.NewPCG(1, 1))
			o := importer.Options{Into: local(s), Tenant: "default", Source: &dailySource{n: 30, series: 3}}
			report, err := importer.Run(t.Context(), o)
			require.NoError(t, err)
			if keep != 0 {
				require.Positive(t, report.Stats.RollupsOnly)
			}
			stats, err := importer.Verify(t.Context(), o, func(d importer.Difference) { t.Error(d) })
			require.NoError(t, err)
			require.Equal(t, 30*3*144, stats.Samples+stats.RolledUp+stats.Left)
			require.Equal(t, keep != 0, stats.RolledUp > 0)

			o.Source = &dailySource{n: 30, series: 3, change: func(day int, s *chunk.Samples) {
				if day == 4 {
					s.V[r.IntN(len(s.V))] += 1
					s.V[1] = 7777
				}
			}}
			var told []importer.Difference
			stats, err = importer.Verify(t.Context(), o, func(d importer.Difference) { told = append(told, d) })
			require.NoError(t, err)
			require.Equal(t, len(told), stats.Differences)
			require.GreaterOrEqual(t, len(told), 3)
			for _, d := range told {
				require.Equal(t, keep != 0, d.Rollups)
				require.Equal(t, d.Source.Count, d.Stored.Count)
				require.NotEqual(t, d.Source.Sum, d.Stored.Sum)
				require.Contains(t, d.String(), "2026-04-0")
			}
			// Verify ignores samples that are only in the store, and reports samples that are only in the source.
			o.Source = &dailySource{
				n: 30, series: 3, change: func(_ int, s *chunk.Samples) { s.Clip(s.T[10], s.T[len(s.T)-10]) },
			}
			_, err = importer.Verify(t.Context(), o, func(d importer.Difference) { t.Error(d) })
			require.NoError(t, err)
			o.Source = &dailySource{n: 30, series: 4}
			stats, err = importer.Verify(t.Context(), o, func(d importer.Difference) {
				require.Equal(t, "3", d.Labels.Get("i"))
				require.Zero(t, d.Stored.Count)
			})
			require.NoError(t, err)
			require.GreaterOrEqual(t, stats.Differences, 29)
		})
	}
}

// minuteSource is a source of one batch with one sample per minute of one series, in a range of time.
type minuteSource struct{ minT, maxT time.Time }

func (m *minuteSource) Plan(context.Context) (importer.Plan, error) { return importer.Plan{}, nil }

func (m *minuteSource) Batches(_ context.Context, after string) iter.Seq2[importer.Batch, error] {
	return func(yield func(importer.Batch, error) bool) {
		s := &chunk.Samples{}
		for at := m.minT; after == "" && !at.After(m.maxT); at = at.Add(time.Minute) {
			s.AppendFloat(at.UnixMilli(), 0, float64(at.Minute()))
		}
		yield(importer.Batch{
			Series:   []storage.ImportedSeries{{Labels: labels.FromStrings("__name__", "m"), Samples: s}},
			Position: "end", Done: 1,
		}, nil)
	}
}

// TestVerifyFromTheEdgeOfABucket verifies a part of a source when only rollups are stored. The buckets at the edges
// also contain samples outside of the part, so they aren't compared and cause no difference.
func TestVerifyFromTheEdgeOfABucket(t *testing.T) {
	s := openStore(t, func(o *storage.Options) { o.Retention, o.Retention5m = 24*time.Hour, 0 })
	first := now.AddDate(0, 0, -20).Truncate(24 * time.Hour)
	o := importer.Options{Into: local(s), Tenant: "default", Source: &minuteSource{first, first.Add(10 * time.Hour)}}
	_, err := importer.Run(t.Context(), o)
	require.NoError(t, err)
	for _, edge := range []time.Duration{0, time.Minute, 4 * time.Minute, 5 * time.Minute} {
		from, to := first.Add(2*time.Hour+edge), first.Add(4*time.Hour+edge)
		o.Source, o.Within = &minuteSource{from, to}, query.Span{MinT: from.UnixMilli(), MaxT: to.UnixMilli()}
		stats, err := importer.Verify(t.Context(), o, func(d importer.Difference) { t.Error(edge, d) })
		require.NoError(t, err)
		require.Equal(t, 121, stats.RolledUp+stats.Left)
		require.GreaterOrEqual(t, stats.RolledUp, 115)
	}
}

// TestVerifyComparesEachClassUpToItsRetention checks that Verify compares raw samples for a class with a longer
// retention, and rollups for series of the same metric without a class.
func TestVerifyComparesEachClassUpToItsRetention(t *testing.T) {
	s := openStore(t, func(o *storage.Options) {
		o.Retention, o.Retention5m, o.Retention1h, o.AddClasses = 24*time.Hour, 0, 0, true
		o.Classes = []retention.Class{{
			Name: "long", Durations: retention.Durations{Raw: 90 * 24 * time.Hour},
			Match: [][]*labels.Matcher{{labels.MustNewMatcher(labels.MatchEqual, "i", "2")}},
		}}
	})
	o := importer.Options{Into: local(s), Tenant: "default", Source: &dailySource{n: 30, series: 3}}
	_, err := importer.Run(t.Context(), o)
	require.NoError(t, err)
	stats, err := importer.Verify(t.Context(), o, func(d importer.Difference) { t.Error(d) })
	require.NoError(t, err)
	require.Equal(t, 3*30*144, stats.Samples+stats.RolledUp+stats.Left)
	require.GreaterOrEqual(t, stats.Samples, 30*144)
	require.GreaterOrEqual(t, stats.RolledUp, 2*25*144)

	o.Source = &dailySource{n: 30, series: 3, change: func(day int, s *chunk.Samples) {
		if day == 4 && s.V[10] == 20 { // The series of the class. Swapping two values keeps the sum.
			s.V[10], s.V[11] = s.V[11], s.V[10]
		}
	}}
	stats, err = importer.Verify(t.Context(), o, func(d importer.Difference) { require.False(t, d.Rollups) })
	require.NoError(t, err)
	require.Equal(t, 1, stats.Differences)
}

// TestVerifyOfHours checks that counts and sums of 1h rollups are compared for times at which only these are kept, and
// that a changed value is a difference.
func TestVerifyOfHours(t *testing.T) {
	s := openStore(t, func(o *storage.Options) {
		o.Retention, o.Retention5m, o.Retention1h = 24*time.Hour, 24*time.Hour, 0
	})
	o := importer.Options{Into: local(s), Tenant: "default", Source: &dailySource{n: 60, series: 2}}
	report, err := importer.Run(t.Context(), o)
	require.NoError(t, err)
	require.GreaterOrEqual(t, report.Stats.HoursOnly, 2*40*144)
	stats, err := importer.Verify(t.Context(), o, func(d importer.Difference) { t.Error(d) })
	require.NoError(t, err)
	require.GreaterOrEqual(t, stats.RolledUp, 2*55*144)

	o.Source = &dailySource{n: 60, series: 2, change: func(day int, s *chunk.Samples) {
		if day == 4 {
			s.V[20]++
		}
	}}
	stats, err = importer.Verify(t.Context(), o, func(d importer.Difference) { require.True(t, d.Rollups) })
	require.NoError(t, err)
	require.Equal(t, 2, stats.Differences)
}

// TestVerifyOfALiveSource checks that samples which the source received after the import aren't compared.
func TestVerifyOfALiveSource(t *testing.T) {
	for name, keep := range map[string]time.Duration{"raw": 0, "rollups": 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, func(o *storage.Options) { o.Retention, o.Retention5m = keep, 0 })
			first := now.AddDate(0, 0, -20)
			o := importer.Options{
				Into: local(s), Tenant: "default", Source: &minuteSource{first, first.Add(63 * time.Minute)},
				Checkpoint: filepath.Join(t.TempDir(), "checkpoint"),
			}
			_, err := importer.Run(t.Context(), o)
			require.NoError(t, err)
			o.Source = &minuteSource{first, first.Add(99 * time.Minute)}
			stats, err := importer.Verify(t.Context(), o, func(d importer.Difference) { t.Error(d) })
			require.NoError(t, err)
			require.Equal(t, 36, stats.Newer)
			require.Equal(t, 64, stats.Samples+stats.RolledUp+stats.Left)
			require.GreaterOrEqual(t, stats.Samples+stats.RolledUp, 60)
		})
	}
}

// TestRunStopsBeforeABatchThatIsNotAdmitted checks that a run stores the batches before the rejected batch, and that
// the next run starts with it.
func TestRunStopsBeforeABatchThatIsNotAdmitted(t *testing.T) {
	s, src, refused := openStore(t, nil), &dailySource{n: 4, series: 1}, errors.New("refused")
	o := importer.Options{
		Into: local(s), Tenant: "default", Source: src, Checkpoint: filepath.Join(t.TempDir(), "checkpoint"),
	}
	batches := 0
	o.Admit = func([]storage.ImportedSeries) error {
		if batches++; batches == 3 {
			return refused
		}
		return nil
	}
	r, err := importer.Run(t.Context(), o)
	require.ErrorIs(t, err, refused)
	require.Equal(t, 2*144, r.Stats.Samples)
	r, err = importer.Run(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, 2*144, r.Stats.Samples)
	require.Equal(t, 4*144, r.All.Samples)
}
