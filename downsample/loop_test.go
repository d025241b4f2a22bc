package downsample

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
)

// TestRound checks that a round seals settled slots, waits for unsettled ones, and seals a slot again after late
// samples.
func TestRound(t *testing.T) {
	r := newRig(t, nil)
	r.write(testStart.Add(-3*hour), 1) // The slot ended at 10:00, two hours ago.
	r.write(testStart, 2)              // This one ends at 12:00, now.
	r.loop.Round(t.Context())
	s := r.loop.Status(t.Context())
	require.Equal(t, 4, s.SealedSlots, "the first slot in 4 partitions")
	require.Zero(t, s.WaitingSlots, "the second hasn't settled")
	require.Zero(t, s.RepairedSlots)
	require.Equal(t, 1, s.Rounds)
	require.Len(t, s.Partitions, 4)
	for _, p := range s.Partitions {
		require.True(t, p.Mine)
		require.Equal(t, &SlotStatus{testStart.Add(-4 * hour), testStart.Add(-2 * hour), testStart}, p.LastSealed)
		require.Nil(t, p.Oldest)
		require.Empty(t, p.LastError)
	}
	require.Equal(t, 4.0, r.metric("sealed_slots_total"))
	require.Equal(t, 4.0, r.metric("partitions"))

	r.advance(15*time.Minute + time.Second)
	r.loop.Round(t.Context())
	require.Equal(t, 8, r.loop.Status(t.Context()).SealedSlots)

	// A late sample arrives: the slot is sealed again, and its rollups are computed from all of its samples.
	r.write(testStart.Add(-3*hour+time.Minute), 3)
	r.loop.Round(t.Context())
	s = r.loop.Status(t.Context())
	require.Equal(t, 12, s.SealedSlots)
	require.Equal(t, 4, s.RepairedSlots)
	require.Equal(t, 4.0, r.metric("repaired_slots_total"))

	// Duplicate samples change nothing.
	r.write(testStart.Add(-3*hour+time.Minute), 3)
	r.loop.Round(t.Context())
	require.Equal(t, 4, r.loop.Status(t.Context()).RepairedSlots)
	require.Equal(t, 120, r.check().Samples)
	require.Zero(t, r.metric("failures_total"))
}

// TestManyHands checks that slots of all partitions are sealed concurrently.
func TestManyHands(t *testing.T) {
	r := newRig(t, func(_ *storage.Options, o *Options) { o.Workers = 3 })
	for h := range 10 {
		r.write(testStart.Add(-time.Duration(h)*2*hour-3*hour), float64(h))
	}
	r.loop.Round(t.Context())
	s := r.loop.Status(t.Context())
	require.Equal(t, 40, s.SealedSlots)
	require.Zero(t, s.WaitingSlots)
	require.Equal(t, 400, r.check().Samples)
	require.Empty(t, r.unrolled())
}

// TestLongestWaitingFirst checks that slots are sealed in the order in which their samples arrived. Older slots that
// arrive later must not delay slots that arrived earlier.
func TestLongestWaitingFirst(t *testing.T) {
	r := newRig(t, func(so *storage.Options, _ *Options) { so.Partitions = 1 })
	r.write(testStart.Add(-5*hour), 1)
	r.advance(7 * hour)
	r.write(testStart.Add(-9*24*hour), 2) // nine days late, six hours after the other one has settled
	r.write(testStart.Add(-2*hour), 3)
	list := r.loop.list(t.Context())
	require.Len(t, list, 3)
	at := func(d time.Duration) int64 { return testStart.Add(d).UnixMilli() }
	require.Equal(t, []int64{at(-4 * hour), at(-2 * hour), at(-9 * 24 * hour)}, []int64{
		list[0].EndMS, list[1].EndMS, list[2].EndMS,
	})
	require.Equal(t, []int64{at(-4*hour + 15*time.Minute), at(-2*hour + 15*time.Minute), at(7 * hour)},
		[]int64{list[0].SinceMS, list[1].SinceMS, list[2].SinceMS}, "that of the late one is not nine days")
	require.Equal(t, 10*hour+45*time.Minute, r.loop.lag())
	r.advance(30 * time.Minute)
	list = r.loop.list(t.Context())
	require.Equal(t, at(7*hour), list[2].SinceMS, "since it came")
	r.loop.Round(t.Context())
	require.Zero(t, r.loop.lag())
}

