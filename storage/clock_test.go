package storage

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/pebble"
	"github.com/cassia-db/cassia/storage/query"
)

// clockedEngine is an engine on another machine, whose clock is right.
type clockedEngine struct {
	engine.Engine
	now func() time.Time
}

func (e *clockedEngine) Clock(context.Context) (time.Time, error) { return e.now(), nil }

// clockRig controls the time and the errors of the machines' clocks.
type clockRig struct {
	t      *testing.T
	eng    engine.Engine
	passed atomic.Int64 // the true time since clockStart
	shared bool
}

var clockStart = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func (r *clockRig) now() time.Time { return clockStart.Add(time.Duration(r.passed.Load())) }

func (r *clockRig) pass(d time.Duration) { r.passed.Add(int64(d)) }

// clockMachine is a store in a process on a machine with an inaccurate clock.
type clockMachine struct {
	*Store
	r       *clockRig
	off     atomic.Int64
	stopped bool
}

// start opens a store in a new process. off is the error of the machine's clock.
func (r *clockRig) start(off time.Duration, change ...func(*Options)) *clockMachine {
	r.t.Helper()
	m := &clockMachine{r: r}
	m.off.Store(int64(off))
	o := DefaultOptions()
	o.Partitions, o.Shared, o.seams.still = 2, r.shared, true
	o.Now = func() time.Time { return r.now().Add(time.Duration(m.off.Load())) }
	o.Elapsed = func() time.Duration { return time.Duration(r.passed.Load()) }
	for _, f := range change {
		f(&o)
	}
	s := openReady(r.t, r.eng, o)
	m.Store = s
	r.t.Cleanup(m.stop)
	return m
}

func (m *clockMachine) stop() {
	if !m.stopped {
		m.stopped = true
		require.NoError(m.r.t, m.Close())
	}
}

// set sets the error of the machine's clock.
func (m *clockMachine) set(off time.Duration) { m.off.Store(int64(off)) }

// write writes a sample, and returns nil if it is acknowledged.
func (m *clockMachine) write(at time.Time, v float64) error {
	m.r.t.Helper()
	b := m.NewBatch("t")
	s, err := b.Define(nil, labelsOfMetric())
	require.NoError(m.r.t, err)
	if err := b.Float(s, at.UnixMilli(), 0, v); err != nil {
		b.Release()
		return err
	}
	return b.Commit(m.r.t.Context())
}

func labelsOfMetric() labels.Labels { return labels.FromStrings(labels.MetricName, "m") }

func ofMetric() []*labels.Matcher {
	return []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, "m")}
}

// visible returns the number of samples that a query returns.
func (m *clockMachine) visible() (n int) {
	m.r.t.Helper()
	list, err := m.Select(
		m.r.t.Context(), query.Query{Tenant: "t", MinT: -format.MaxTime, MaxT: format.MaxTime, Matchers: ofMetric()},
	)
	require.NoError(m.r.t, err)
	for i := range list {
		var samples chunk.Samples
		require.NoError(m.r.t, list[i].Samples(&samples))
		n += samples.Len()
	}
	return n
}

func (m *clockMachine) waiting() []Work {
	work, err := m.WaitingWork(m.r.t.Context(), 0)
	require.NoError(m.r.t, err)
	return work
}

// removals executes all operations that delete rows or take over partitions, and returns their errors. With an
// untrusted clock, each operation must return an error.
func (m *clockMachine) removals() map[string]error {
	ctx := m.r.t.Context()
	errs := map[string]error{}
	_, errs["expire"] = m.Expire(ctx)
	errs["unlist"] = m.UnlistSlots(ctx, 0)
	_, errs["sweep"] = m.SealUnlisted(ctx, 0)
	errs["delete"] = m.Delete(
		ctx, "t", -format.MaxTime, format.MaxTime, labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, "none"),
	)
	errs["clean"] = m.CleanTombstones(ctx, "t")
	_, errs["import"] = m.Import(ctx, "t", nil)
	lease, err := m.member.Leases(ctx, m.Partitions())
	require.NoError(m.r.t, err)
	_, _, errs["take"] = m.member.SetLeaseOwner(ctx, 0, lease[0], m.member.Writer())
	rules, err := m.member.RulesLease(ctx)
	require.NoError(m.r.t, err)
	_, _, errs["rules"] = m.member.SetRulesLeaseOwner(ctx, rules, m.member.Writer())
	if m.opts.Shared {
		errs["seal"] = m.SealAll(ctx)
		_, errs["roll"] = m.RollUp(ctx, Unrolled{Tenant: "t"}, func() {})
		errs["rework"] = m.WorkOffDeletes(ctx, "t")
	}
	return errs
}

