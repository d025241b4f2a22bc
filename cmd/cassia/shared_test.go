package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// TestTwoOnCassandraShareWork has two processes on one keyspace evaluate rules, take the samples of a pair of replicas, one
// each, and delete series while both go on writing them. Then the one that evaluates is killed, to which the elected replica
// sends: the other one misses no evaluation and no sample, and nothing that was deleted comes back, also when both have
// been started anew.
func TestTwoOnCassandraShareWork(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the binary for most of a minute: leave -short out")
	}
	t.Parallel() // much of the time is spent waiting for leases to pass over
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	r := newSharedRig(ctx, t)
	deleted := newSharedDeletes(r)
	deleted.whileBothWrite()

	recorded := newSharedRuling(r)
	pair := newSharedPair(r, recorded.owner)
	pair.replicaDies()
	recorded.look()
	recorded.oneEvaluates()
	r.processes[recorded.owner].Kill()
	killed := time.Now()
	pair.failsOver()
	recorded.takesOver(killed)
	pair.check()
	recorded.check(killed)

	r.processes[recorded.owner] = start(ctx, t, r.processes[recorded.owner].Program)
	r.restart(recorded.other)
	deleted.check("started anew")
	deleted.cleanUp()
}

// sharedRuling is what is recorded by rules.
type sharedRuling struct {
	*sharedRig
	// owner evaluates, other doesn't.
	owner, other int
	active       time.Time // since when the alert is, as the owner says
	// seen is what was read of each series, by time.
	seen map[string]map[int64]float64
}

var sharedRecorded = []string{`tick`, `newest`, `ALERTS{alertstate="firing"}`, `ALERTS_FOR_STATE`}

func newSharedRuling(r *sharedRig) *sharedRuling {
	x := &sharedRuling{sharedRig: r, seen: map[string]map[int64]float64{}}
	evaluating := func(i int) bool { return r.metric(i, "cassia_rules_evaluated_here") == 1 }
	r.wait("one of them evaluates", func() bool { return evaluating(0) || evaluating(1) })
	if !evaluating(0) {
		x.owner = 1
	}
	x.other = 1 - x.owner
	beat := newSender(func(at int64) float64 { return float64(at) }, "__name__", "beat")
	beat.every, beat.behind = sharedTick/2, 1200*time.Millisecond
	beat.start(r.ctx, r.t, r.processes[x.other])
	r.wait("the alert is recorded as firing", func() bool { return len(r.samples(x.other, sharedRecorded[2], "10m")) > 2 })
	x.active = x.activeAt(x.owner)
	return x
}

// activeAt is since when a process says that the alert is active.
func (x *sharedRuling) activeAt(i int) time.Time {
	var answer struct {
		Data struct {
			Alerts []struct {
				ActiveAt time.Time
				State    string
			}
		}
	}
	_, body := running{url: x.processes[i].URL()}.get(x.t, "/api/v1/alerts")
	require.NoError(x.t, json.Unmarshal([]byte(body), &answer))
	require.Len(x.t, answer.Data.Alerts, 1)
	require.Equal(x.t, "firing", answer.Data.Alerts[0].State)
	return answer.Data.Alerts[0].ActiveAt
}

// look reads what is recorded: what was read before has the values it had.
func (x *sharedRuling) look() {
	x.t.Helper()
	for _, selector := range sharedRecorded {
		if x.seen[selector] == nil {
			x.seen[selector] = map[int64]float64{}
		}
		there := map[int64]float64{}
		for _, s := range x.samples(x.other, selector, "10m") {
			there[s.at] = s.v
		}
		for at, v := range x.seen[selector] {
			require.Equal(x.t, v, there[at], "%s at %d has another value than before", selector, at)
		}
		x.seen[selector] = there
	}
}

// oneEvaluates holds that the other process has never evaluated a group.
func (x *sharedRuling) oneEvaluates() {
	const evaluated = "prometheus_rule_group_iterations_total"
	require.Positive(x.t, x.metric(x.owner, evaluated))
	require.Zero(x.t, x.metric(x.other, evaluated), "two processes evaluate")
}

// takesOver waits until the other process evaluates and has made up for what was missed.
func (x *sharedRuling) takesOver(killed time.Time) {
	x.t.Helper()
	x.wait("the other process evaluates", func() bool {
		x.look()
		return x.metric(x.other, "cassia_rules_evaluated_here") == 1
	})
	x.t.Logf("the other process evaluates %s after the first was killed", time.Since(killed).Round(100*time.Millisecond))
	now := time.Now().UnixMilli()
	x.wait("it goes on", func() bool {
		x.look()
		ticks := x.samples(x.other, "tick", "10m")
		return ticks[len(ticks)-1].at > now+3000
	})
}

