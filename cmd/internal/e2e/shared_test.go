package e2e

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
	"github.com/cassia-db/cassia/storage/ha"
	"github.com/cassia-db/cassia/storage/membership"
)

// TestTwoOnCassandraShareWork runs two processes on one keyspace. They evaluate rules, each receives the samples of one
// of two replicas, and they delete series while both continue to write them. The test then kills the process that
// evaluates rules and receives the samples of the elected replica. The other process must not miss an evaluation or a
// sample, and no deleted sample may reappear, even after both processes are restarted.
func TestTwoOnCassandraShareWork(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the binary for most of a minute: leave -short out")
	}
	t.Parallel() // Most of the time is spent waiting for leases to expire.
	underLoadAlone(t)
	r := newSharedRig(t)
	deleted := newSharedDeletes(r)
	deleted.whileBothWrite()

	recorded := newSharedRuling(r)
	pair := newSharedPair(r, recorded.owner)
	recorded.oneEvaluates()
	pair.replicaDies()
	recorded.look()
	recorded.ownerDies()
	pair.failsOver()
	recorded.takesOver()
	pair.check()
	recorded.check()

	r.processes[recorded.owner] = start(r.ctx, t, r.processes[recorded.owner].Program)
	r.restart(recorded.other)
	deleted.check("started anew")
	deleted.cleanUp()
}

// sharedRuling checks the samples recorded by rules.
type sharedRuling struct {
	*sharedRig
	// owner is the process that evaluates rules, and other is the process that doesn't.
	owner, other int
	active       time.Time // the time since which the alert is active, as reported by the owner
	// seen contains the values that were read, by series and time.
	seen map[string]map[int64]float64

	ruleGaps
	// leftOut contains, for each process, the number of evaluations that it had skipped when the owner was killed.
	leftOut [2]float64
}

var sharedRecorded = []string{`tick`, `newest`, `ALERTS{alertstate="firing"}`, `ALERTS_FOR_STATE`}

func newSharedRuling(r *sharedRig) *sharedRuling {
	x := &sharedRuling{sharedRig: r, seen: map[string]map[int64]float64{}, ruleGaps: ruleGaps{interval: sharedInterval}}
	r.wait("one of them evaluates", func() bool {
		for i := range r.processes {
			if x.evaluates(i) {
				x.owner, x.other = i, 1-i
				return true
			}
		}
		return false
	})
	beat := newSender(func(at int64) float64 { return float64(at) }, "__name__", "beat")
	beat.every, beat.behind = sharedTick/2, 1200*time.Millisecond
	r.send(beat, x.other)
	r.wait("the alert is recorded as firing", func() bool { return len(r.samples(x.other, sharedRecorded[2])) > 2 })
	x.active = x.activeAt(x.owner)
	return x
}

func (x *sharedRuling) evaluates(i int) bool { return x.metric(i, "cassia_rules_evaluated_here") == 1 }

// activeAt waits until the alert fires according to a process, and returns the time since which it is active.
func (x *sharedRuling) activeAt(i int) (since time.Time) {
	x.t.Helper()
	x.wait("the alert fires", func() bool {
		var answer struct {
			Data struct {
				Alerts []struct {
					ActiveAt time.Time
					State    string
				}
			}
		}
		_, body := cassiatest.Server{URL: x.processes[i].URL()}.Get(x.t, "/api/v1/alerts")
		require.NoError(x.t, json.Unmarshal([]byte(body), &answer))
		alerts := answer.Data.Alerts
		require.LessOrEqual(x.t, len(alerts), 1)
		if len(alerts) == 0 || alerts[0].State != "firing" {
			return false
		}
		since = alerts[0].ActiveAt
		return true
	})
	return since
}

// look reads the recorded samples and requires that the samples read before are unchanged.
func (x *sharedRuling) look() {
	x.t.Helper()
	for _, selector := range sharedRecorded {
		there := map[int64]float64{}
		for _, s := range x.samples(x.other, selector) {
			there[s.at] = s.v
		}
		for at, v := range x.seen[selector] {
			require.Equal(x.t, v, there[at], "%s at %d has another value than before", selector, at)
		}
		x.seen[selector] = there
	}
}

