package storage

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
)

// several is two processes on an engine that removes deletion markers after some time, as Cassandra does.
type several struct {
	*pairs
	memory *memory.Engine
}

func newSeveral(t *testing.T, rule func(faultengine.Op) faultengine.Action) *several {
	m := memory.New()
	return &several{newPairs(t, faultengine.Wrap(m, rule), 2, nil), m}
}

func (p *several) write(process int, name string, at time.Time, v float64) {
	p.t.Helper()
	ts := &testStore{Store: p.processes[process].store, t: p.t}
	ts.write("default", labels.FromStrings(labels.MetricName, name), sample{at.UnixMilli(), v})
}

// copyRows returns copies of a table's rows, so that they can reappear.
func (p *several) copyRows(table *engine.Table, timestamp int64, partitions ...engine.Key) (rows []engine.Batch) {
	p.t.Helper()
	for _, partition := range partitions {
		b := engine.Batch{Table: table, Partition: partition}
		for row, err := range p.memory.Scan(p.t.Context(), engine.Range{Table: table, Partition: partition}) {
			require.NoError(p.t, err)
			key := row.Clustering.Clone()
			b.Mutations = append(
				b.Mutations, engine.Mutation{Clustering: key, Timestamp: timestamp, Value: slices.Clone(row.Value)},
			)
		}
		if len(b.Mutations) > 0 {
			rows = append(rows, b)
		}
	}
	return rows
}

// stagePartitions returns the partitions of table stage for the slots around a time.
func (p *several) stagePartitions(at time.Time) (keys []engine.Key) {
	s := p.processes[0].store
	for partition := range s.period.Partitions() {
		for slot := s.period.SlotOf(at.UnixMilli()) - 1; slot <= s.period.SlotOf(at.UnixMilli())+1; slot++ {
			keys = append(keys, format.StagePartition(slot, partition))
		}
	}
	return keys
}

// comeBack makes rows reappear, after the engine has forgotten their deletion.
func (p *several) comeBack(rows []engine.Batch) {
	p.t.Helper()
	require.NotEmpty(p.t, rows)
	p.memory.ForgetDeletes()
	require.NoError(p.t, p.memory.Write(p.t.Context(), rows))
}

func (p *several) requireValues(when, name string, want ...float64) {
	p.t.Helper()
	for i := range p.processes {
		require.Equal(p.t, want, slices.Clone(p.values(i, name)), "%s, process %d", when, i)
	}
}

// TestStageRowsThatComeBackStayDeleted makes staged rows reappear, as if a replica had missed their deletion, before
// and after their samples are deleted and cleaned. Deleted samples must not reappear, and the rows must be removed
// again.
func TestStageRowsThatComeBackStayDeleted(t *testing.T) {
	t.Parallel()
	p := newSeveral(t, passAll)
	ctx, s := t.Context(), p.processes[0].store
	at := p.now.Add(-time.Hour)
	p.write(0, "gone", at, 1)
	p.write(0, "kept", at, 2)
	p.write(1, "gone", at.Add(time.Second), 3)
	rows := p.copyRows(engine.Stage, format.StageTimestamp, p.stagePartitions(at)...)
	require.NoError(t, s.SealAll(ctx))
	require.NoError(t, s.Delete(ctx, "default", -format.MaxTime, format.MaxTime, equal("__name__", "gone")))
	p.write(0, "gone", at, 4) // The same sample is written again.
	check := func(when string) {
		t.Helper()
		p.requireValues(when, "gone", 4)
		p.requireValues(when, "kept", 2)
	}
	check("deleted")
	p.comeBack(rows)
	for i := range p.processes {
		p.crash(i)
	}
	check("seen by new processes")
	require.NoError(t, p.processes[1].store.SealAll(ctx))
	check("sealed")
	p.comeBack(rows)
	p.now = p.now.Add(3 * 24 * time.Hour)
	p.pass(time.Second)
	for i := range p.processes {
		require.NoError(t, p.processes[i].store.SealAll(ctx))
		require.NoError(t, p.processes[i].store.CleanTombstones(ctx, "default"))
	}
	check("clean")
	p.comeBack(rows)
	for i := range p.processes {
		p.crash(i)
	}
	check("clean, seen by new processes")
	for i := range p.processes {
		require.NoError(t, p.processes[i].store.SealAll(ctx))
		for partition := range s.period.Partitions() {
			require.NoError(t, p.processes[i].store.UnlistSlots(ctx, partition))
		}
	}
	list, err := p.processes[0].store.deletesOf(ctx, "default")
	require.NoError(t, err)
	require.Empty(t, list)
	p.comeBack(rows)
	p.crash(0)
	for partition := range s.period.Partitions() {
		_, err := p.processes[0].store.SealUnlisted(ctx, partition)
		require.NoError(t, err)
	}
	require.NoError(t, p.processes[0].store.SealAll(ctx))
	check("come back after all that")
	require.Empty(t, p.copyRows(engine.Stage, format.StageTimestamp, p.stagePartitions(at)...))
}

