package storage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine/memory"
	"github.com/cassia-db/cassia/storage/format"
)

// TestQueryAfterASleep is TestSealAfterASleep with a query instead of the seal.
func TestQueryAfterASleep(t *testing.T) {
	t.Parallel()
	deletes, sleeps, at := sleepWhileDeleting(t)
	require.NoError(t, sleeps.write(at.Add(time.Minute), 2))
	require.Equal(t, 1, sleeps.visible())
	require.Equal(t, 1, deletes.visible())
}

// TestSealAfterASleep pauses a process until a sample in its head was deleted and the delete was cleaned and removed.
// When the process continues, it stores a sample of the same slot and seals both before its follower makes a pass. The
// deleted sample isn't sealed.
func TestSealAfterASleep(t *testing.T) {
	t.Parallel()
	deletes, sleeps, at := sleepWhileDeleting(t)
	require.NoError(t, sleeps.write(at.Add(time.Minute), 2))
	require.NoError(t, sleeps.SealAll(t.Context()))
	require.Equal(t, 1, sleeps.visible())
	require.Equal(t, 1, deletes.visible())
}

// TestSealOfAWriterAfterASleep is TestSealAfterASleep for a process that follows no others, and whose own sample was
// deleted.
func TestSealOfAWriterAfterASleep(t *testing.T) {
	t.Parallel()
	deletes, sleeps, at := sleepWhileDeleting(t, func(o *Options) { o.Follow = false })
	require.NoError(t, sleeps.write(at.Add(time.Minute), 2))
	require.NoError(t, sleeps.SealAll(t.Context()))
	require.Equal(t, 1, deletes.visible())
}

// sleepWhileDeleting has a process store a sample and pause. Meanwhile another process deletes the sample, and removes
// the delete. at is the time of the sample.
func sleepWhileDeleting(t *testing.T, change ...func(*Options)) (deletes, sleeps *clockMachine, at time.Time) {
	t.Helper()
	r := &clockRig{t: t, shared: true}
	r.eng = &clockedEngine{memory.New(), r.now}
	deletes, sleeps = r.start(0), r.start(0, change...)
	at = r.now().Truncate(2 * time.Hour).Add(-time.Hour)
	require.NoError(t, sleeps.write(at, 1))
	require.Equal(t, 1, deletes.visible())
	require.NoError(t, deletes.Delete(t.Context(), "t", -format.MaxTime, format.MaxTime, ofMetric()...))
	r.pass(deleteRests + time.Hour)
	for _, m := range []*clockMachine{deletes, sleeps} {
		require.NoError(t, m.member.SendHeartbeat(t.Context()))
	}
	require.NoError(t, deletes.CleanTombstones(t.Context(), "t"))
	left, err := deletes.deletesOf(t.Context(), "t")
	require.NoError(t, err)
	require.Empty(t, left)
	return deletes, sleeps, at
}