// oneEvaluates requires that the process that isn't the owner has never evaluated a group. An evaluation is only
// allowed if this process didn't receive the owner's heartbeats because a process or Cassandra was blocked.
func (x *sharedRuling) oneEvaluates() {
	const evaluated = "prometheus_rule_group_iterations_total"
	require.Positive(x.t, x.metric(x.owner, evaluated))
	if x.metric(x.other, evaluated) > 0 {
		require.Greater(x.t, x.silence(), membership.LivenessTimeout/4, "two processes evaluate")
		x.t.Logf("the rules passed over: there was no answer for %s", x.silence())
	}
}

func (x *sharedRuling) ownerDies() {
	x.dying = time.Now()
	for i := range x.leftOut {
		missed, failed := leftOut(x.t, x.processes[i].URL())
		x.leftOut[i] = missed + failed
	}
	x.processes[x.owner].Kill()
	x.killed = time.Now()
}

// takesOver waits until the other process evaluates rules and has run the missed evaluations.
func (x *sharedRuling) takesOver() {
	x.t.Helper()
	x.began = x.killed
	x.wait("the other process evaluates", func() bool {
		x.look()
		now := time.Now()
		if x.evaluates(x.other) {
			return true
		}
		x.began = now
		return false
	})
	x.t.Logf("the other process evaluates %s after the first was killed",
		time.Since(x.killed).Round(100*time.Millisecond))
	until := max(time.Now().Add(2*sharedInterval).UnixMilli(), x.killed.Add(10*time.Second).UnixMilli())
	x.wait("it goes on", func() bool {
		x.look()
		for _, selector := range sharedRecorded {
			if samples := x.samples(x.other, selector); samples[len(samples)-1].at <= until {
				return false
			}
		}
		return true
	})
}

// check requires that no recorded sample is missing, and that the alert is unchanged.
func (x *sharedRuling) check() {
	for _, selector := range sharedRecorded {
		samples := x.samples(x.other, selector)
		require.Less(x.t, samples[0].at, x.killed.UnixMilli(), selector)
		x.noGap(selector, samples)
		if selector == "ALERTS_FOR_STATE" {
			for _, s := range samples {
				require.Equal(x.t, samples[0].v, s.v, "the alert is active since another time: %v", samples)
			}
		}
	}
	caughtUp := x.metric(x.other, "cassia_rules_caught_up_evaluations_total")
	require.Positive(x.t, caughtUp)
	// Prometheus restores the time from ALERTS_FOR_STATE, which has a resolution of a second.
	require.True(x.t, x.active.Truncate(time.Second).Equal(x.activeAt(x.other)),
		"active since %v, not %v", x.activeAt(x.other), x.active)
	x.t.Logf("%v evaluations were made up for", caughtUp)
}

// noGap requires that at least one of any two consecutive evaluations is stored. More evaluations may be missing only
// if they failed, or were skipped because an earlier one was slow.
func (x *sharedRuling) noGap(selector string, samples []stamped) {
	before, after := x.count(x.t, selector, samples)
	missed, failed := leftOut(x.t, x.processes[x.other].URL())
	require.LessOrEqual(x.t, before, x.leftOut[0]+x.leftOut[1]+failed, "%s has gaps that aren't made up for", selector)
	require.LessOrEqual(x.t, after, missed+failed, "%s has gaps after the other process took over", selector)
}

// sharedPair is a pair of replicas that send to different processes: a to the process that keeps running, b to the
// other.
type sharedPair struct {
	*sharedRig
	a, b        *sender
	stopA       func()
	lives, dies int
	// told is the time until which b was elected, as last read from the process that keeps running.
	told int64
}

func newSharedPair(r *sharedRig, dies int) *sharedPair {
	p := &sharedPair{sharedRig: r, lives: 1 - dies, dies: dies}
	replica := func(name string, v float64) *sender {
		return newSender(func(int64) float64 { return v }, "__name__", "work", "__replica__", name, "cluster", "pair")
	}
	p.a, p.b = replica("a", 1), replica("b", 2)
	p.b.offset = sharedTick / 3 // Samples of the two replicas must have different times.
	p.stopA = r.send(p.a, p.lives)
	p.elected("a")
	r.send(p.b, p.dies)
	r.wait("both are heard", func() bool { return len(p.a.acknowledged()) > 4 && len(p.b.acknowledged()) > 2 })
	return p
}

