package storage

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/ha"
)

// TestSamplesAheadCoverNothing elects replicas that have a fast clock or one series ahead of the clock, and stops them.
// Later samples of another replica must be stored.
func TestSamplesAheadCoverNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ahead, further time.Duration // lead of b's clock, and additional lead of one of its series
		crash          bool          // all processes crash when b has stopped sending
	}{
		"as it should be":       {0, 0, false},
		"a clock":               {100 * time.Second, 0, false},
		"a series":              {0, 9 * time.Minute, false},
		"a series, and a crash": {0, 9 * time.Minute, true},
		"both":                  {100 * time.Second, 7 * time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPairs(
				t, faultengine.Wrap(memory.New(), passAll), 2, func(o *ha.Options) { o.Failover = 3 * time.Second },
			)
			begun, i := p.now, 0
			play := func(seconds int, a, b bool) {
				for range seconds {
					v := p.now.Sub(begun).Seconds()
					if a {
						require.NoError(t, p.send(i%2, "a", p.now, v, "m"))
					}
					if b {
						at := p.now.Add(c.ahead + 300*time.Millisecond)
						require.NoError(
							t, p.sendAt(i%2, "b", v+0.3, map[string]time.Time{"m": at, "further": at.Add(c.further)}),
						)
					}
					p.pass(time.Second)
					i++
				}
			}
			play(10, true, true)
			play(10, false, true) // a stops, b is elected
			require.Equal(t, "b", p.processes[0].replicas.Status("default")[0].Elected)
			alone := p.now.Sub(begun).Seconds()
			play(1, true, false) // b stops, a is back
			if c.crash {
				p.crash(0)
				p.crash(1)
			}
			play(39, true, false)
			p.pass(10 * time.Minute)
			stored := map[float64]bool{}
			for _, v := range p.values(0, "m") {
				stored[v] = true
			}
			for v := alone + 1; v < alone+40; v++ {
				require.True(
					t, stored[v], "what a scraped %v s after b's end was acknowledged, and isn't stored", v-alone,
				)
			}
			require.Equal(t, "a", p.processes[0].replicas.Status("default")[0].Elected)
		})
	}
}

// TestADeadReplicaAheadIsNotElected stops one of three replicas after it has sent a sample ahead of the clock. When the
// elected replica also stops, the remaining one must be elected.
func TestADeadReplicaAheadIsNotElected(t *testing.T) {
	t.Parallel()
	p := newPairs(t, faultengine.Wrap(memory.New(), passAll), 2, nil)
	begun := p.now
	for i := range 60 {
		v := p.now.Sub(begun).Seconds()
		if i < 10 {
			require.NoError(t, p.send(i%2, "a", p.now, v, "m"))
		}
		if i < 8 {
			at := p.now.Add(time.Second)
			require.NoError(
				t, p.sendAt(i%2, "b", v+1, map[string]time.Time{"m": at, "further": at.Add(9 * time.Minute)}),
			)
		}
		require.NoError(t, p.send(i%2, "c", p.now.Add(2*time.Second), v+2, "m"))
		p.pass(10 * time.Second)
	}
	st := p.processes[0].replicas.Status("default")
	require.Equal(t, "c", st[0].Elected)
	require.Equal(t, int64(2), st[0].Elections, "it is elected at once")
	stored := map[float64]bool{}
	for _, v := range p.values(0, "m") {
		stored[v] = true
	}
	for i := range 60 {
		want := float64(10 * i)
		if i >= 10 {
			want += 2
		}
		require.True(t, stored[want], "what was scraped at %v s was acknowledged, and isn't stored", want)
	}
}

