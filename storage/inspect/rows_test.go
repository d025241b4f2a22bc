package inspect

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/storagetest"
)

func TestRows(t *testing.T) {
	r := newRig(t)
	ls := labels.FromStrings(labels.MetricName, "up", "job", "a")
	storagetest.Write(t, r.Store, "default", ls, storagetest.FloatSample{T: r.now.UnixMilli(), V: 1}, storagetest.FloatSample{T: r.now.UnixMilli() + 15_000, V: 2})
	show := func(table string, fields map[string]string) string {
		var lines []string
		require.NoError(t, Rows(t.Context(), r.eng, table, fields, func(s string) { lines = append(lines, s) }))
		return strings.Join(lines, "\n")
	}
	slot := r.View().Period().SlotOf(r.now.UnixMilli())
	partition := r.examine().Waiting[0].Partition
	require.Contains(t, show("stage", map[string]string{"slot": fmt.Sprint(slot), "partition": fmt.Sprint(partition)}), "1 series defined, 1 floats")
	require.NoError(t, r.SealAll(t.Context()))
	window := r.View().Period().RawWindowOfSlot(slot)
	key := map[string]string{"window": fmt.Sprint(window), "class": "0", "tenant": "default", "metric": "up", "shard": "0"}
	require.Contains(t, show("raw", key), `{__name__="up", job="a"}`)
	require.Contains(t, show("raw", key), "1 floats, 0 histograms, from 2026-05-01T12:00:00Z to 2026-05-01T12:00:00Z, first 1, last 1")
	key["kind"] = "1"
	require.NotContains(t, show("raw", key), "job")
	require.Contains(t, show("store", map[string]string{"name": "store"}), `"format":1`)
	require.Contains(t, show("catalog", map[string]string{"window": fmt.Sprint(window), "resolution": "0", "tenant": "default", "kind": "0", "label": "", "salt": "0"}), `value="up": -`)

	for table, say := range map[string]string{"raw": "window=… is missing", "nothing": "there is no table"} {
		require.ErrorContains(t, Rows(t.Context(), r.eng, table, nil, nil), say)
	}
	require.ErrorContains(t, Rows(t.Context(), r.eng, "store", map[string]string{"name": "store", "nam": "x"}, nil), `no field "nam"`)
	require.ErrorContains(t, Rows(t.Context(), r.eng, "stage", map[string]string{"slot": "x"}, nil), "no integer")

	var lines []string
	require.NoError(t, Overview(t.Context(), r.View(), func(s string) { lines = append(lines, s) }))
	require.Contains(t, strings.Join(lines, "\n"), `tenant "default"`)

	var readOnly []string
	s := storagetest.Open(t, r.eng, storagetest.Clock(func() time.Time { return r.now }), func(o *storage.Options) { o.ReadOnly = true })
	require.NoError(t, Overview(t.Context(), s.View(), func(s string) { readOnly = append(readOnly, s) }))
	require.Equal(t, lines, readOnly)
}
