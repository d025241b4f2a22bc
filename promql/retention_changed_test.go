package promql

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/storagetest"
)

// keptStore is a store that is restarted with different retentions.
type keptStore struct {
	*storage.Store
	t   *testing.T
	eng engine.Engine
	now time.Time
	// from is the time at which the counter was 0.
	from time.Time
}

func (s *keptStore) open(raw, fiveMinutes, oneHour time.Duration) {
	s.Store = storagetest.Start(
		s.t, s.eng, storagetest.Clock(func() time.Time { return s.now }), func(o *storage.Options) {
			o.Partitions, o.Retention, o.Retention5m, o.Retention1h = 1, raw, fiveMinutes, oneHour
		},
	)
}

func (s *keptStore) restart(raw, fiveMinutes time.Duration) { s.restartAll(raw, fiveMinutes, 0) }

func (s *keptStore) restartAll(raw, fiveMinutes, oneHour time.Duration) {
	require.NoError(s.t, s.Close())
	s.open(raw, fiveMinutes, oneHour)
}

// passes advances the clock by d. Every hour of that time, the process checks for data to delete.
func (s *keptStore) passes(d time.Duration) {
	for end := s.now.Add(d); ; s.now = s.now.Add(time.Hour) {
		_, err := s.Expire(s.t.Context())
		require.NoError(s.t, err)
		if !s.now.Before(end) {
			return
		}
	}
}

// newKeptStore imports 20 days of a counter that increases by 10 every minute, with a retention that keeps all of it.
func newKeptStore(t *testing.T) *keptStore {
	s := &keptStore{t: t, eng: memory.New(), now: time.Date(2026, 5, 21, 12, 0, 0, 0, time.UTC)}
	s.open(0, 0, 0)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	s.from = s.now.Add(-20 * testDay)
	s.importCounter()
	return s
}

func (s *keptStore) importCounter() storage.ImportStats { return s.importDays(s.from, 20) }

func (s *keptStore) importDays(from time.Time, days int) storage.ImportStats {
	var samples chunk.Samples
	for at, v := from, 0.0; at.Before(from.Add(time.Duration(days) * testDay)); at, v = at.Add(time.Minute), v+10 {
		samples.AppendFloat(at.UnixMilli(), 0, v)
	}
	stats, err := s.Import(s.t.Context(), "default",
		[]storage.ImportedSeries{{Labels: labels.FromStrings(labels.MetricName, "c_total"), Samples: &samples}})
	require.NoError(s.t, err)
	return stats
}

// ask runs an instant query. It returns the value of the only series, whether there is one, and the infos.
func (s *keptStore) ask(query, resolution string, at time.Time) (value float64, ok bool, infos []error) {
	s.t.Helper()
	e := NewEngine(DefaultOptions())
	defer e.Close()
	q, err := e.NewInstantQuery(newRollupContext(s.t, resolution), NewQueryable(s.Store), nil, query, at)
	require.NoError(s.t, err)
	defer q.Close()
	r := q.Exec(newRollupContext(s.t, resolution))
	require.NoError(s.t, r.Err, query)
	v, err := r.Vector()
	require.NoError(s.t, err)
	if len(v) == 0 {
		return 0, false, r.Warnings.AsErrors()
	}
	return one(s.t, v), true, r.Warnings.AsErrors()
}

func one(t *testing.T, v promengine.Vector) float64 {
	require.Len(t, v, 1)
	return v[0].F
}

// requireAnswers queries a time whose raw samples have expired. Every answer must be computed from rollups and have an
// info.
func (s *keptStore) requireAnswers(at time.Time) {
	s.t.Helper()
	for query, want := range map[string]float64{
		"count_over_time(c_total[1h])":                60,
		"count_over_time(c_total[1d])":                1440,
		"increase(c_total[1d])":                       14400,
		"c_total":                                     at.Sub(s.from).Minutes() * 10,
		"max_over_time(c_total[5m])":                  0,
		"absent(c_total) or vector(0)":                0,
		"absent_over_time(c_total[10m]) or vector(0)": 0,
	} {
		v, ok, infos := s.ask(query, "auto", at)
		require.True(s.t, ok, "%s is empty", query)
		require.NotEmpty(s.t, infos, "%s says nothing", query)
		if want != 0 {
			require.InEpsilon(s.t, want, v, 0.01, query)
		} else if query[:3] == "abs" {
			require.Zero(s.t, v, query)
		}
	}
}

// TestRaisedRetention checks that, after the retention was lowered until raw samples had expired and then raised again,
// queries of that time are answered from the remaining rows.
func TestRaisedRetention(t *testing.T) {
	t.Parallel()
	s := newKeptStore(t)
	s.restart(testDay, 0)
	s.passes(8 * testDay)
	s.restart(30*testDay, 0)
	long := s.now.Add(-18 * testDay).Truncate(time.Hour).Add(1033 * time.Second)
	s.requireAnswers(long)
	s.passes(2 * time.Hour)
	s.requireAnswers(long)
	s.restart(0, 0)
	s.requireAnswers(long)
}