func (m *clockMachine) refuses() {
	m.r.t.Helper()
	require.ErrorIs(m.r.t, m.clock.MayRemove(), membership.ErrClock)
	for what, err := range m.removals() {
		require.ErrorIs(m.r.t, err, membership.ErrClock, what)
	}
}

func (m *clockMachine) may() {
	m.r.t.Helper()
	for what, err := range m.removals() {
		require.NoError(m.r.t, err, what)
	}
}

// TestWrongClockBesideARightOne checks that a process of a shared store doesn't change other processes' data while its
// clock is wrong by months.
func TestWrongClockBesideARightOne(t *testing.T) {
	for name, off := range map[string]time.Duration{"ahead": 60 * 24 * time.Hour, "behind": -60 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			r := &clockRig{t: t, shared: true}
			r.eng = &clockedEngine{memory.New(), r.now}
			right, wrong := r.start(0), r.start(off)
			for i := range 20 {
				require.NoError(t, right.write(r.now().Add(-time.Duration(i)*24*time.Hour), float64(i)))
			}
			before := right.waiting()
			require.ErrorIs(
				t, wrong.write(r.now(), 1), membership.ErrClock,
				"also where the sample is new by the clock: its sender sends it again",
			)
			wrong.refuses()
			require.ErrorIs(
				t, wrong.Delete(t.Context(), "t", -format.MaxTime, format.MaxTime, ofMetric()...), membership.ErrClock,
			)
			require.Equal(t, 20, right.visible())
			require.Equal(t, before, right.waiting())
			require.NoError(t, right.SealAll(t.Context()))
			require.Equal(t, 20, right.visible(), "nothing was discarded while it was sealed")

			wrong.set(0)
			require.NoError(t, wrong.member.SendHeartbeat(t.Context()))
			wrong.may()
			require.NoError(t, wrong.Delete(t.Context(), "t", -format.MaxTime, format.MaxTime, ofMetric()...))
			require.Zero(t, right.visible())
		})
	}
}

// TestClockThatLeapsBetweenBeats sets a clock while a process runs. The process must detect the change before the next
// heartbeat compares the clock.
func TestClockThatLeapsBetweenBeats(t *testing.T) {
	r := &clockRig{t: t, shared: true}
	r.eng = &clockedEngine{memory.New(), r.now}
	m := r.start(0)
	r.pass(time.Hour)
	m.may()
	m.set(60 * 24 * time.Hour)
	m.refuses()
	p, err := m.member.Processes(t.Context())
	require.NoError(t, err)
	require.True(t, p[0].Downsamples() || p[0].Target == "", "it was told before")
	require.NoError(t, m.member.SendHeartbeat(t.Context()))
	p, err = m.member.Processes(t.Context())
	require.NoError(t, err)
	require.True(t, p[0].Doubted, "others take its work")
	m.set(0)
	m.may()
}

func alone(t *testing.T) *clockRig { return &clockRig{t: t, eng: memory.New()} }

// TestClockLeapsOnOneMachine makes the clock of a store's only process leap. The process must detect this, and accept
// samples with the right time and with the clock's time. Once the clock is right again, all samples must be found, and
// samples in windows that the wrong clock would have dropped must be sealed without loss.
func TestClockLeapsOnOneMachine(t *testing.T) {
	eng, err := pebble.Open(t.TempDir(), pebble.DefaultOptions())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, eng.Close()) })
	for name, eng := range map[string]engine.Engine{"memory": memory.New(), "pebble": eng} {
		t.Run(name, func(t *testing.T) {
			r := &clockRig{t: t, eng: eng}
			m := r.start(0)
			for i := range 20 {
				require.NoError(t, m.write(r.now().Add(-time.Duration(i)*24*time.Hour), float64(i)))
			}
			require.NoError(t, m.SealAll(t.Context()))
			r.pass(time.Hour)

			m.set(60 * 24 * time.Hour) // Beyond the retention and the grace.
			m.refuses()
			require.Equal(t, 20, m.visible(), "nothing is hidden")
			sent := r.now().Add(-10 * 24 * time.Hour)
			require.NoError(t, m.write(sent, 7), "writes are taken")
			require.NoError(t, m.write(r.now().Add(60*24*time.Hour), 8), "of the clock's time, too")
			require.NoError(t, m.SealAll(t.Context()))
			require.Equal(t, 22, m.visible(), "sealing goes on, and discards nothing")

			m.set(0)
			m.may()
			require.NoError(t, m.write(sent.Add(time.Minute), 9))
			require.NoError(t, m.SealAll(t.Context()))
			_, err := m.Expire(t.Context())
			require.NoError(t, err)
			require.Equal(t, 23, m.visible(), "also what is in the future now")
			m.stop()
			require.Equal(t, 23, r.start(0).visible())
		})
	}
}