// status returns the HA status of the pair from the process that keeps running.
func (p *sharedPair) status() ha.ClusterStatus {
	p.t.Helper()
	var answer struct{ Data []ha.ClusterStatus }
	_, body := cassiatest.Server{URL: p.processes[p.lives].URL()}.Get(p.t, "/api/v1/status/ha")
	require.NoError(p.t, json.Unmarshal([]byte(body), &answer))
	require.LessOrEqual(p.t, len(answer.Data), 1)
	if len(answer.Data) == 0 {
		return ha.ClusterStatus{}
	}
	return answer.Data[0]
}

// elected waits until a replica is elected and its held samples are stored.
func (p *sharedPair) elected(replica string) {
	p.t.Helper()
	p.wait(replica+" is elected", func() bool {
		s := p.status()
		return s.Elected == replica && s.State == "settled"
	})
}

// replicaDies stops a for a while. b must be elected, and stay elected when a sends again. a may be elected again only
// if no samples of b were received, because a process was blocked.
func (p *sharedPair) replicaDies() {
	for {
		p.stopA()
		p.elected("b")
		back := time.Now()
		p.stopA = p.send(p.a, p.lives)
		p.wait("a is back and b goes on", func() bool {
			return p.a.last() > back.UnixMilli() && p.b.last() > back.Add(2*sharedTick).UnixMilli()
		})
		p.told = p.b.last()
		var now ha.ClusterStatus
		p.wait("it is known how far b is", func() bool {
			now = p.status()
			return now.Elected != "b" || now.Watermark.UnixMilli() >= p.told
		})
		if now.Elected == "b" {
			return
		}
		require.Greater(p.t, p.silence(), sharedFailover/4, "another one is elected though b is heard")
		p.t.Logf("a was elected again: there was no answer for %s", p.silence())
	}
}

// failsOver waits until a is elected after b's process was killed.
func (p *sharedPair) failsOver() {
	p.elected("a")
	now := time.Now().UnixMilli()
	p.wait("a goes on", func() bool { return p.a.last() > now })
	p.wait("what was held is stored", func() bool { return p.status().Held.Rows == 0 })
}

// check requires that there is no gap, and that each sample is from the replica that was elected at its time. Some
// samples of the previous replica are also allowed after its last advertised time, in two cases: the previous replica
// is b, whose process was killed, or no samples of the previous replica were received for a while because a process was
// blocked.
func (p *sharedPair) check() {
	status := p.status()
	spans, both := status.Spans, 0
	end := spans[len(spans)-1]
	require.Equal(p.t, "a", end.Replica)
	require.GreaterOrEqual(p.t, end.From.UnixMilli(), p.told, "b is known to have gone on for longer")
	stood := status.Elections > 3
	work := p.samples(p.lives, `work{cluster="pair"}`)
	at := 0
	for i, s := range work {
		if i > 0 {
			require.LessOrEqual(p.t, s.at-work[i-1].at, 2*sharedTick.Milliseconds(), "a gap: %v", work)
		}
		for at+1 < len(spans) && s.at > spans[at+1].From.UnixMilli() {
			at++
		}
		replica := map[float64]string{1: "a", 2: "b"}[s.v]
		if replica == spans[at].Replica {
			continue
		}
		both++
		require.True(p.t, at == len(spans)-1 || at > 0 && stood,
			"a sample of %s at %d: %v %v", replica, s.at, spans, work)
		require.Equal(p.t, spans[at-1].Replica, replica, "a sample at %d: %v %v", s.at, spans, work)
	}
	require.Greater(p.t, work[len(work)-1].at, end.From.UnixMilli(), "a went on")
	p.t.Logf("%d samples of the pair, %d elections, %d samples of one that was further than it had told",
		len(work), status.Elections, both)
}

// sharedDeletes checks series that are deleted while both processes write them.
type sharedDeletes struct {
	*sharedRig
	live [2]*sender
	stop [2]func()
	// cut is the time up to which the live series are deleted, and returned is the time when the delete was
	// acknowledged, both in milliseconds.
	cut, returned int64
	history       int // number of remaining history series, of historySeries
}

const (
	historySeries  = 10
	historySamples = 30
)