// TestQueryOverAHole checks a query over a range in the middle of which samples and all rollups have expired. Older and
// newer data was imported after the retention was raised. The query must return both, and a warning that names the
// range between them.
func TestQueryOverAHole(t *testing.T) {
	t.Parallel()
	s := newKeptStore(t)
	s.restartAll(testDay, testDay, testDay)
	s.passes(45 * testDay)
	s.restartAll(400*testDay, 400*testDay, 400*testDay)
	before, after := s.now.Truncate(time.Hour).Add(-200*testDay), s.now.Truncate(time.Hour).Add(-5*testDay)
	for _, days := range []struct {
		from time.Time
		n    int
	}{{before, 10}, {after, 4}} {
		stats := s.importDays(days.from, days.n)
		require.Zero(t, stats.Expired+stats.RollupsOnly, "%+v", stats)
	}
	v, ok, warnings := s.ask("count_over_time(c_total[300d])", "auto", s.now.Truncate(time.Hour))
	require.True(t, ok)
	require.EqualValues(t, 14*1440, v)
	var hole *retention.HoleError
	require.ErrorAs(t, errors.Join(warnings...), &hole)
	require.Greater(t, hole.From, before.Add(10*testDay).UnixMilli())
	require.Less(t, hole.To, after.UnixMilli())
	v, ok, warnings = s.ask("count_over_time(c_total[10d])", "auto", before.Add(10*testDay))
	require.True(t, ok)
	require.EqualValues(t, 10*1440-1, v, "left-open")
	require.NotErrorAs(t, errors.Join(warnings...), &hole)
}

// TestLoweredRetentionIsTakenBack checks that, for a week after a start with a retention that is far too low, raising
// the retention again restores all data.
func TestLoweredRetentionIsTakenBack(t *testing.T) {
	t.Parallel()
	s := newKeptStore(t)
	at := s.now.Add(-15 * testDay).Truncate(time.Hour).Add(1033 * time.Second)
	s.restart(testDay, testDay)
	s.passes(time.Hour)
	_, _, infos := s.ask("count_over_time(c_total[7m])", "auto", at)
	require.NotEmpty(t, infos, "it is hidden")
	s.passes(6 * testDay)
	s.restart(0, 0)
	s.passes(0)
	requireRaw := func(at time.Time) {
		t.Helper()
		v, ok, infos := s.ask("count_over_time(c_total[7m])", "auto", at)
		require.True(t, ok)
		require.Empty(t, infos)
		require.Equal(t, 7.0, v)
	}
	requireRaw(at)
	requireRaw(s.from.Add(time.Hour))
	// The low retention is set again, so the week starts again.
	s.restart(testDay, testDay)
	s.passes(6 * testDay)
	s.restart(0, 0)
	s.passes(10 * testDay)
	requireRaw(at)
	// After the week, expired samples can't be restored.
	s.restart(testDay, testDay)
	s.passes(7*testDay + time.Hour)
	s.restart(0, 0)
	s.passes(time.Hour)
	_, _, infos = s.ask("count_over_time(c_total[7m])", "auto", at)
	require.NotEmpty(t, infos)
}

// TestForcedResolutionPastItsEnd checks the answers of each requested resolution at a time with only 1h buckets: 5m
// must return no value, and all others the values of these buckets.
func TestForcedResolutionPastItsEnd(t *testing.T) {
	t.Parallel()
	s := newKeptStore(t)
	s.restart(testDay, 2*testDay)
	s.passes(18 * testDay)
	s.restart(0, 0)
	at := s.from.Add(2 * testDay).Add(1033 * time.Second)
	for query, want := range map[string]float64{"count_over_time(c_total[1h])": 60, "increase(c_total[1d])": 14400} {
		for _, resolution := range rollupModes {
			v, ok, infos := s.ask(query, resolution, at)
			require.Equal(t, resolution != "5m", ok, "%s at %s", query, resolution)
			require.NotEmpty(t, infos, "%s at %s", query, resolution)
			if !ok {
				continue
			}
			require.InEpsilon(t, want, v, 0.01, "%s at %s", query, resolution)
		}
	}
}

// TestImportedWithoutRawSamples checks that queries don't read raw samples of a range that was imported without its raw
// samples, even after the retention is raised.
func TestImportedWithoutRawSamples(t *testing.T) {
	t.Parallel()
	s := newKeptStore(t)
	require.NoError(t, s.Close())
	s.eng = memory.New()
	s.open(testDay, 0, 0)
	s.importCounter()
	s.restart(30*testDay, 0)
	s.requireAnswers(s.from.Add(4 * testDay).Add(1033 * time.Second))
	// Importing the samples again changes nothing, although the current retention would keep their raw samples.
	stats := s.importCounter()
	require.Greater(t, stats.RollupsOnly, 11*1440, "only rollups are made where raw samples are lacking")
	s.passes(time.Hour)
	s.requireAnswers(s.from.Add(4 * testDay).Add(1033 * time.Second))
	b := s.NewBatch("default")
	ref, err := b.Define(nil, labels.FromStrings(labels.MetricName, "c_total"))
	require.NoError(t, err)
	require.ErrorIs(t, b.Float(ref, s.from.Add(4*testDay).UnixMilli()+1, 0, 1), storage.ErrTooOld,
		"it could not be added to rollups")
	require.NoError(t, b.Float(ref, s.now.Add(-2*testDay).UnixMilli()+1, 0, 1))
	b.Release()
}
