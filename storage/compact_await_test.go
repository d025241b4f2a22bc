package storage

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/paged"
	"github.com/cassia-db/cassia/storage/rollup"
)

// TestCleaningAwaitsScans cleans while a compaction waits for a scan that began before its window was listed: the scan
// still finds all chunks.
func TestCleaningAwaitsScans(t *testing.T) {
	t.Parallel()
	m := newCompactModel(t, 12, rowsOnly)
	for _, p := range m.pagedPartitions("default") {
		if p.key[0].Int != m.period.WindowAt(rollup.FiveMinutes, m.now.Add(-overAgo-9*time.Hour).UnixMilli()) {
			continue
		}
		w := wantedEverySecond(t, m, p.key)
		if len(w.IDs) < 3 {
			continue
		}
		var want, got []string
		for row, err := range m.rows.Chunks(t.Context(), w) {
			require.NoError(t, err)
			want = append(want, strings.Clone(row.Clustering[1].Text))
		}
		require.Greater(t, len(want), 2)
		for row, err := range m.rows.Chunks(t.Context(), w) {
			require.NoError(t, err)
			got = append(got, strings.Clone(row.Clustering[1].Text))
			if len(got) > 1 {
				continue
			}
			require.False(t, m.rows.HasLong(p.key[0].Int))
			m.compactUntilListed(p.key[0].Int)
			m.deleteOver()
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.ErrorIs(t, m.CleanTombstones(short, "default"), context.DeadlineExceeded)
		}
		require.Equal(t, want, got)
		require.NoError(t, m.CleanTombstones(t.Context(), "default"))
		require.Empty(t, m.deletedRows("default"))
		return
	}
	require.Fail(t, "no partition with chunks of three series")
}

// compactUntilListed compacts, and gives up once a window of which a scan is under way is listed as one with long
// chunks.
func (m *deleteModel) compactUntilListed(window int64) {
	ctx, cancel := context.WithCancel(m.t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := m.compactAll(ctx, func() {})
		ended <- err
	}()
	for !m.rows.HasLong(window) {
		select {
		case err := <-ended:
			require.Fail(m.t, "it didn't come to the window", "%v", err)
		case <-time.After(time.Millisecond):
		}
	}
	cancel()
	require.ErrorIs(m.t, <-ended, context.Canceled)
}

// wantedEverySecond are the last chunks of every second series of a partition of 5m rollups: a scan for them begins
// anew for each series.
func wantedEverySecond(t *testing.T, m *deleteModel, partition engine.Key) paged.Wanted {
	w := paged.Wanted{Table: engine.R5m, Partition: partition}
	chunks := engine.Key{engine.Int(format.KindChunk)}
	n := 0
	last := ""
	for row, err := range m.rows.Scan(t.Context(), engine.Range{Table: engine.R5m, Partition: partition, From: chunks, To: chunks}) {
		require.NoError(t, err)
		if id := row.Clustering[1].Text; id != last {
			last = strings.Clone(id)
			if n++; n%2 == 1 {
				w.IDs = append(w.IDs, last)
			}
		}
		w.First, w.Last = row.Clustering[2].Int, row.Clustering[2].Int
	}
	return w
}
