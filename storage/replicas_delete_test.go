package storage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
)

// TestHeldSamplesHeedDeletes deletes series with held samples of a replica that is elected afterwards. The deleted held
// samples must not be stored. Samples that the replica sends after the delete must be stored.
func TestHeldSamplesHeedDeletes(t *testing.T) {
	t.Parallel()
	p := newPairs(t, faultengine.Wrap(memory.New(), passAll), 2, nil)
	for i := range 3 {
		require.NoError(t, p.send(i%2, "a", p.now, float64(i), "m", "other"))
		require.NoError(t, p.send(i%2, "b", p.now.Add(3*time.Second), 10+float64(i), "m", "other"))
		if i < 2 {
			p.pass(10 * time.Second)
		}
	}
	// The held samples of b must be deleted in every process, but not later samples with the same times.
	held := p.now.Add(3 * time.Second)
	require.NoError(
		t, p.processes[0].store.Delete(t.Context(), "default", -format.MaxTime, format.MaxTime, equal("__name__", "m")),
	)
	require.Empty(t, p.values(0, "m"))
	require.NoError(t, p.send(0, "b", held.Add(time.Second), 20, "m", "other"))
	require.NoError(t, p.send(1, "b", held.Add(2*time.Second), 21, "m", "other"))
	for i := range 4 { // a has stopped.
		p.pass(10 * time.Second)
		require.NoError(t, p.send(i%2, "b", p.now.Add(3*time.Second), 22+float64(i), "m", "other"))
	}
	require.Equal(t, "b", p.processes[0].replicas.Status("default")[0].Elected)
	check := func(when string) {
		t.Helper()
		for i := range p.processes {
			require.Equal(t, []float64{20, 21, 22, 23, 24, 25}, p.values(i, "m"), when)
			require.Equal(t, []float64{0, 1, 2, 12, 20, 21, 22, 23, 24, 25}, p.values(i, "other"), when)
		}
	}
	check("taken over")
	require.NoError(t, p.processes[1].store.SealAll(t.Context()))
	check("sealed")
	p.pass(time.Second)
	p.now = p.now.Add(deleteRests)
	p.pass(time.Second)
	for _, process := range p.processes {
		require.NoError(t, process.store.CleanTombstones(t.Context(), "default"))
	}
	list, err := p.processes[0].store.deletesOf(t.Context(), "default")
	require.NoError(t, err)
	require.Empty(t, list)
	check("clean")
}

// TestDeleteStaysWhileHeldSamplesNeedIt cleans a delete while samples that it applies to are still held. The tombstone
// must be kept.
func TestDeleteStaysWhileHeldSamplesNeedIt(t *testing.T) {
	t.Parallel()
	p := newPairs(t, faultengine.Wrap(memory.New(), passAll), 1, nil)
	s := p.processes[0].store
	require.NoError(t, p.send(0, "a", p.now, 1, "m"))
	require.NoError(t, p.send(0, "b", p.now.Add(time.Second), 2, "m"))
	require.NoError(t, s.Delete(t.Context(), "default", -format.MaxTime, format.MaxTime, equal("__name__", "m")))
	p.now = p.now.Add(deleteRests)
	require.NoError(t, s.member.SendHeartbeat(t.Context()))
	require.NoError(t, s.CleanTombstones(t.Context(), "default"))
	p.pass(100 * time.Second)
	require.Equal(t, "b", p.processes[0].replicas.Status("default")[0].Elected)
	require.Empty(t, p.values(0, "m"))
	require.Zero(t, p.heldRows())
	require.NoError(t, s.CleanTombstones(t.Context(), "default"))
	list, err := s.deletesOf(t.Context(), "default")
	require.NoError(t, err)
	require.Empty(t, list)
}

// TestDeleteAndTakingWait requests a delete while another process stores held samples. The delete must be rejected and
// have no effect, and a later delete must succeed.
func TestDeleteAndTakingWait(t *testing.T) {
	t.Parallel()
	var during func()
	p := newPairs(t, faultengine.Wrap(memory.New(), func(op faultengine.Op) faultengine.Action {
		if f := during; f != nil && op.Kind == faultengine.Scan && op.Table == engine.Held && len(op.Range.From) > 0 {
			during = nil
			wait := make(chan struct{})
			go func() {
				f()
				close(wait)
			}()
			return faultengine.Pass().After(wait)
		}
		return faultengine.Pass()
	}), 2, nil)
	require.NoError(t, p.send(0, "a", p.now, 1, "m"))
	require.NoError(t, p.send(0, "b", p.now.Add(time.Second), 2, "m"))
	var refused error
	during = func() { // Process 0 has read the deletes, and is about to read the held rows.
		refused = p.processes[1].store.Delete(
			t.Context(), "default", -format.MaxTime, format.MaxTime, equal("__name__", "m"),
		)
	}
	p.pass(100 * time.Second)
	require.Nil(t, during)
	require.ErrorIs(t, refused, errTaking)
	require.Equal(t, []float64{1, 2}, p.values(1, "m"), "it was taken back")
	require.NoError(
		t, p.processes[1].store.Delete(t.Context(), "default", -format.MaxTime, format.MaxTime, equal("__name__", "m")),
	)
	require.Empty(t, p.values(0, "m"))
}

// TestDeleteAfterALostTakeover deletes samples when the write of a takeover was applied, but its answer was lost. The
// process that deletes doesn't know that the samples are staged.
func TestDeleteAfterALostTakeover(t *testing.T) {
	t.Parallel()
	lose, lost := false, 0
	p := newPairs(t, faultengine.Wrap(memory.New(), func(op faultengine.Op) faultengine.Action {
		if lose && op.Table == engine.Stage && op.Kind == faultengine.Write {
			lost++
			return faultengine.Lose(nil)
		}
		return faultengine.Pass()
	}), 1, nil)
	for i := range 20 {
		if i < 10 {
			require.NoError(t, p.send(0, "a", p.now, float64(i), "m"))
		}
		require.NoError(t, p.send(0, "b", p.now.Add(3*time.Second), float64(100+i), "m"))
		p.pass(2 * time.Second)
	}
	require.NoError(t, p.processes[0].store.SealAll(t.Context())) // The head has no other samples of the slot.
	lose = true
	for range 20 {
		p.passAnyhow(2 * time.Second)
	}
	require.NotZero(t, lost, "the samples of b are stored")
	require.Equal(t, "taking", p.processes[0].replicas.Status("default")[0].State)
	lose = false
	from, to := p.now.Add(-time.Hour).UnixMilli(), p.now.Add(time.Hour).UnixMilli()
	require.NoError(t, p.processes[0].store.Delete(t.Context(), "default", from, to, equal("__name__", "m")))
	for range 10 {
		require.Empty(t, p.values(0, "m"))
		p.pass(10 * time.Second)
		require.NoError(t, p.processes[0].store.SealAll(t.Context()))
	}
}