// TestFailoverWithWrongClocks stops the elected replica while the clocks of processes, or of both replicas, are wrong.
// The stored samples must switch from one replica to the other once, without a gap and without samples of both.
func TestFailoverWithWrongClocks(t *testing.T) {
	t.Parallel()
	const sec = time.Second
	for name, c := range map[string]struct {
		skews     []time.Duration // of the processes that receive the first replica and the second one
		ahead     time.Duration   // lead of the clocks of both replicas
		returns   bool            // the first replica returns, when the second one is elected
		seal      bool            // a seal before the failover
		forecasts bool            // both replicas also send requests of samples that are ahead of the clock
	}{
		"right":                          {skews: []time.Duration{0, 0}},
		"the first process slow":         {skews: []time.Duration{-150 * sec, 0}},
		"the second process slow":        {skews: []time.Duration{0, -150 * sec}},
		"both slow":                      {skews: []time.Duration{-150 * sec, -150 * sec}},
		"one process, slow":              {skews: []time.Duration{-50 * sec}},
		"one process, slow, and a seal":  {skews: []time.Duration{-50 * sec}, seal: true},
		"slow by more than the failover": {skews: []time.Duration{-10 * sec}},
		"the first fast, the other slow": {skews: []time.Duration{150 * sec, -150 * sec}, returns: true},
		"the first slow, the other fast": {skews: []time.Duration{-150 * sec, 150 * sec}, returns: true},
		"forecasts":                      {skews: []time.Duration{0, 0}, forecasts: true},
		"replicas ahead":                 {skews: []time.Duration{0, 0}, ahead: 60 * sec, returns: true},
		"replicas far ahead":             {skews: []time.Duration{0}, ahead: 9 * time.Minute, returns: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newSkewedPairs(t, faultengine.Wrap(memory.New(), passAll), c.skews, func(o *ha.Options) {
				o.Failover = 8 * time.Second
			})
			begun, last := p.now, len(c.skews)-1
			play := func(seconds int, a, b bool) {
				for range seconds {
					v := p.now.Sub(begun).Seconds()
					if a {
						require.NoError(t, p.send(0, "a", p.now.Add(c.ahead), v, "m", "n"))
					}
					if a && c.forecasts {
						require.NoError(t, p.send(0, "a", p.now.Add(9*time.Minute), v, "forecast"))
					}
					if b && c.forecasts {
						require.NoError(t, p.send(last, "b", p.now.Add(9*time.Minute), v, "forecast"))
					}
					if b {
						at := p.now.Add(c.ahead + 300*time.Millisecond)
						require.NoError(t, p.send(last, "b", at, v+0.3, "m", "n"))
					}
					p.pass(time.Second)
				}
			}
			play(40, true, true)
			if c.seal {
				require.NoError(t, p.processes[0].store.SealAll(t.Context()))
			}
			play(26, false, true)
			require.Equal(t, "b", p.processes[0].replicas.Status("default")[0].Elected)
			play(30, c.returns, true)
			p.pass(10 * time.Minute)
			for _, series := range []string{"m", "n"} {
				var want []float64
				for v := range 96 {
					if v < 40 {
						want = append(want, float64(v))
					} else {
						want = append(want, float64(v)+0.3)
					}
				}
				got := p.values(0, series)
				slices.Sort(got)
				// Around the failover, both replicas may have a sample: a's last one at 39 s, b's at 39.3 s.
				got = slices.DeleteFunc(got, func(v float64) bool { return v == 39.3 })
				require.Equal(t, want, got, series)
			}
		})
	}
}

// TestAReplicaThatReturnsAfterAnOutage stops all processes and, for part of that time, the elected replica. The other
// replica has samples of the whole time, which must be stored, whichever of the replicas sends first. Without other
// samples, those of the elected replica must be stored.
func TestAReplicaThatReturnsAfterAnOutage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first     string // the replica that sends first after the outage
		alone     bool   // the other replica doesn't return
		back, end int    // when the elected replica returns, and the end of the outage, in seconds
	}{
		"the elected one first": {first: "a", back: 100, end: 110},
		"the other one first":   {first: "b", back: 100, end: 110},
		"alone":                 {first: "a", back: 100, end: 110, alone: true},
		"a long time":           {first: "a", back: 1000, end: 1300},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPairs(t, faultengine.Wrap(memory.New(), passAll), 2, func(o *ha.Options) {
				o.Failover = 8 * time.Second
			})
			begun := p.now
			queues := map[string][]float64{}
			send := func(i int, replica string, seconds int) {
				for range min(seconds, len(queues[replica])) {
					v := queues[replica][0]
					at := begun.Add(time.Duration(v * float64(time.Second)))
					if p.send(i, replica, at, v, "m") != nil {
						return // It is sent again.
					}
					queues[replica] = queues[replica][1:]
				}
			}
			seconds := c.end + c.end/2
			for i := range seconds {
				if v := float64(i); i < 40 || i >= c.back {
					queues["a"] = append(queues["a"], v)
				}
				if v := float64(i) + 0.25; i < 43 || !c.alone {
					queues["b"] = append(queues["b"], v)
				}
				switch {
				case i == c.end:
					p.crash(0)
					p.crash(1)
				case 43 <= i && i < c.end:
					p.now = p.now.Add(time.Second)
					continue
				}
				if c.first == "a" {
					send(0, "a", 20)
					send(1, "b", 4)
				} else {
					send(1, "b", 4)
					send(0, "a", 20)
				}
				p.pass(time.Second)
			}
			p.pass(10 * time.Minute)
			got := p.values(0, "m")
			slices.Sort(got)
			for i := 1; i < len(got); i++ {
				if c.alone && got[i] == float64(c.back) {
					continue
				}
				require.LessOrEqual(t, got[i]-got[i-1], 1.25, "a gap after %v s: %v", got[i-1], got)
				require.GreaterOrEqual(t, got[i]-got[i-1], 0.25, "samples of both: %v", got)
			}
			require.InDelta(t, seconds-1, got[len(got)-1], 0.25)
			require.LessOrEqual(t, len(got), seconds+2)
		})
	}
}
