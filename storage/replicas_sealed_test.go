package storage

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/ha"
	"github.com/cassia-db/cassia/storage/query"
	"github.com/cassia-db/cassia/storage/rollup"
)

// failover is a history of two replicas of which the elected one, a, stops.
type failover struct {
	*pairs
	begun time.Time
	// gap is called after a has stopped and before b is elected.
	gap func()
}

// play sends samples of both replicas every two seconds: those of b are 300 ms later. The series differ in which
// replica sends them:
//
//	m       both
//	short   both, but a stops six seconds before it stops to send m
//	only_b  b
//
// The value of a sample is its time since begun in seconds.
func (f *failover) play(alone, silence time.Duration) {
	f.t.Helper()
	f.begun = f.now
	send := func(i int, replica string, late time.Duration, series ...string) {
		at := f.now.Add(late)
		require.NoError(f.t, f.send(i%len(f.processes), replica, at, at.Sub(f.begun).Seconds(), series...))
	}
	called := false
	for i := 0; f.now.Sub(f.begun) < alone+2*silence; i++ {
		since := f.now.Sub(f.begun)
		switch {
		case since <= alone-6*time.Second:
			send(i, "a", 0, "m", "short")
		case since <= alone:
			send(i, "a", 0, "m")
		case since > alone+silence*3/4 && !called:
			require.Equal(f.t, "a", f.processes[0].replicas.Status("default")[0].Elected)
			f.gap()
			called = true
		}
		send(i+1, "b", 300*time.Millisecond, "m", "short", "only_b")
		f.pass(2 * time.Second)
	}
	require.Equal(f.t, "b", f.processes[0].replicas.Status("default")[0].Elected)
}

// requireCounts requires that the rollups of a series contain n samples.
func (f *failover) requireCounts(process int, series string, n int) {
	f.t.Helper()
	for _, res := range rollup.Resolutions {
		found, err := f.processes[process].store.Select(f.t.Context(), query.Query{
			Tenant: "default", MinT: -format.MaxTime, MaxT: format.MaxTime, Resolution: res,
			Columns:  rollup.AllColumns,
			Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, series)},
		})
		require.NoError(f.t, err)
		var b rollup.Buckets
		count := 0.0
		for _, s := range found {
			require.NoError(f.t, s.Buckets(&b, &query.BucketBuffers{}))
			for _, c := range b.Count {
				count += float64(c)
			}
		}
		require.Equal(f.t, float64(n), count, "%s of %s in process %d", res, series, process)
	}
}

// requireOneReplica requires the samples of a until a stopped, and then those of b. deleted is the time in seconds until
// which samples of m are deleted.
func (f *failover) requireOneReplica(alone, silence time.Duration, deleted float64) {
	f.t.Helper()
	until, end := alone.Seconds(), (alone + 2*silence).Seconds()
	// The margin before the term of b is the failover timeout.
	margin := until - silence.Seconds()
	want := map[string][]float64{}
	for v := 0.0; v < end; v += 2 {
		if v <= until && v > deleted {
			want["m"] = append(want["m"], v)
		}
		if v <= until-6 {
			want["short"] = append(want["short"], v)
		}
	}
	for i := range int(end / 2) {
		v := (time.Duration(2*i)*time.Second + 300*time.Millisecond).Seconds()
		if v > until {
			want["m"] = append(want["m"], v)
		}
		if v > until-6 {
			want["short"] = append(want["short"], v)
		}
		if v > margin {
			want["only_b"] = append(want["only_b"], v)
		}
	}
	for i := range f.processes {
		for series, values := range want {
			require.Equal(f.t, values, f.values(i, series), "%s in process %d", series, i)
		}
	}
	for i := range f.processes {
		require.NoError(f.t, f.processes[i].store.SealAll(f.t.Context()))
		for series, values := range want {
			require.Equal(f.t, values, f.values(i, series), "%s in process %d, sealed", series, i)
			f.requireCounts(i, series, len(values))
		}
	}
}

// writeOthers writes series that no replica sends, in most partitions of the slot of the first samples of both replicas.
func (f *failover) writeOthers() {
	f.t.Helper()
	s := f.processes[0].store
	b := s.NewBatch("default")
	for i := range 64 {
		of, err := b.Define(nil, labels.FromStrings(labels.MetricName, "other", "i", fmt.Sprint(i)))
		require.NoError(f.t, err)
		require.NoError(f.t, b.Float(of, f.now.UnixMilli()+1, 0, 1))
	}
	require.NoError(f.t, b.Commit(f.t.Context()))
}

