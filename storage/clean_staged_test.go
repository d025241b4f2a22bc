package storage

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/engine/faultengine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
)

// TestTrimWhileAStagedSlotIsMarked imports a sample of a deleted time into a slot whose samples will soon be hidden.
// Meanwhile WorkOffDeletes is trimming the slot's rollups, because it found commit records of rollups that
// CleanTombstones had written for the staged slot, but none of samples. The rollups keep the imported sample.
func TestTrimWhileAStagedSlotIsMarked(t *testing.T) {
	r := newExpiryRig(t, false)
	at := r.now().Truncate(2 * time.Hour).Add(-9*24*time.Hour - 12*time.Hour)
	var isCleaning atomic.Bool
	marks, marked, mark := 0, make(chan struct{}), make(chan struct{})
	isTrimming, trims, trim := false, make(chan struct{}), make(chan struct{})
	r.eng = &clockedEngine{faultengine.Wrap(r.eng, func(op faultengine.Op) faultengine.Action {
		switch {
		case !isCleaning.Load():
		case op.Kind == faultengine.Write && op.Table == engine.Sealed:
			if marks++; marks == 3 {
				close(marked)
				return faultengine.Pass().After(mark)
			}
		case op.Kind == faultengine.Scan && (op.Table == engine.R5m || op.Table == engine.R5mPages) && !isTrimming:
			isTrimming = true
			close(trims)
			return faultengine.Pass().After(trim)
		}
		return faultengine.Pass()
	}), r.now}
	m := r.start(0, keeping(10*day, 40*day, 400*day))
	require.NoError(t, m.write(at.Add(3*time.Hour), 1))
	require.NoError(t, m.SealAll(t.Context()))
	require.NoError(t, m.Delete(t.Context(), "t", -format.MaxTime, at.Add(time.Hour).UnixMilli(), ofMetric()...))
	b := m.NewBatch("t") // Of another series, so that its seal doesn't make the rollups anew.
	s, err := b.Define(nil, labels.FromStrings(labels.MetricName, "m", "a", "b"))
	require.NoError(t, err)
	require.NoError(t, b.Float(s, at.Add(time.Minute).UnixMilli(), 0, 2))
	require.NoError(t, b.Commit(t.Context()))
	isCleaning.Store(true)
	cleaned, workedOff := make(chan error, 1), make(chan error, 1)
	go func() { cleaned <- m.CleanTombstones(t.Context(), "t") }()
	<-marked
	go func() { workedOff <- m.WorkOffDeletes(t.Context(), "t") }()
	select {
	case <-trims:
	case err := <-workedOff: // It found samples.
		workedOff <- err
	}
	samples := &chunk.Samples{}
	samples.AppendFloat(at.Add(2*time.Minute).UnixMilli(), 0, 5)
	_, err = m.Import(t.Context(), "t", []ImportedSeries{{labelsOfMetric(), samples}})
	require.NoError(t, err)
	close(trim)
	require.NoError(t, <-workedOff)
	close(mark)
	require.NoError(t, <-cleaned)
	require.NoError(t, m.SealAll(t.Context()))
	require.Equal(t, 2, m.bucketsBetween(rollup.FiveMinutes, at, at.Add(time.Hour)))
	require.Equal(t, 3, m.bucketsBetween(rollup.OneHour, at, at.Add(4*time.Hour)))
}

// TestRemovedDeleteTrimsNothing removes a delete while WorkOffDeletes, which has read it before, waits. Then samples
// are imported that are only stored as rollups. WorkOffDeletes leaves them.
func TestRemovedDeleteTrimsNothing(t *testing.T) {
	r := newExpiryRig(t, false)
	at := r.now().Truncate(2 * time.Hour).Add(-20 * 24 * time.Hour)
	var isWaiting atomic.Bool
	listing, list := make(chan struct{}), make(chan struct{})
	r.eng = &clockedEngine{faultengine.Wrap(r.eng, func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Scan && op.Table == engine.Windows && isWaiting.CompareAndSwap(true, false) {
			close(listing)
			return faultengine.Pass().After(list)
		}
		return faultengine.Pass()
	}), r.now}
	m := r.start(0, keeping(10*day, 40*day, 400*day))
	require.NoError(t, m.Delete(t.Context(), "t", -format.MaxTime, at.Add(time.Hour).UnixMilli(), ofMetric()...))
	isWaiting.Store(true)
	workedOff := make(chan error, 1)
	go func() { workedOff <- m.WorkOffDeletes(t.Context(), "t") }()
	<-listing
	require.NoError(t, m.CleanTombstones(t.Context(), "t"))
	left, err := m.deletesOf(t.Context(), "t")
	require.NoError(t, err)
	require.Empty(t, left)
	m.brings(at, 10, time.Minute)
	require.Equal(t, 10, m.bucketsBetween(rollup.FiveMinutes, at, at.Add(time.Hour)))
	close(list)
	require.NoError(t, <-workedOff)
	require.Equal(t, 10, m.bucketsBetween(rollup.FiveMinutes, at, at.Add(time.Hour)))
	require.Equal(t, 10, m.bucketsBetween(rollup.OneHour, at, at.Add(time.Hour)))
}