// check holds that nothing is missing of what is recorded, and that the alert is as it was.
func (x *sharedRuling) check(killed time.Time) {
	for _, selector := range sharedRecorded {
		samples := x.samples(x.other, selector, "10m")
		require.Less(x.t, samples[0].at, killed.UnixMilli(), selector)
		require.Greater(x.t, samples[len(samples)-1].at, killed.UnixMilli()+10_000, selector)
		for i, s := range samples[1:] {
			require.LessOrEqual(x.t, s.at-samples[i].at, int64(2000), "%s has a gap longer than two intervals", selector)
			require.Equal(x.t, samples[0].at%1000, s.at%1000, "%s: the times at which it is evaluated", selector)
		}
		if selector == "ALERTS_FOR_STATE" {
			for _, s := range samples {
				require.Equal(x.t, samples[0].v, s.v, "the alert is active since another time: %v", samples)
			}
		}
	}
	caughtUp := x.metric(x.other, "cassia_rules_caught_up_evaluations_total")
	require.Positive(x.t, caughtUp)
	// Prometheus restores it to the second, which is what ALERTS_FOR_STATE has.
	require.True(x.t, x.active.Truncate(time.Second).Equal(x.activeAt(x.other)), "active since %v, not %v", x.activeAt(x.other), x.active)
	x.t.Logf("%v evaluations were made up for", caughtUp)
}

// sharedPair is two replicas, each of which sends to a process of its own: a to the one that lives on.
type sharedPair struct {
	*sharedRig
	a, b        *sender
	stopA       func()
	lives, dies int
}

func newSharedPair(r *sharedRig, dies int) *sharedPair {
	p := &sharedPair{sharedRig: r, lives: 1 - dies, dies: dies}
	replica := func(name string, v float64) *sender {
		return newSender(func(int64) float64 { return v }, "__name__", "work", "__replica__", name, "cluster", "pair")
	}
	p.a, p.b = replica("a", 1), replica("b", 2)
	p.b.offset = sharedTick / 3 // So that samples of both don't hide each other.
	p.stopA = p.a.start(r.ctx, r.t, r.processes[p.lives])
	p.elected("a")
	p.b.start(r.ctx, r.t, r.processes[p.dies])
	r.wait("both are heard", func() bool { return len(p.a.acknowledged()) > 4 && len(p.b.acknowledged()) > 2 })
	return p
}

// elected waits until a replica is elected and what was held of it is stored, as the process says that lives on.
func (p *sharedPair) elected(replica string) {
	p.t.Helper()
	p.wait(replica+" is elected", func() bool {
		var answer struct {
			Data []struct{ Cluster, Elected, State string }
		}
		_, body := running{url: p.processes[p.lives].URL()}.get(p.t, "/api/v1/status/ha")
		require.NoError(p.t, json.Unmarshal([]byte(body), &answer))
		return len(answer.Data) == 1 && answer.Data[0].Elected == replica && answer.Data[0].State == "settled"
	})
}

// replicaDies ends a for a while; b is elected and stays elected when a is back.
func (p *sharedPair) replicaDies() {
	p.stopA()
	p.elected("b")
	p.a.start(p.ctx, p.t, p.processes[p.lives])
	before := len(p.b.acknowledged())
	p.wait("b goes on", func() bool { return len(p.b.acknowledged()) > before+2 })
	p.elected("b")
}

// failsOver waits until a is elected: b's process is gone.
func (p *sharedPair) failsOver() {
	p.elected("a")
	before := len(p.a.acknowledged())
	p.wait("a goes on", func() bool { return len(p.a.acknowledged()) > before+2 })
}

// check holds that there is no gap, and that the samples of a are followed by those of b and these by those of a. At the
// end of b, whose process was killed, both may be there for as long as it hadn't told how far it was: a sixth of the
// failover, and a sample.
func (p *sharedPair) check() {
	work := p.samples(p.lives, `work{cluster="pair"}`, "10m")
	ofB := func(s stamped) bool { return s.v == 2 }
	first := slices.IndexFunc(work, ofB)
	require.Positive(p.t, first)
	last := first
	for i, s := range work[1:] {
		require.LessOrEqual(p.t, s.at-work[i].at, sharedFailover.Milliseconds(), "a gap longer than the failover: %v", work)
		if ofB(s) {
			last = i + 1
		}
	}
	require.Less(p.t, last, len(work)-2, "a went on")
	untold, both := (sharedFailover/6 + sharedTick).Milliseconds(), 0
	for _, s := range work[first:last] {
		if !ofB(s) {
			both++
			require.LessOrEqual(p.t, work[last].at-s.at, untold, "samples of both at once: %v", work)
		}
	}
	p.t.Logf("%d samples of the pair, %d of them of b, %d of a between those", len(work), last-first+1-both, both)
}

// sharedDeletes are series that both processes write and that are deleted meanwhile.
type sharedDeletes struct {
	*sharedRig
	live [2]*sender
	stop [2]func()
	// cut is up to when the live series are deleted, returned when that had been acknowledged. Milliseconds.
	cut, returned int64
	history       int // how many series of a history are left, of historySeries
}

const (
	historySeries  = 10
	historySamples = 30
)