// TestClockIsBehindOnOneMachine sets a clock back. Nothing may be removed, and samples of the present time must be
// accepted and visible.
func TestClockIsBehindOnOneMachine(t *testing.T) {
	r := alone(t)
	m := r.start(0)
	require.NoError(t, m.write(r.now(), 1))
	r.pass(2 * time.Hour)
	m.clock.ObservedUptimeMS()
	m.stop()
	for i, off := range []time.Duration{-60 * 24 * time.Hour, time.Unix(0, 0).Sub(clockStart)} {
		m = r.start(off)
		m.refuses()
		require.NoError(t, m.write(r.now(), 2), "its sender's clock is right")
		require.Positive(t, m.visible())
		r.pass(time.Minute)
		m.stop()
		m = r.start(off)
		require.Equal(t, 2+i, m.visible(), "a restart finds what is staged")
		m.set(0)
		m.may()
		m.stop()
	}
}

// TestClockOfAMachine checks which clocks are trusted after the machine was off or asleep, and if the clock was never
// set.
func TestClockOfAMachine(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	year := func(y int) time.Duration { return time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC).Sub(clockStart) }
	for _, c := range []struct {
		name     string
		ran, off time.Duration // time before the restart, and the clock's error at the restart
		rest     time.Duration // 0 if the clock is trusted immediately
	}{
		{"restart", day, 0, 0},
		{"off for a weekend", 5 * day, 64 * time.Hour, 0},
		{"off for two weeks", 100 * day, 14 * day, 14 * day / 30},
		{"off for a year", 1000 * day, 365 * day, 365 * day / 30},
		{"restored from a backup, just begun", 10 * time.Minute, 365 * day, time.Hour},
		{"young", 2 * day, 200 * day, 2 * day},
		{"2099", 1000 * day, year(2099), year(2099) / 30},
		{"1970, young", 2 * time.Hour, year(1970), 2 * time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := alone(t)
			m := r.start(0)
			r.pass(c.ran)
			seen := m.clock.ObservedUptimeMS()
			require.Equal(t, c.ran.Milliseconds(), seen)
			m.stop()
			m = r.start(c.off)
			require.Equal(t, seen, m.clock.ObservedUptimeMS(), "nobody has seen that time")
			if c.rest == 0 {
				m.may()
				return
			}
			m.refuses()
			r.pass(c.rest / 2)
			m.refuses()
			m.clock.ObservedUptimeMS()
			m.stop()
			m = r.start(c.off) // The clock remains untrusted.
			r.pass(c.rest/2 - 2*time.Minute)
			m.refuses()
			r.pass(4 * time.Minute)
			m.may()
			m.clock.ObservedUptimeMS()
			m.stop()
			r.start(c.off).may()
		})
	}
}

// TestClockThatIsNotEven makes a clock leap repeatedly. It must never be trusted, unless an operator confirms its date.
func TestClockThatIsNotEven(t *testing.T) {
	r := alone(t)
	m := r.start(0)
	r.pass(400 * 24 * time.Hour)
	m.clock.ObservedUptimeMS()
	for i := range 100 {
		m.set(time.Duration(60+30*(i%2)) * 24 * time.Hour)
		m.refuses()
		r.pass(24 * time.Hour)
		m.refuses()
	}
	m.stop()
	today := func(at time.Time) func(*Options) {
		return func(o *Options) { o.Today = time.Date(at.Year(), at.Month(), at.Day(), 0, 0, 0, 0, time.UTC) }
	}
	var log bytes.Buffer
	logged := func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) }
	const another = "--storage.today is ignored, because this machine's clock has another date"
	m = r.start(60*24*time.Hour, today(r.now()), logged)
	require.ErrorContains(t, m.clock.MayRemove(), "--storage.today="+r.now().Add(60*24*time.Hour).Format(time.DateOnly))
	m.stop()
	require.Contains(t, log.String(), another)
	log.Reset()
	m = r.start(60*24*time.Hour, today(r.now().Add(60*24*time.Hour)), logged)
	m.may()
	m.stop()
	require.NotContains(t, log.String(), another)
	r.start(60 * 24 * time.Hour).may()
}

// TestLateSamplesOfAClockThatWasSetRight corrects a clock that was trusted although it was a year slow. The next
// process must find late samples that were accepted just after the correction.
func TestLateSamplesOfAClockThatWasSetRight(t *testing.T) {
	r := alone(t)
	keepAll := func(o *Options) { o.Retention = 0 }
	m := r.start(0, keepAll)
	m.set(-365 * 24 * time.Hour)
	r.pass(time.Minute)
	require.ErrorIs(t, m.clock.MayRemove(), membership.ErrClock)
	r.pass(36 * time.Hour)
	require.NoError(t, m.clock.MayRemove())
	m.set(0)
	require.ErrorIs(t, m.clock.MayRemove(), membership.ErrClock)
	require.NoError(t, m.write(r.now().Add(-180*24*time.Hour), 1))
	require.Equal(t, 1, m.visible())
	r.pass(2 * time.Minute)
	m.clock.ObservedUptimeMS()
	m.stop()
	m = r.start(0, keepAll)
	require.ErrorIs(t, m.clock.MayRemove(), membership.ErrClock)
	require.Equal(t, 1, m.visible())
}

