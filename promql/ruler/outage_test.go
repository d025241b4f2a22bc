package ruler

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// TestAfterAFreeze checks that the only process catches up the missed evaluations after it was suspended, as when its
// machine sleeps.
func TestAfterAFreeze(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.file(takeoverRules)
	p := r.process()
	var first time.Time
	minutes := func(n int, evaluate bool) {
		for range n {
			r.write(`load{host="a"}`, 9)
			if evaluate {
				due := p.evaluate()
				if first.IsZero() {
					first = due
				}
			}
			r.now = r.now.Add(time.Minute)
		}
	}
	minutes(3, true)
	minutes(5, false)
	minutes(3, true)
	r.now = r.now.Add(-time.Minute)
	require.Equal(t, "99999999999", r.stored(`load:max`, first, time.Minute))
	require.Equal(t, "111x.......", r.stored(`ALERTS{alertname="Loaded",alertstate="pending"}`, first, time.Minute))
	require.Equal(t, "...11111111", r.stored(`ALERTS{alertname="Loaded",alertstate="firing"}`, first, time.Minute))
	require.Equal(t, 5.0, testutil.ToFloat64(p.r.metrics.caughtUp))
}

// TestASlowGroupLeavesOut checks that a group that takes longer than its interval tries to catch up once, and then
// skips evaluations.
func TestASlowGroupLeavesOut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.file("groups: [{name: g, rules: [{record: load:max, expr: max(load)}]}]")
	p := r.process()
	p.r.o.CatchUpTimes = 3
	evaluations := 0
	r.committed = func() {
		evaluations++
		r.now = r.now.Add(150 * time.Second)
		r.write(`load`, 9)
	}
	r.write(`load`, 9)
	p.evaluate()
	p.evaluate() // The group tries to catch up.
	before := evaluations
	for range 4 {
		p.evaluate()
	}
	require.Equal(t, 4, evaluations-before)
}

// TestLongIntervals checks that a process that starts just after a group with a long interval was due catches up the
// missed evaluation, at the next due time or at once.
func TestLongIntervals(t *testing.T) {
	for _, minutes := range []int{4, 6, 8, 11, 20, 60} {
		for _, resumes := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d minutes, at once %v", minutes, resumes), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				interval := time.Duration(minutes) * time.Minute
				r.file(fmt.Sprintf("groups: [{name: g, interval: %dm, rules: [{record: load:max, expr: max(load)}]}]",
					minutes))
				r.write(`load`, 3)
				first := r.process().evaluate()
				r.now = first.Add(interval - time.Minute)
				r.write(`load`, 4)
				r.now = first.Add(interval + time.Minute)
				p := r.process()
				want := "34"
				if resumes {
					for _, g := range p.groups {
						p.resumeGroup(p.ctx, g)
					}
					require.Equal(t, want, r.stored(`load:max`, first, interval))
				}
				r.now = first.Add(2 * interval)
				r.write(`load`, 5)
				p.evaluate()
				require.Equal(t, want+"5", r.stored(`load:max`, first, interval))
			})
		}
	}
}

// TestHourlyRuleAfterARestart checks that a process that starts immediately after another one has stopped catches up
// the missed evaluation of an hourly group. The rules are evaluated by the clock.
func TestHourlyRuleAfterARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rules.yml"),
		[]byte("groups: [{name: g, interval: 1h, rules: [{record: tick, expr: vector(7)}]}]"), 0o600))
	synctest.Test(t, func(t *testing.T) {
		r := newRigIn(t, dir, time.Now)
		run := func(until time.Time) {
			o := r.options()
			o.Now = time.Now
			o.Appendable = appendable{&rig{store: r.store}}
			ruler, err := New(r.store, o)
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { ruler.Run(ctx); close(ended) }()
			time.Sleep(time.Until(until))
			cancel()
			<-ended
		}
		r.now = time.Now()
		var first time.Time
		for _, g := range r.process().groups {
			first = g.EvalTimestamp(time.Now().UnixNano()).Add(time.Hour)
		}
		if time.Until(first) < time.Minute {
			// A new group that becomes due while the process starts waits for its next evaluation time.
			first = first.Add(time.Hour)
		}
		run(first.Add(59 * time.Minute))
		time.Sleep(3 * time.Minute)
		run(first.Add(63 * time.Minute))
		r.now = time.Now()
		require.Equal(t, "77", r.stored(`tick`, first, time.Hour))
	})
}

const keepRules = `
groups:
- name: g
  rules:
  - alert: Kept
    expr: load > 5
    for: 2m
    keep_firing_for: 5m
    labels: {severity: "{{ if gt $value 8.0 }}page{{ else }}mail{{ end }}"}
    annotations: {is: "{{ $value }}"}
`

// TestKeepFiringForGoesOn checks that alerts that fire because of keep_firing_for continue to fire after a restart, and
// end at the same time as without a restart.
func TestKeepFiringForGoesOn(t *testing.T) {
	const minutes = 16
	load := func(minute int) float64 {
		if minute < 5 || minute == 7 {
			return 9
		}
		return 1
	}
	play := func(t *testing.T, restart, outage int) (firing, since string) {
		r := newRig(t)
		r.file(keepRules)
		p := r.process()
		first := r.now
		for i := range minutes {
			r.write(`load{host="a"}`, load(i))
			if i == restart {
				p = r.process()
			}
			if i < restart-outage || i >= restart {
				p.evaluate()
			}
			r.now = r.now.Add(time.Minute)
		}
		r.now = r.now.Add(-time.Minute)
		return r.stored(`ALERTS{alertname="Kept",alertstate="firing",severity="page"}`, first, time.Minute),
			r.stored(`ALERTS_FOR_STATE{severity="page"}`, first, time.Minute)
	}
	firing, since := play(t, -1, 0)
	require.Equal(t, "..11111111111x..", firing)
	for restart := 3; restart < minutes; restart++ {
		for outage := range 3 {
			t.Run(fmt.Sprintf("restart at %d after %d minutes", restart, outage), func(t *testing.T) {
				t.Parallel()
				got, gotSince := play(t, restart, outage)
				require.Equal(t, firing, got)
				require.Equal(t, since, gotSince)
			})
		}
	}
}

// TestKeptAlertIsSent checks that an alert that fires because of keep_firing_for is sent unchanged after a restart, and
// that its end is also sent.
func TestKeptAlertIsSent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.file(keepRules)
	p := r.process()
	for i := range 12 {
		r.write(`load{host="a"}`, float64(9-min(max(i-2, 0), 1)*8))
		if i == 5 {
			r.sent = nil
			p = r.process()
		}
		p.evaluate()
		if i == 5 {
			require.Len(t, r.sent, 1)
			require.True(t, strings.HasPrefix(r.sent[0], "firing ") &&
				strings.Contains(r.sent[0], `severity="page"`), r.sent[0])
		}
		r.now = r.now.Add(time.Minute)
	}
	require.True(t, strings.HasPrefix(r.sent[len(r.sent)-1], "resolved "), r.sent)
}
