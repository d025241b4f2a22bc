package storage

import (
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/membership"
	"github.com/cassia-db/cassia/storage/retention"
	"github.com/cassia-db/cassia/storage/rollup"
)

// TestKeptTellsWhatExpires compares what WindowInfos announces with the later effect of Expire, day by day.
func TestKeptTellsWhatExpires(t *testing.T) {
	ts := openTestStore(t, func(o *Options) {
		o.Partitions, o.Retention, o.Retention5m, o.Retention1h = 2, 48*time.Hour, 9*24*time.Hour, 0
	})
	ls := labels.FromStrings(labels.MetricName, "up")
	for range 20 {
		ts.write("ann", ls, sample{ts.now.UnixMilli(), 1})
		ts.write("bob", ls, sample{ts.now.UnixMilli(), 1})
		require.NoError(t, ts.SealAll(t.Context()))
		ts.now = ts.now.Add(24 * time.Hour)
	}
	dropped, found := 0, map[rollup.Resolution]bool{}
	for range 60 {
		kept, err := ts.WindowInfos(t.Context())
		require.NoError(t, err)
		due := map[int64]bool{}
		for _, k := range kept {
			if !k.Goes.IsZero() {
				require.Equal(
					t, k.End.Add(ts.retention.RetentionOf("", retention.DefaultClass).Duration(k.Resolution)), k.Hidden,
				)
			}
			require.Positive(t, k.End.Sub(k.Start))
			require.Zero(t, k.Unrolled)
			found[k.Resolution] = true
			if !k.Goes.IsZero() && !k.Goes.After(ts.now) {
				due[k.Window] = true
			}
		}
		n, err := ts.Expire(t.Context())
		require.NoError(t, err)
		require.Equal(t, len(due), n)
		dropped += n
		after, err := ts.WindowInfos(t.Context())
		require.NoError(t, err)
		require.Len(t, after, len(kept)-2*n, "of both tenants")
		ts.now = ts.now.Add(12 * time.Hour)
	}
	require.Greater(t, dropped, 20)
	require.Len(t, found, 3)
	kept, err := ts.WindowInfos(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, kept)
	for _, k := range kept {
		require.Equal(t, rollup.OneHour, k.Resolution, "kept for ever")
		require.Equal(t, 30*24*time.Hour, k.End.Sub(k.Start))
	}
}

// TestTheLongestRetentionOfSeveralProcessesHolds checks that samples within the retention of one process aren't hidden
// by another process with a shorter retention. Once the last process with the longer retention has stopped, they are
// hidden, but don't expire: they are visible again when such a process starts.
func TestTheLongestRetentionOfSeveralProcessesHolds(t *testing.T) {
	for name, ends := range map[string]func(*clockRig, *clockMachine){
		"in order": func(_ *clockRig, m *clockMachine) { m.stop() },
		"killed":   func(r *clockRig, _ *clockMachine) { r.pass(membership.ProcessTTL + time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			r := &clockRig{t: t, shared: true}
			r.eng = &expiringClocked{clockedEngine{memory.NewExpiring(r.now), r.now}}
			keep := func(raw, brief time.Duration) func(*Options) {
				return func(o *Options) {
					o.Retention, o.TenantRetention = raw, map[string]retention.Durations{"brief": {Raw: brief}}
				}
			}
			short, long := r.start(0, keep(10*day, 3*day)), r.start(0, keep(90*day, 60*day))
			pass := func(d time.Duration, all ...*clockMachine) {
				for ; d > 0; d -= 12 * time.Hour {
					r.pass(12 * time.Hour)
					// Send the heartbeats that the processes would have sent until now. Each process sends two, so that
					// it has read the state of the others.
					for _, m := range append(all, all...) {
						require.NoError(t, m.member.SendHeartbeat(t.Context()))
					}
					for _, m := range all {
						_, err := m.Expire(t.Context())
						require.NoError(t, err)
					}
				}
			}
			require.NoError(t, short.member.SendHeartbeat(t.Context()), "it hears of the other one")
			require.Equal(t, 60*day, short.retention.RetentionOf("brief", retention.DefaultClass).Raw)
			o := DefaultOptions()
			o.Now = r.now
			view, err := OpenView(t.Context(), r.eng, o)
			require.NoError(t, err)
			err = view.Retention().LoadAdvertised(t.Context())
			require.NoError(t, err)
			require.Equal(t, []string{
				"raw 2160h0m0s, 5m forever, 1h forever, tenants otherwise: 1",
				"raw 240h0m0s, 5m forever, 1h forever, tenants otherwise: 1",
			}, view.Retention().DifferingTexts())
			at := r.now()
			require.NoError(t, short.write(at, 1))
			require.NoError(t, short.write(at.Add(-30*day), 1), "old for one, not for the other")
			require.NoError(t, short.SealAll(t.Context()))
			pass(30*day, short, long)
			for _, m := range []*clockMachine{short, long} {
				require.Equal(t, 2, m.visible())
			}
			ends(r, long)
			pass(day, short)
			require.Zero(t, short.visible(), "nobody promises more any longer")
			again := r.start(0, keep(90*day, 0))
			require.NoError(t, short.member.SendHeartbeat(t.Context()))
			pass(day, short, again)
			require.Equal(t, 2, again.visible(), "and somebody does again")
		})
	}
}

// expiringClocked is a clockedEngine on an engine that expires rows.
type expiringClocked struct{ clockedEngine }

func (*expiringClocked) ExpiresRows() bool { return true }
