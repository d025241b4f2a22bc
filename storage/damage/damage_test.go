package damage

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// TestStagedRowsAreBounded checks that StagedErrors stays bounded if more staged rows are recorded than are kept
// individually.
func TestStagedRowsAreBounded(t *testing.T) {
	period := format.NewPeriods(format.Period{SlotMS: 2 * format.HourMS, RawWindowMS: format.DayMS, Partitions: 4})
	l := NewLog(period, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "corrupt"}, []string{"table"}),
		slog.New(slog.DiscardHandler))
	for i := range 2 * maxStaged {
		l.RecordStaged(StagedAt{Slot: 1, Row: format.StageRow{Writer: "w", Seq: int64(i)}}, format.ErrMalformedBlob)
	}
	require.Equal(t, maxStaged+1, l.Count(), "of one slot one row stands for the rest")
	require.Len(t, l.StagedErrors(period.SlotStart(1)+1, period.SlotEnd(1)), maxStaged+1)
	l.RecordStaged(StagedAt{Slot: 9, Row: format.StageRow{Writer: "w", Seq: 1}}, format.ErrMalformedBlob)
	require.Len(t, l.StagedErrors(period.SlotStart(9)+1, period.SlotEnd(9)), 1, "of another slot")
	rows := engine.Range{Table: engine.Stage, Partition: format.StagePartition(1, 0)}
	l.RecordStagedRows(StagedAt{Slot: 1}, &rows, engine.Damage{Err: engine.ErrCorrupt})
	require.Equal(t, maxStaged+2, l.Count(), "the rows that stand for the rest are counted once")
}

// TestWhatNamesNoImpossibleTime checks the descriptions of gaps without a start or an end, and of a time that only a
// damaged key can have.
func TestWhatNamesNoImpossibleTime(t *testing.T) {
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	first, last := time.UnixMilli(-format.MaxTime), time.UnixMilli(format.MaxTime)
	for _, c := range []struct {
		from, to time.Time
		want     string
	}{
		{at, at.Add(time.Hour), "table stage, from 2026-05-01T12:00:00Z to 2026-05-01T13:00:00Z"},
		{first, at, "table stage, before 2026-05-01T12:00:00Z"},
		{at, last, "table stage, after 2026-05-01T12:00:00Z"},
		{first, last, "table stage, at any time"},
	} {
		e := &DamagedRowsError{Table: engine.Stage, From: c.from, To: c.to}
		require.Equal(t, c.want, e.Description())
	}
	row := &CorruptRowError{Table: engine.Raw, Tenant: "a", Metric: "m", Series: "x", Start: -format.MaxTime}
	require.Contains(t, row.Error(), "start the impossible time -9007199254740992 ms")
}