// TestStuckPartition checks that, if the work of one partition fails in every round, the other partitions are sealed
// and the failure is reported.
func TestStuckPartition(t *testing.T) {
	r := newRig(t, nil)
	r.write(testStart.Add(-3*hour), 1)
	stage := func(op faultengine.Op) bool {
		return op.Kind == faultengine.Scan && op.Table == engine.Stage && len(op.Range.Partition) == 2 &&
			!op.Range.KeysOnly && op.Range.Partition[1].Int == 2 ||
			op.Kind == faultengine.Write && op.Table == engine.Stage && op.Batch.Partition[1].Int == 2
	}
	r.fail(stage)
	for i := range stuckRounds {
		require.NotContains(t, r.log.take(), "sealing of a partition fails in every round", "round %d", i)
		r.loop.Round(t.Context())
		r.advance(time.Minute)
	}
	log := r.log.take()
	require.Contains(t, log,
		"level=ERROR msg=\"sealing of a partition fails in every round; its samples stay in the staging log")
	require.Contains(t, log, "partition=2 rounds=5")
	require.Contains(t, log, "do=")
	require.Equal(t, 1.0, r.metric("stuck_partitions"))
	require.Equal(t, 1.0, r.metric("waiting_slots"))
	require.Equal(t, (hour + 50*time.Minute).Seconds(), r.metric("lag_seconds"))
	require.Equal(t, 3.0, r.metric("sealed_slots_total"), "the others")
	s := r.loop.Status(t.Context())
	require.Equal(t, []int{2}, s.StuckPartitions)
	p := s.Partitions[2]
	require.Equal(t, 5, p.FailedRounds)
	require.Contains(t, p.LastError, "fault by rule")
	require.Equal(t, r.now().Add(-time.Minute).UTC(), p.LastErrorAt)
	require.NotEmpty(t, p.Do)
	require.Equal(
		t, &SlotStatus{testStart.Add(-4 * hour), testStart.Add(-2 * hour), testStart.Add(-2*hour + 15*time.Minute)},
		p.Oldest,
	)

	r.mend()
	r.loop.Round(t.Context())
	s = r.loop.Status(t.Context())
	require.Empty(t, s.StuckPartitions)
	require.Zero(t, s.WaitingSlots)
	require.Zero(t, s.LagSeconds)
	require.Contains(t, s.Partitions[2].LastError, "fault by rule", "it can still be seen")
	require.Zero(t, s.Partitions[2].FailedRounds)
	require.Equal(t, 40, r.check().Samples)
}

// TestAlarm checks that a slot that waits for longer than half of the grace period raises an alarm.
func TestAlarm(t *testing.T) {
	r := newRig(t, nil)
	r.write(testStart.Add(-3*hour), 1)
	r.fail(func(op faultengine.Op) bool { return op.Kind == faultengine.Write && op.Table == engine.RawPages })
	r.loop.Round(t.Context())
	require.Empty(t, r.loop.alarms())
	r.advance(storage.Grace / 2)
	require.True(t, r.loop.Status(t.Context()).Alarm)
	require.Equal(t, r.metric("lag_limit_seconds")+105*60, r.metric("lag_seconds"), "without another round")
	alarms := r.loop.alarms()
	require.Len(t, alarms, 1)
	require.Contains(t, alarms[0].what, "lags")
	require.NotEmpty(t, alarms[0].do)
	r.mend()
	r.loop.Round(t.Context())
	require.False(t, r.loop.Status(t.Context()).Alarm)
	require.Empty(t, r.loop.alarms())
}