// TestTakeoverAfterSeal seals or deletes samples of the replica that has stopped, before another one is elected. The
// boundary between the samples of both replicas must not depend on whether the former replica's samples are sealed.
func TestTakeoverAfterSeal(t *testing.T) {
	t.Parallel()
	const alone = 40 * time.Second
	seal := func(f *failover, i int) { require.NoError(f.t, f.processes[i].store.SealAll(f.t.Context())) }
	remove := func(f *failover, i int, series string, from, to time.Time) {
		s := f.processes[i].store
		require.NoError(f.t, s.Delete(
			f.t.Context(), "default", from.UnixMilli(), to.UnixMilli(), equal(labels.MetricName, series),
		))
	}
	for name, c := range map[string]struct {
		gap     func(f *failover)
		deleted float64
	}{
		"nothing": {func(*failover) {}, -1},
		"seal":    {func(f *failover) { seal(f, 0) }, -1},
		"seal of the last process": {func(f *failover) {
			seal(f, len(f.processes)-1)
		}, -1},
		"seal and crash": {func(f *failover) {
			seal(f, 0)
			for i := range f.processes {
				f.crash(i)
			}
		}, -1},
		"delete of the series": {func(f *failover) {
			remove(f, 0, "m", f.begun, f.begun.Add(10*time.Second))
		}, 10},
		"delete of another series": {func(f *failover) { remove(f, 0, "other", f.begun, f.now) }, -1},
	} {
		for processes := range 2 {
			t.Run(fmt.Sprintf("%s/%d", name, processes+1), func(t *testing.T) {
				t.Parallel()
				f := &failover{pairs: newPairs(t, faultengine.Wrap(memory.New(), passAll), processes+1, nil)}
				f.gap = func() { c.gap(f) }
				f.writeOthers()
				f.play(alone, 30*time.Second)
				f.requireOneReplica(alone, 30*time.Second, c.deleted)
			})
		}
	}
}

// TestTakeoverAfterFullDelete deletes a series before another replica is elected. Samples that the other replica sends
// later are stored, except late samples of a time before the deleted samples of the former replica.
func TestTakeoverAfterFullDelete(t *testing.T) {
	t.Parallel()
	const alone, silence = 40 * time.Second, 30 * time.Second
	f := &failover{pairs: newPairs(t, faultengine.Wrap(memory.New(), passAll), 1, nil)}
	deleted := 0.0
	f.gap = func() {
		deleted = f.now.Sub(f.begun).Seconds()
		require.NoError(t, f.processes[0].store.Delete(
			t.Context(), "default", -format.MaxTime, format.MaxTime, equal(labels.MetricName, "m"),
		))
		require.NoError(t, f.send(0, "b", f.begun.Add(alone-5*time.Second), 35, "m"))
	}
	f.play(alone, silence)
	require.NoError(t, f.send(0, "b", f.begun.Add(alone-3*time.Second), 37, "m"))
	f.pass(10 * time.Second)
	found := f.values(0, "m")
	require.InDelta(t, deleted, found[0], 1)
	require.Equal(t, "b", f.processes[0].replicas.Status("default")[0].Elected)
	require.NotContains(t, f.values(0, "m"), 37.0)
}

// TestTakeoverWithUnreadableSamples seals the former replica's samples, and then lets reads of them fail. If they are
// damaged, the takeover stores no samples from before the term of the new replica. Otherwise it is repeated.
func TestTakeoverWithUnreadableSamples(t *testing.T) {
	t.Parallel()
	const alone, silence = 40 * time.Second, 30 * time.Second
	for name, c := range map[string]struct {
		table *engine.Table
		err   error
	}{
		"damaged commit records":     {engine.Sealed, engine.ErrCorrupt},
		"damaged rows":               {engine.Raw, engine.ErrCorrupt},
		"unavailable commit records": {engine.Sealed, engine.ErrUnavailable},
		"unavailable rows":           {engine.Raw, engine.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faults := 0
			eng := faultengine.Wrap(memory.New(), func(op faultengine.Op) faultengine.Action {
				if faults > 0 && op.Kind == faultengine.Scan && op.Table == c.table {
					faults--
					return faultengine.Fail(c.err)
				}
				return faultengine.Pass()
			})
			f := &failover{pairs: newPairs(t, eng, 1, nil)}
			f.gap = func() {
				require.NoError(t, f.processes[0].store.SealAll(t.Context()))
				faults = 1
			}
			f.play(alone, silence)
			require.Zero(t, faults)
			if errors.Is(c.err, engine.ErrUnavailable) {
				f.requireOneReplica(alone, silence, -1)
				return
			}
			for i, v := range f.values(0, "m") {
				if v > alone.Seconds() {
					require.Equal(t, 40.3, v)
					break
				}
				require.Equal(t, float64(2*i), v)
			}
		})
	}
}

// TestTakeoverAfterRegularSeal is TestTakeoverAfterSeal with a failover timeout that is longer than the grace period of
// slots. The slot of the former replica's last samples ends, and is sealed before another replica is elected.
func TestTakeoverAfterRegularSeal(t *testing.T) {
	t.Parallel()
	const alone, silence, settleMS = 40 * time.Second, 24 * time.Minute, 15 * 60_000
	p := newPairs(
		t, faultengine.Wrap(memory.New(), passAll), 2, func(o *ha.Options) { o.Failover = silence },
	)
	p.step = 2 * time.Second
	s := p.processes[0].store
	p.pass(time.Duration(s.period.SlotEnd(s.period.SlotOf(p.now.UnixMilli()+1))-p.now.UnixMilli())*time.Millisecond - alone)
	f, sealed := &failover{pairs: p}, 0
	f.gap = func() {
		for partition := range s.period.Partitions() {
			staged, err := s.Staged(t.Context(), partition, settleMS)
			require.NoError(t, err)
			for _, w := range staged {
				stats, err := s.Seal(t.Context(), w.Work)
				require.NoError(t, err)
				sealed += stats.Samples
			}
		}
	}
	f.play(alone, silence)
	require.Positive(t, sealed)
	f.requireOneReplica(alone, silence, -1)
}