func newSharedDeletes(r *sharedRig) *sharedDeletes {
	d := &sharedDeletes{sharedRig: r, history: historySeries}
	for i := range d.live {
		d.live[i] = newSender(func(int64) float64 { return 1 }, "__name__", "doomed", "via", strconv.Itoa(i))
		d.stop[i] = r.send(d.live[i], i)
	}
	var all []prompb.TimeSeries
	began := time.Now().Add(-30 * time.Hour)
	for i := range historySeries {
		s := prompb.TimeSeries{
			Labels: []prompb.Label{{Name: "__name__", Value: "history"}, {Name: "i", Value: strconv.Itoa(i)}},
		}
		for n := range historySamples {
			s.Samples = append(s.Samples, prompb.Sample{
				Timestamp: began.Add(time.Duration(n) * time.Minute).UnixMilli(), Value: 1,
			})
		}
		all = append(all, s)
	}
	require.NoError(r.t, deliver(r.ctx, r.processes[0].URL()+"/api/v1/write", all...))
	return d
}

// do sends a POST request to a process.
func (d *sharedDeletes) do(i int, what string) {
	d.t.Helper()
	require.NoError(d.t, patiently(func() error { return promrig.PostEmpty(d.ctx, d.processes[i].URL()+what) }))
}

// admin calls an endpoint of Prometheus' admin API on a process.
func (d *sharedDeletes) admin(i int, what string, params url.Values) {
	d.t.Helper()
	d.do(i, "/api/v1/admin/tsdb/"+what+"?"+params.Encode())
}

// whileBothWrite deletes series through each process, before and after sealing.
func (d *sharedDeletes) whileBothWrite() {
	for i := range d.live {
		d.wait("both write", func() bool { return len(d.live[i].acknowledged()) > 3 })
	}
	d.check("written")
	d.cut = min(d.live[0].last(), d.live[1].last()) // Samples acknowledged so far.
	d.admin(0, "delete_series", url.Values{"match[]": {"doomed"}, "end": {fmt.Sprintf("%.3f", float64(d.cut)/1000)}})
	d.returned = time.Now().UnixMilli()
	d.check("deleted from what wasn't sealed")
	d.admin(0, "delete_series", url.Values{"match[]": {`history{i=~"[012]"}`}})
	d.history -= 3
	d.check("deleted from an old slot")
	d.do(1, "/-/seal")
	d.check("sealed")
	d.admin(1, "delete_series", url.Values{"match[]": {`history{i=~"[34]"}`}})
	d.history -= 2
	d.check("deleted from what was sealed")
}

// check requires that both processes return all remaining samples and no deleted ones.
func (d *sharedDeletes) check(when string) {
	d.t.Helper()
	for i := range d.processes {
		answer := d.query(i, `count_over_time(history[2d])`)
		require.Len(d.t, answer.Series, d.history, "%s: of a history, as process %d says", when, i)
		for _, s := range answer.Series {
			_, n := parsePoint(d.t, s.Floats[0])
			require.Equal(d.t, float64(historySamples), n, when)
		}
		for via, live := range d.live {
			acked := live.acknowledged()
			there := map[int64]bool{}
			for _, s := range d.samples(i, fmt.Sprintf(`doomed{via="%d"}`, via)) {
				require.Greater(d.t, s.at, d.cut,
					"%s: process %d shows what is deleted, of what came through process %d", when, i, via)
				there[s.at] = true
			}
			for _, at := range acked {
				if at > d.returned {
					require.True(d.t, there[at],
						"%s: process %d lacks what came after the delete, through process %d", when, i, via)
				}
			}
		}
	}
}

// cleanUp cleans tombstones and requires that exactly the deleted samples are missing in the rows.
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
	d.do(0, "/-/seal")
	before := d.sealedSamples()
	d.admin(1, "clean_tombstones", nil)
	require.Equal(d.t, before-gone, d.sealedSamples(), "samples in rows, of which %d should be gone", gone)
	d.check("cleaned up")
	d.t.Logf("%d of %d sealed samples were deleted and cleaned up", gone, before)
}

var checkedSamples = regexp.MustCompile(` with (\d+) samples, .* 0 problems`)

// sealedSamples returns the number of samples in sealed rows, including deleted ones.
func (d *sharedDeletes) sealedSamples() int {
	out, err := exec.CommandContext(d.ctx, d.binary, append([]string{"check"}, d.engine...)...).CombinedOutput()
	require.NoError(d.t, err, string(out))
	found := checkedSamples.FindSubmatch(out)
	require.NotNil(d.t, found, string(out))
	n, err := strconv.Atoi(string(found[1]))
	require.NoError(d.t, err)
	return n
}