func newSharedDeletes(r *sharedRig) *sharedDeletes {
	d := &sharedDeletes{sharedRig: r, history: historySeries}
	for i := range d.live {
		d.live[i] = newSender(func(int64) float64 { return 1 }, "__name__", "doomed", "via", strconv.Itoa(i))
		d.stop[i] = d.live[i].start(r.ctx, r.t, r.processes[i])
	}
	var all []prompb.TimeSeries
	began := time.Now().Add(-30 * time.Hour)
	for i := range historySeries {
		s := prompb.TimeSeries{Labels: []prompb.Label{{Name: "__name__", Value: "history"}, {Name: "i", Value: strconv.Itoa(i)}}}
		for n := range historySamples {
			s.Samples = append(s.Samples, prompb.Sample{Timestamp: began.Add(time.Duration(n) * time.Minute).UnixMilli(), Value: 1})
		}
		all = append(all, s)
	}
	code, text, err := post(r.ctx, r.processes[0].URL()+"/api/v1/write", all...)
	require.NoError(r.t, err)
	require.Equal(r.t, 204, code, text)
	return d
}

// admin asks a process for something of Prometheus' admin API.
func (d *sharedDeletes) admin(i int, what string, params url.Values) {
	require.NoError(d.t, promrig.Post(d.ctx, d.processes[i].URL()+"/api/v1/admin/tsdb/"+what+"?"+params.Encode()))
}

// whileBothWrite deletes, before anything is sealed and after, through one process and through the other.
func (d *sharedDeletes) whileBothWrite() {
	for i := range d.live {
		d.wait("both write", func() bool { return len(d.live[i].acknowledged()) > 3 })
	}
	d.check("written")
	d.cut = min(d.live[0].last(), d.live[1].last()) // So much was acknowledged.
	d.admin(0, "delete_series", url.Values{"match[]": {"doomed"}, "end": {fmt.Sprintf("%.3f", float64(d.cut)/1000)}})
	d.returned = time.Now().UnixMilli()
	d.check("deleted from what wasn't sealed")
	d.admin(0, "delete_series", url.Values{"match[]": {`history{i=~"[012]"}`}})
	d.history -= 3
	d.check("deleted from an old slot")
	require.NoError(d.t, promrig.Post(d.ctx, d.processes[1].URL()+"/-/seal"))
	d.check("sealed")
	d.admin(1, "delete_series", url.Values{"match[]": {`history{i=~"[34]"}`}})
	d.history -= 2
	d.check("deleted from what was sealed")
}

// check holds that both processes answer with all that is left, and with nothing of what is deleted.
func (d *sharedDeletes) check(when string) {
	d.t.Helper()
	for i := range d.processes {
		answer, err := promrig.API{URL: d.processes[i].URL()}.Query(d.ctx, `count_over_time(history[2d])`, time.Now())
		require.NoError(d.t, err)
		require.Len(d.t, answer.Series, d.history, "%s: of a history, as process %d says", when, i)
		for _, s := range answer.Series {
			_, n := parsePoint(d.t, s.Floats[0])
			require.Equal(d.t, float64(historySamples), n, when)
		}
		for via, live := range d.live {
			acked := live.acknowledged()
			there := map[int64]bool{}
			for _, s := range d.samples(i, fmt.Sprintf(`doomed{via="%d"}`, via), "10m") {
				require.Greater(d.t, s.at, d.cut, "%s: process %d shows what is deleted, of what came through process %d", when, i, via)
				there[s.at] = true
			}
			for _, at := range acked {
				if at > d.returned {
					require.True(d.t, there[at], "%s: process %d lacks what came after the delete, through process %d", when, i, via)
				}
			}
		}
	}
}

// cleanUp holds that what is deleted is gone from the rows once it is cleaned up, and nothing else is.
func (d *sharedDeletes) cleanUp() {
	gone := (historySeries - d.history) * historySamples
	for i, live := range d.live {
		d.stop[i]()
		for _, at := range live.acknowledged() {
			if at <= d.cut {
				gone++
			}
		}
	}
	require.NoError(d.t, promrig.Post(d.ctx, d.processes[0].URL()+"/-/seal"))
	before := d.sealedSamples()
	d.admin(1, "clean_tombstones", nil)
	require.Equal(d.t, before-gone, d.sealedSamples(), "samples in rows, of which %d should be gone", gone)
	d.check("cleaned up")
	d.t.Logf("%d of %d sealed samples were deleted and cleaned up", gone, before)
}

var checkedSamples = regexp.MustCompile(` with (\d+) samples, .* 0 problems`)

// sealedSamples is how many samples there are in sealed rows, deleted or not.
func (d *sharedDeletes) sealedSamples() int {
	out, err := exec.CommandContext(d.ctx, d.binary, append([]string{"check"}, d.engine...)...).CombinedOutput()
	require.NoError(d.t, err, string(out))
	found := checkedSamples.FindSubmatch(out)
	require.NotNil(d.t, found, string(out))
	n, err := strconv.Atoi(string(found[1]))
	require.NoError(d.t, err)
	return n
}