// TestDeleteByAClockThatIsBehind deletes everything while the clock is very slow, but trusted after some time. No
// deleted sample may reappear when the clock is right again.
func TestDeleteByAClockThatIsBehind(t *testing.T) {
	for _, sealed := range []bool{true, false} {
		r := alone(t)
		m := r.start(0)
		require.NoError(t, m.write(r.now(), 1))
		if sealed {
			require.NoError(t, m.SealAll(t.Context()))
		}
		m.set(-60 * 24 * time.Hour)
		r.pass(time.Minute)
		require.ErrorIs(t, m.clock.MayRemove(), membership.ErrClock)
		r.pass(3 * 24 * time.Hour)
		require.NoError(t, m.Delete(t.Context(), "t", -format.MaxTime, format.MaxTime, ofMetric()...))
		m.set(0)
		require.Zero(t, m.visible())
	}
}

// rowlessEngine is an engine without the row of the observed uptime.
type rowlessEngine struct{ engine.Engine }

func (e rowlessEngine) Write(ctx context.Context, list []engine.Batch) error {
	return e.Engine.Write(
		ctx, slices.DeleteFunc(slices.Clone(list), func(b engine.Batch) bool { return b.Table == engine.Processes }),
	)
}

// TestClockOfAStoreThatLostIt opens a store that has lost the row of its observed uptime. The store must derive the
// uptime from its contents.
func TestClockOfAStoreThatLostIt(t *testing.T) {
	r := alone(t)
	r.eng = rowlessEngine{r.eng}
	m := r.start(0)
	for range 100 {
		r.pass(24 * time.Hour)
		require.NoError(t, m.write(r.now(), 1))
		require.NoError(t, m.SealAll(t.Context()))
	}
	require.NoError(t, m.UnlistSlots(t.Context(), 0))
	m.stop()
	r.eng = r.eng.(rowlessEngine).Engine
	m = r.start(0)
	require.InDelta(t, 100*24*time.Hour.Milliseconds(), m.clock.ObservedUptimeMS(), float64(format.DayMS))
	m.may()
	m.stop()
	r.start(60 * 24 * time.Hour).refuses()
}

// TestTimeSeenByProcesses checks that time that multiple processes measure concurrently counts once.
func TestTimeSeenByProcesses(t *testing.T) {
	r := &clockRig{t: t, shared: true}
	r.eng = &clockedEngine{memory.New(), r.now}
	a, b := r.start(0), r.start(0)
	last := int64(0)
	for i := range 10 {
		r.pass(37 * time.Minute)
		for _, m := range []*clockMachine{a, b, nil} {
			if m == nil {
				m = r.start(60 * 24 * time.Hour)
			}
			seen := m.clock.ObservedUptimeMS()
			require.GreaterOrEqual(t, seen, last)
			last = seen
			require.LessOrEqual(t, seen, int64(i+1)*(37*time.Minute).Milliseconds()+3)
		}
	}
	require.InDelta(t, (10 * 37 * time.Minute).Milliseconds(), last, float64(time.Minute.Milliseconds()))
	a.stop()
	b.stop()
	r.pass(24 * time.Hour)
	require.LessOrEqual(t, r.start(0).clock.ObservedUptimeMS(), last+60_000, "nobody was there")
}

// TestWaitingSkipsALeap checks that WaitingWork doesn't read all slots that a leap of the clock has skipped.
func TestWaitingSkipsALeap(t *testing.T) {
	r := alone(t)
	m := r.start(0)
	require.NoError(t, m.write(r.now(), 1))
	r.pass(time.Hour)
	m.set(73 * 365 * 24 * time.Hour)
	now := m.opts.Now()
	require.NoError(t, m.write(now, 2))
	work, err := m.WaitingWork(t.Context(), 0)
	require.NoError(t, err)
	require.Less(t, len(work), 200)
	var ends []time.Time
	for _, w := range work {
		ends = append(ends, time.UnixMilli(m.SlotEnd(w.Slot)))
	}
	require.Contains(t, ends, clockStart.UTC().Truncate(2*time.Hour).Local())
	require.WithinDuration(t, now, ends[len(ends)-1], 26*time.Hour)
	m.set(0)
}
