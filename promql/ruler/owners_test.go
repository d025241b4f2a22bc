package ruler

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/storagetest"
)

const ownersRules = `
groups:
- name: g
  rules:
  - record: load:max
    expr: max(load)
  - record: load:min
    expr: min(load)
  - alert: Loaded
    expr: load > 1
`

// TestWhatIsStoredStays checks that results that are already stored stay unchanged when another process takes over and
// evaluates at their time, although other samples have been stored since.
func TestWhatIsStoredStays(t *testing.T) {
	r := newRig(t)
	r.file(ownersRules)
	r.write(`load`, 3)
	first := r.process().evaluate()
	r.write(`load`, 7) // The sample is late.
	p := r.process()
	p.evaluate()
	require.Equal(t, "3", r.stored(`load:max`, first, time.Minute))
	r.now = first.Add(time.Minute)
	p.evaluate()
	require.Equal(t, "37", r.stored(`load:max`, first, time.Minute))
	require.Equal(t, "11", r.stored(`ALERTS`, first, time.Minute))
}

// TestTakeOverWithAClockBehind checks a takeover by a process whose clock is slower than the previous owner's. The
// results that the previous owner has stored for the future must stay unchanged, and later results must be complete.
func TestTakeOverWithAClockBehind(t *testing.T) {
	r := newRig(t)
	r.file(ownersRules)
	p := r.process()
	first := r.now
	for range 4 {
		r.write(`load`, 3)
		p.evaluate()
		r.now = r.now.Add(time.Minute)
	}
	r.now = first.Add(2 * time.Minute)
	r.write(`load`, 7)
	p = r.process()
	for range 4 {
		p.evaluate()
		r.now = r.now.Add(time.Minute)
	}
	r.now = r.now.Add(-time.Minute)
	require.Equal(t, "333333", r.stored(`load:max`, first, time.Minute),
		"at the last two times, load is 3, as it was at 3 minutes")
	require.Equal(t, "111111", r.stored(`ALERTS`, first, time.Minute))
}

// TestFirstEvaluationStoresOnce checks that the first evaluation of a group stores its results once. The group is
// evaluated twice, to find the time since which alerts have been active.
func TestFirstEvaluationStoresOnce(t *testing.T) {
	r := newRig(t)
	r.file(ownersRules)
	r.write(`load`, 3)
	r.committed = func() { r.write(`load`, 7) }
	first := r.process().evaluate()
	require.Equal(t, "3", r.stored(`load:max`, first, time.Minute))
}

// TestTakeOverFillsWhatIsHalfDone checks that, if a process is killed in the middle of a group, the process that takes
// over stores the missing results of that evaluation.
func TestTakeOverFillsWhatIsHalfDone(t *testing.T) {
	r := newRig(t)
	r.file(ownersRules)
	first := r.now
	r.write(`load`, 3)
	r.write(`load:max`, 5) // The value at that time.
	r.now = first.Add(2 * time.Minute)
	r.process().evaluate()
	require.Equal(t, "533", r.stored(`load:max`, first, time.Minute))
	require.Equal(t, "333", r.stored(`load:min`, first, time.Minute))
	require.Equal(t, "111", r.stored(`ALERTS`, first, time.Minute))
}

// TestPausedOwner checks that a process stores nothing of an evaluation in the middle of which it was suspended for so
// long that others may have taken over. Once it has confirmed that it still owns the rules, it must catch up.
func TestPausedOwner(t *testing.T) {
	for name, pausedWithin := range map[string]bool{"between evaluations": false, "within one": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.file(ownersRules)
			p := r.process()
			p.r.owner = newOwner(r.store, func() time.Time { return r.now })
			p.r.owner.setConfirmed(r.now, true)
			r.write(`load`, 3)
			first := p.evaluate()

			r.now = first.Add(time.Minute)
			if pausedWithin {
				p.r.owner.setConfirmed(r.now, true)
				r.appending = func() { r.now = first.Add(time.Minute + membership.LivenessTimeout) }
			}
			p.evaluate()
			r.now = first.Add(time.Minute)
			require.Equal(t, "3.", r.stored(`load:max`, first, time.Minute))

			r.appending = nil
			r.now = first.Add(2 * time.Minute)
			mine, err := p.r.owner.renewLease(t.Context())
			require.NoError(t, err)
			require.True(t, mine)
			p.evaluate()
			require.Equal(t, "333", r.stored(`load:max`, first, time.Minute))
			require.Equal(t, "111", r.stored(`ALERTS`, first, time.Minute))
		})
	}
}

// TestOwnerThatIsNotHeard checks that a process that can read but can't write its heartbeat stops evaluating before
// other processes take over the rules.
func TestOwnerThatIsNotHeard(t *testing.T) {
	began := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	var passed atomic.Int64
	now := func() time.Time { return began.Add(time.Duration(passed.Load())) }
	var mute atomic.Bool
	store := storagetest.Open(t, faultengine.Wrap(memory.New(), func(op faultengine.Op) faultengine.Action {
		if mute.Load() && op.Kind == faultengine.Write && op.Table == engine.Processes {
			return faultengine.Fail(nil)
		}
		return faultengine.Pass()
	}), storagetest.Clock(now), storagetest.SharedTarget("", ""))
	owner := newOwner(store, now)
	mine, err := owner.renewLease(t.Context())
	require.NoError(t, err)
	require.True(t, mine)
	mute.Store(true)
	for range membership.LivenessTimeout/time.Second - 1 {
		passed.Add(int64(time.Second))
		_, err = owner.renewLease(t.Context())
	}
	require.ErrorIs(t, err, errNotAnnounced)
	passed.Store(int64(membership.LivenessTimeout))
	require.False(t, owner.isConfirmed())
}

// TestViewOfPendingAlerts checks that a process that doesn't evaluate rules lists the time since which alerts have been
// pending, even if they are due and haven't been evaluated yet.
func TestViewOfPendingAlerts(t *testing.T) {
	r := newRig(t)
	r.file(takeoverRules)
	p := r.process()
	r.write(`load`, 9)
	first := p.evaluate()
	r.now = first.Add(time.Minute)
	ruler, err := New(r.store, r.options())
	require.NoError(t, err)
	ruler.setElsewhere(true)
	ctx, cancel := contextOf(t)
	defer cancel()
	loaded := ruler.Retriever(ctx).AlertingRules()[1] // A firing alert is listed first.
	require.Equal(t, "Loaded", loaded.Name())
	require.Len(t, loaded.ActiveAlerts(), 1)
	require.WithinDuration(t, first, loaded.ActiveAlerts()[0].ActiveAt, time.Second)
}