// TestImportThatReadADeleteEarly imports samples that are only stored as rollups. The process reads that a delete is
// announced, and waits longer than the delete may still come in force. Meanwhile it does. The import fails, and a
// repeated one applies the delete to the stored rollups first.
func TestImportThatReadADeleteEarly(t *testing.T) {
	r := newExpiryRig(t, true)
	at := r.now().Add(-30 * day).Truncate(2 * time.Hour)
	inner := r.eng
	var isWaiting atomic.Bool
	read, goOn := make(chan struct{}), make(chan struct{})
	announced, inForce := make(chan struct{}), make(chan struct{})
	puts := 0
	r.eng = &expiringClocked{clockedEngine{faultengine.Wrap(inner, func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Write && op.Table == engine.Deletes {
			if puts++; puts == 2 {
				close(announced)
				return faultengine.Pass().After(inForce)
			}
		}
		return faultengine.Pass()
	}), r.now}}
	deletes := r.start(0, keeping(10*day, 40*day, 400*day))
	deletes.brings(at, 10, time.Minute)
	r.eng = &expiringClocked{clockedEngine{faultengine.Wrap(inner, func(op faultengine.Op) faultengine.Action {
		if op.Kind == faultengine.Scan && op.Table == engine.Sealed && isWaiting.CompareAndSwap(true, false) {
			close(read)
			return faultengine.Pass().After(goOn)
		}
		return faultengine.Pass()
	}), r.now}}
	m := r.start(0, keeping(10*day, 40*day, 400*day))
	imports := func() error {
		samples := &chunk.Samples{}
		for i := range 10 {
			samples.AppendFloat(at.Add(90*time.Minute+time.Duration(i)*time.Minute).UnixMilli(), 0, 1)
		}
		_, err := m.Import(t.Context(), "t", []ImportedSeries{{labelsOfMetric(), samples}})
		return err
	}
	deleted, imported := make(chan error, 1), make(chan error, 1)
	go func() { deleted <- deletes.Delete(t.Context(), "t", -format.MaxTime, format.MaxTime, ofMetric()...) }()
	<-announced
	require.ErrorIs(t, imports(), errDeleting)
	isWaiting.Store(true)
	go func() { imported <- imports() }()
	<-read
	close(inForce)
	require.Eventually(t, func() bool {
		all, err := m.deletesOf(t.Context(), "t")
		return err == nil && len(all) == 1
	}, time.Minute, time.Millisecond)
	r.pass(10 * time.Minute)
	close(goOn)
	require.Error(t, <-imported)
	require.NoError(t, <-deleted)
	for _, x := range []*clockMachine{deletes, m} {
		require.NoError(t, x.member.SendHeartbeat(t.Context()))
	}
	require.NoError(t, imports())
	require.Equal(t, 10, m.bucketsBetween(rollup.FiveMinutes, at, at.Add(2*time.Hour)))
	require.Equal(t, 10, m.bucketsBetween(rollup.OneHour, at, at.Add(2*time.Hour)))
}

// TestDeleteIsRemovedWhileRollupsAreMade seals a sample of a deleted time after CleanTombstones has removed the delete,
// while WorkOffDeletes, which has read the delete before, lists the slot's chunks. The rollups include the sample.
func TestDeleteIsRemovedWhileRollupsAreMade(t *testing.T) {
	r := newExpiryRig(t, false)
	at := r.now().Truncate(2 * time.Hour).Add(-24 * time.Hour)
	var isCleaning, isListed atomic.Bool
	marks, marked, mark := 0, make(chan struct{}), make(chan struct{})
	lists, list := make(chan struct{}), make(chan struct{})
	r.eng = &clockedEngine{faultengine.Wrap(r.eng, func(op faultengine.Op) faultengine.Action {
		switch {
		case !isCleaning.Load():
		case op.Kind == faultengine.Write && op.Table == engine.Sealed:
			if marks++; marks == 2 {
				close(marked)
				return faultengine.Pass().After(mark)
			}
		case isChunkList(op) && isListed.CompareAndSwap(false, true):
			close(lists)
			return faultengine.Pass().After(list)
		}
		return faultengine.Pass()
	}), r.now}
	m := r.start(0)
	require.NoError(t, m.write(at.Add(3*time.Hour), 1))
	require.NoError(t, m.SealAll(t.Context()))
	require.NoError(t, m.Delete(t.Context(), "t", -format.MaxTime, at.Add(time.Hour).UnixMilli(), ofMetric()...))
	require.NoError(t, m.write(at.Add(time.Minute), 2))
	isCleaning.Store(true)
	cleaned, workedOff := make(chan error, 1), make(chan error, 1)
	go func() { cleaned <- m.CleanTombstones(t.Context(), "t") }()
	<-marked
	go func() { workedOff <- m.WorkOffDeletes(t.Context(), "t") }()
	<-lists
	close(mark)
	require.NoError(t, <-cleaned)
	left, err := m.deletesOf(t.Context(), "t")
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoError(t, m.SealAll(t.Context()))
	close(list)
	require.NoError(t, <-workedOff)
	require.Equal(t, 1, m.bucketsBetween(rollup.FiveMinutes, at, at.Add(time.Hour)))
}

// isChunkList reports whether an operation lists the chunks of raw samples of series.
func isChunkList(op faultengine.Op) bool {
	return op.Kind == faultengine.Scan && op.Table == engine.Raw && len(op.Range.From) > 0 &&
		op.Range.From[0].Int == format.KindChunk
}
