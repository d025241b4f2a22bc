package ruler

import (
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/value"
	"github.com/stretchr/testify/require"
)

const takeoverRules = `
groups:
- name: g
  rules:
  - record: load:max
    expr: max(load)
  - record: by:host
    expr: load
  - alert: Loaded
    expr: load > 5
    for: 3m
  - alert: AtOnce
    expr: load > 5
`

// TestTakeOver checks that, if one process evaluates rules for some minutes and another one after an outage, the stored
// results have no gap and the alerts are unchanged.
func TestTakeOver(t *testing.T) {
	for name, c := range map[string]struct {
		outage time.Duration
		// recorded, pending, firing and atOnce have one character per minute from the first evaluation on, see
		// rig.stored. The first process evaluates twice before the outage, the second one three times after it.
		recorded, pending, firing, atOnce string
		caughtUp                          float64
	}{
		"none": {0, "99999", "111x.", "...11", "11111", 0},
		// The alert has been active for 3 minutes at its fourth evaluation, whichever process makes it.
		"two evaluations": {2 * time.Minute, "9999999", "111x...", "...1111", "1111111", 2},
		"as far as it goes": {9 * time.Minute, "99999999999999", "111x..........", "...11111111111", "11111111111111",
			9},
		// The alert keeps the minute for which it has been active, and needs two more minutes.
		"too long": {20 * time.Minute, "99....................999", "11....................11x",
			"........................1", "11....................111", 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.file(takeoverRules)
			minutes := func(n int, p *process) (first time.Time) {
				for i := range n {
					r.write(`load{host="a"}`, 9)
					if due := p.evaluate(); i == 0 {
						first = due
					}
					r.now = r.now.Add(time.Minute)
				}
				return first
			}
			first := minutes(2, r.process())
			for range int(c.outage / time.Minute) { // Senders continue.
				r.write(`load{host="a"}`, 9)
				r.now = r.now.Add(time.Minute)
			}
			p := r.process()
			minutes(3, p)
			r.now = r.now.Add(-time.Minute)
			require.Equal(t, c.recorded, r.stored(`load:max`, first, time.Minute))
			require.Equal(t, c.pending, r.stored(`ALERTS{alertname="Loaded",alertstate="pending"}`, first, time.Minute))
			require.Equal(t, c.firing, r.stored(`ALERTS{alertname="Loaded",alertstate="firing"}`, first, time.Minute))
			require.Equal(t, c.atOnce, r.stored(`ALERTS{alertname="AtOnce"}`, first, time.Minute))
			require.Equal(t, c.caughtUp, testutil.ToFloat64(p.r.metrics.caughtUp))
		})
	}
}

// TestWhatIsDueDuringTakeOver checks that evaluations that become due during a takeover, which takes multiple
// intervals, aren't skipped. Prometheus' manager continues with the last time that is due.
func TestWhatIsDueDuringTakeOver(t *testing.T) {
	r := newRig(t)
	r.file(takeoverRules)
	r.write(`load{host="a"}`, 9)
	first := r.process().evaluate()
	r.now = first.Add(5 * time.Minute)
	p := r.process()
	r.committed = func() {
		r.now = r.now.Add(10 * time.Second)
		r.write(`load{host="a"}`, 9)
	}
	p.evaluate()
	require.Greater(t, r.now.Sub(first), 8*time.Minute, "it took long")
	r.committed = nil
	r.write(`load{host="a"}`, 9)
	for range 2 {
		p.evaluate()
		require.NotContains(t, r.stored(`load:max`, first, time.Minute), ".")
		require.NotContains(t, r.stored(`ALERTS{alertname="AtOnce"}`, first, time.Minute), ".")
		r.now = r.now.Add(time.Minute)
	}
}

// TestTakeOverEnds checks that a takeover ends even if each evaluation takes longer than an interval.
func TestTakeOverEnds(t *testing.T) {
	r := newRig(t)
	r.file(takeoverRules)
	r.write(`load{host="a"}`, 9)
	first := r.process().evaluate()
	r.now = first.Add(2 * time.Minute)
	p := r.process()
	p.r.o.CatchUpTimes = 5
	r.committed = func() {
		r.now = r.now.Add(time.Minute)
		r.write(`load{host="a"}`, 9)
	}
	p.evaluate()
	r.now = first.Add(9 * time.Minute)
	require.Equal(t, "99999999..", r.stored(`load:max`, first, time.Minute))
}

// TestTimeThatIsDueTwice checks that a stored result isn't changed when Prometheus' manager repeats a time, as it does
// after an evaluation that took long.
func TestTimeThatIsDueTwice(t *testing.T) {
	r := newRig(t)
	r.file(takeoverRules)
	p := r.process()
	r.write(`load{host="a"}`, 2)
	first := p.evaluate()
	r.now = first.Add(time.Minute)
	p.evaluate()
	r.write(`load{host="a"}`, 9) // The sample is late.
	p.evaluate()
	require.Equal(t, "22", r.stored(`load:max`, first, time.Minute))
	require.Equal(t, "..", r.stored(`ALERTS{alertname="AtOnce"}`, first, time.Minute))
}

// TestWhatIsGoneEndsAfterTakeOver checks that series that the previous process stored last and the next one doesn't
// store get a stale marker, and that other series don't.
func TestWhatIsGoneEndsAfterTakeOver(t *testing.T) {
	r := newRig(t)
	r.file(takeoverRules)
	r.write(`load{host="a"}`, 9)
	r.write(`load{host="b"}`, 1)
	first := r.process().evaluate()
	r.now = r.now.Add(time.Second)
	r.write(`by:host{host="foreign"}`, 3)
	r.now = first.Add(time.Minute)
	r.write(`load{host="a"}`, 2)
	r.write(`load{host="b"}`, math.Float64frombits(value.StaleNaN))
	r.now = first.Add(2 * time.Minute)
	r.process().evaluate()
	require.Equal(t, "922", r.stored(`by:host{host="a"}`, first, time.Minute))
	require.Equal(t, "1x.", r.stored(`by:host{host="b"}`, first, time.Minute))
	require.Equal(t, "1x.", r.stored(`ALERTS{alertname="AtOnce"}`, first, time.Minute))
	require.Equal(t, "1x.", r.stored(`ALERTS{alertname="Loaded"}`, first, time.Minute), "pending, and never firing")
	require.Equal(t, "#x.", r.stored(`ALERTS_FOR_STATE{alertname="Loaded"}`, first, time.Minute))
	require.Equal(t, "...", r.stored(`by:host{host="foreign"}`, first, time.Minute))
}

// TestAlertsAreSentAsTheyAreNow checks that the current state of alerts is sent, and not the state in caught-up
// evaluations, which an Alertmanager would treat as resolved.
func TestAlertsAreSentAsTheyAreNow(t *testing.T) {
	r := newRig(t)
	r.file(takeoverRules)
	r.write(`load{host="a"}`, 9)
	r.process().evaluate()
	const atOnce = ` {alertname="AtOnce", host="a", tenant="team-a"}`
	require.Equal(t, []string{"firing" + atOnce}, r.sent)
	r.sent = nil
	for range 8 {
		r.now = r.now.Add(time.Minute)
		r.write(`load{host="a"}`, 9)
	}
	r.process().evaluate()
	require.NotEmpty(t, r.sent)
	for _, sent := range r.sent {
		require.Contains(t, sent, "firing ", "what fired some minutes ago would be over for an Alertmanager")
	}
}