// TestLeapIsNoLag checks that an untrusted jump of the clock doesn't count as lag.
func TestLeapIsNoLag(t *testing.T) {
	r := newRig(t, func(so *storage.Options, _ *Options) { so.Elapsed = func() time.Duration { return 0 } })
	r.write(testStart.Add(-3*hour), 1)
	r.fail(func(op faultengine.Op) bool { return op.Kind == faultengine.Write && op.Table == engine.RawPages })
	r.loop.Round(t.Context())
	require.Equal(t, 105*60.0, r.metric("lag_seconds"))
	r.advance(400 * 24 * hour)
	require.Error(t, r.store.Member().MayRemove())
	require.Equal(t, 105*60.0, r.metric("lag_seconds"))
	require.False(t, r.loop.Status(t.Context()).Alarm)
	require.Empty(t, r.loop.alarms())
}

// TestDamagedIsNotWaiting checks that an unreadable blob doesn't count as lag.
func TestDamagedIsNotWaiting(t *testing.T) {
	r := newRig(t, func(so *storage.Options, _ *Options) { so.Partitions = 1 })
	slot := testStart.Add(-3*hour).UnixMilli() / (2 * hour).Milliseconds()
	require.NoError(t, r.eng.Write(t.Context(), []engine.Batch{{
		Table: engine.Stage, Partition: engine.Key{engine.Int(slot), engine.Int(0)},
		Mutations: []engine.Mutation{{
			Clustering: engine.Key{engine.Text("0123456789abcdef"), engine.Int(1)}, Timestamp: 1,
			Value: []byte("nonsense"),
		}},
	}}))
	for range 2 {
		r.loop.Round(t.Context())
		require.Zero(t, r.metric("lag_seconds"))
		require.Zero(t, r.metric("sealed_slots_total"))
	}
	s := r.loop.Status(t.Context())
	require.Equal(t, 1, s.Partitions[0].DamagedSlots)
	require.Zero(t, s.Partitions[0].WaitingSlots)
	// Readable samples of the damaged partition are sealed nevertheless.
	r.write(testStart.Add(-3*hour), 1)
	r.loop.Round(t.Context())
	require.Equal(t, 1.0, r.metric("sealed_slots_total"))
}

// TestStatusIsJSON checks the JSON format of the status, which pages and scripts read.
func TestStatusIsJSON(t *testing.T) {
	r := newRig(t, nil)
	text, err := json.Marshal(r.loop.Status(t.Context()))
	require.NoError(t, err)
	var have map[string]any
	require.NoError(t, json.Unmarshal(text, &have))
	for _, list := range []string{"partitions", "stuck_partitions", "failing_chores"} {
		require.IsType(t, []any{}, have[list], list)
	}
	require.IsType(t, []any{}, have["rollups"].(map[string]any)["first"])
	require.NotContains(t, have, "last_round", "there was none")
}

// TestFullHeadIsSealedEarly checks that a full head has space again after the next round, although no slot has ended.
func TestFullHeadIsSealedEarly(t *testing.T) {
	r := newRig(t, func(so *storage.Options, _ *Options) { so.HeadBytes = 1 << 20 })
	ls := labels.FromStrings(labels.MetricName, "m")
	n := 0
	write := func() error {
		b := r.store.NewBatch("default")
		s, err := b.Define(nil, ls)
		require.NoError(t, err)
		for range 10_000 {
			require.NoError(t, b.Float(s, r.clock.Load()-int64(n%3_000_000), 0, float64(n*7919%1_000_003)/3))
			n++
		}
		return b.Commit(t.Context())
	}
	require.NoError(t, r.store.WaitReady(t.Context()))
	var err error
	for range 1000 {
		if err = write(); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, storage.ErrHeadFull)
	r.loop.Round(t.Context())
	require.Contains(t, r.log.take(),
		"unsealed samples exceed --storage.head-bytes, so new ones are rejected; slots are therefore sealed before they end, in more and smaller pieces")
	require.NoError(t, write())
	r.loop.Round(t.Context())
	require.NotContains(t, r.log.take(),
		"unsealed samples exceed --storage.head-bytes, so new ones are rejected; slots are therefore sealed before they end, in more and smaller pieces")
}