// TestDeleteThatComesBackHidesNothing makes the row of a cleaned delete reappear, as if a replica had missed its
// removal. The delete must not apply to samples that were written after it was cleaned, and the row must be removed
// again.
func TestDeleteThatComesBackHidesNothing(t *testing.T) {
	t.Parallel()
	p := newSeveral(t, passAll)
	ctx := t.Context()
	at := p.now.Add(-time.Hour)
	p.write(0, "m", at, 1)
	require.NoError(
		t, p.processes[0].store.Delete(ctx, "default", -format.MaxTime, format.MaxTime, equal("__name__", "m")),
	)
	rows := p.copyRows(engine.Deletes, format.TombstoneTimestamp, deletePartition("default"))
	p.now = p.now.Add(3 * 24 * time.Hour)
	p.pass(time.Second)
	young := p.now.Add(-time.Hour)
	p.write(1, "other", young, 1)
	require.NoError(
		t,
		p.processes[0].store.Delete(ctx, "default", young.UnixMilli(), young.UnixMilli(), equal("__name__", "other")),
	)
	require.NoError(t, p.processes[0].store.CleanTombstones(ctx, "default"))
	p.write(1, "m", at, 2)
	require.NoError(t, p.processes[1].store.SealAll(ctx))
	check := func(when string) {
		t.Helper()
		p.requireValues(when, "m", 2)
		p.requireValues(when, "other")
		for _, process := range p.processes {
			list, err := process.store.deletesOf(ctx, "default")
			require.NoError(t, err)
			require.Len(t, list, 1, when)
		}
	}
	check("clean")
	p.comeBack(rows)
	check("back")
	p.crash(0)
	check("back, seen by a new process")
	require.NoError(t, p.processes[0].store.CleanTombstones(ctx, "default"))
	check("clean again")
	for _, row := range p.copyRows(engine.Deletes, format.TombstoneTimestamp, deletePartition("default"))[0].Mutations {
		require.NotEqual(t, rows[0].Mutations[0].Clustering[0].Text, row.Clustering[0].Text)
	}
}

// TestSealThatWasPausedAcrossADelete pauses a process during a seal for so long that another process can clean a delete
// of the same series. The seal must fail, and no deleted sample may reappear.
func TestSealThatWasPausedAcrossADelete(t *testing.T) {
	t.Parallel()
	paused, goOn := make(chan struct{}), make(chan struct{})
	var armed bool
	p := newSeveral(t, func(op faultengine.Op) faultengine.Action {
		if !armed || op.Kind != faultengine.Scan || op.Table != engine.Sealed {
			return faultengine.Pass()
		}
		armed = false
		close(paused)
		return faultengine.Pass().After(goOn)
	})
	ctx := t.Context()
	at := p.now.Add(-time.Hour)
	p.write(0, "m", at, 1)
	armed = true
	sealed := make(chan error, 1)
	go func() { sealed <- p.processes[0].store.SealAll(ctx) }()
	<-paused
	// The other process seals more samples in one chunk, whose key therefore differs.
	p.write(1, "m", at.Add(time.Second), 2)
	require.NoError(
		t, p.processes[1].store.Delete(ctx, "default", -format.MaxTime, format.MaxTime, equal("__name__", "m")),
	)
	p.now = p.now.Add(deleteRests + time.Minute)
	require.NoError(t, p.processes[1].store.member.SendHeartbeat(ctx))
	require.NoError(t, p.processes[1].store.CleanTombstones(ctx, "default"))
	list, err := p.processes[1].store.deletesOf(ctx, "default")
	require.NoError(t, err)
	require.Empty(t, list)
	close(goOn)
	err = <-sealed
	require.ErrorIs(t, err, engine.ErrUnavailable)
	require.True(t, strings.Contains(err.Error(), "it restarts"), err)
	p.requireValues("after the pause", "m")
	require.NoError(t, p.processes[0].store.SealAll(ctx))
	p.requireValues("sealed again", "m")
}

// TestWhoMayNotSealHeedsDeletes checks a process that must not seal, because its clock is untrusted or it is ReadOnly.
// Its answers must apply the deletes of other processes: it must release samples that other processes have sealed, and
// keep later ones.
func TestWhoMayNotSealHeedsDeletes(t *testing.T) {
	r := &clockRig{t: t, shared: true}
	inner := memory.New()
	r.eng = &clockedEngine{inner, r.now}
	right, wrong := r.start(0), r.start(0)
	looks := r.start(0, func(o *Options) { o.ReadOnly = true })
	for i := range 10 {
		require.NoError(t, right.write(r.now().Add(time.Duration(-i)*time.Minute), 1))
		require.NoError(t, wrong.write(r.now().Add(time.Duration(-i)*time.Minute-time.Second), 1))
	}
	for _, m := range []*clockMachine{right, wrong, looks} {
		require.Equal(t, 20, m.visible())
	}
	wrong.set(20 * day)
	require.NoError(t, wrong.member.SendHeartbeat(t.Context()))
	require.NoError(t, right.Delete(t.Context(), "t", -format.MaxTime, r.now().UnixMilli(), ofMetric()...))
	require.NoError(t, right.write(r.now().Add(-90*time.Second), 2))
	require.NoError(t, right.write(r.now().Add(-30*time.Minute), 3))
	for name, m := range map[string]*clockMachine{"right": right, "looks": looks} {
		require.Equal(t, 2, m.visible(), name)
	}
	require.Equal(t, 2, wrong.visible(), "wrong")
	wrong.set(0)
	require.NoError(t, wrong.member.SendHeartbeat(t.Context()))
	require.Equal(t, 2, wrong.visible())
	require.Equal(
		t, 2, r.start(0, func(o *Options) { o.ReadOnly = true }).visible(), "one that starts while the delete stands",
	)
	require.NoError(t, right.SealAll(t.Context()))
	for name, m := range map[string]*clockMachine{"right": right, "wrong": wrong, "looks": looks} {
		require.Equal(t, 2, m.visible(), name)
	}
}
