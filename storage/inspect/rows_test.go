package inspect

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/rollup"
	"github.com/cassia-db/cassia/storage/storagetest"
)

func TestRows(t *testing.T) {
	r := newRig(t)
	ls := labels.FromStrings(labels.MetricName, "up", "job", "a")
	storagetest.Write(t, r.Store, "default", ls, storagetest.FloatSample{T: r.now.UnixMilli(), V: 1},
		storagetest.FloatSample{T: r.now.UnixMilli() + 15_000, V: 2})
	show := func(table string, fields map[string]string) string {
		var lines []string
		require.NoError(t, Rows(t.Context(), r.eng, table, fields, func(s string) { lines = append(lines, s) }))
		return strings.Join(lines, "\n")
	}
	slot := r.View().Period().SlotOf(r.now.UnixMilli())
	partition := r.examine().Waiting[0].Partition
	require.Contains(t, show("stage", map[string]string{"slot": fmt.Sprint(slot), "partition": fmt.Sprint(partition)}),
		"1 series defined, 1 floats")
	require.NoError(t, r.SealAll(t.Context()))
	window := r.View().Period().RawWindowOfSlot(slot)
	key := map[string]string{
		"window": fmt.Sprint(window), "class": "0", "tenant": "default", "metric": "up", "shard": "0",
	}
	require.Contains(t, show("raw", key), `{__name__="up", job="a"}`)
	require.Contains(t, show("raw", key),
		"1 floats, 0 histograms, from 2026-05-01T12:00:00Z to 2026-05-01T12:00:00Z, first 1, last 1")
	key["kind"] = "1"
	require.NotContains(t, show("raw", key), "job")
	require.Contains(t, show("store", map[string]string{"name": "store"}), `"version":1`)
	require.Contains(t, show("catalog", map[string]string{
		"window": fmt.Sprint(window), "resolution": "0", "tenant": "default", "kind": "0", "label": "", "salt": "0",
	}), `value="up": -`)

	for table, say := range map[string]string{"raw": "window=… is missing", "nothing": "unknown table"} {
		require.ErrorContains(t, Rows(t.Context(), r.eng, table, nil, nil), say)
	}
	require.ErrorContains(
		t, Rows(t.Context(), r.eng, "store", map[string]string{"name": "store", "nam": "x"}, nil), `no field "nam"`,
	)
	require.ErrorContains(
		t, Rows(t.Context(), r.eng, "stage", map[string]string{"slot": "x"}, nil), "is not an integer",
	)

	var lines []string
	require.NoError(t, Overview(t.Context(), r.View(), func(s string) { lines = append(lines, s) }))
	require.Contains(t, strings.Join(lines, "\n"), `tenant "default"`)

	var readOnly []string
	s := storagetest.Open(t, r.eng, storagetest.Clock(func() time.Time { return r.now }), func(o *storage.Options) {
		o.ReadOnly = true
	})
	require.NoError(t, Overview(t.Context(), s.View(), func(s string) { readOnly = append(readOnly, s) }))
	require.Equal(t, lines, readOnly)
}

// TestRowsOfPages checks that pages are described as text, that damaged pages are reported as damaged, and that
// ListWindows includes the size of pages.
func TestRowsOfPages(t *testing.T) {
	r := newRig(t)
	b := r.NewBatch("ann")
	for i := range 40 {
		ls := labels.FromStrings(labels.MetricName, "up", "host", fmt.Sprint("h", i))
		s, err := b.Define([]byte(ls.String()), ls)
		require.NoError(t, err)
		require.NoError(t, b.Float(s, r.now.UnixMilli(), 0, 1))
	}
	require.NoError(t, b.Commit(t.Context()))
	require.NoError(t, r.SealAll(t.Context()))
	slot := r.View().Period().SlotOf(r.now.UnixMilli())
	of := func(res rollup.Resolution) (table string, key map[string]string) {
		window := r.View().Period().WindowOfSlot(res, slot)
		return format.PagesOf(res).Name, map[string]string{
			"window": fmt.Sprint(window), "class": "0", "tenant": "ann", "metric": "up", "shard": "0",
		}
	}
	show := func(res rollup.Resolution) (lines []string) {
		table, key := of(res)
		require.NoError(t, Rows(t.Context(), r.eng, table, key, func(s string) { lines = append(lines, s) }))
		return lines
	}
	for res, data := range map[rollup.Resolution]string{
		rollup.Raw: "chunks", rollup.FiveMinutes: "rollups", rollup.OneHour: "rollups",
	} {
		lines := show(res)
		require.Len(t, lines, 3)
		require.Regexp(t, "^kind=0 .*: [0-9]+ bytes, labels of 40 series, ", lines[0])
		version := regexp.MustCompile("version=([0-9a-f]+)").FindStringSubmatch(lines[0])[1]
		require.Regexp(t, "^kind=1 .*: [0-9]+ bytes, "+data+" of 40 series, labels page "+version+", ", lines[1])
		require.Regexp(
			t, "^kind=9 .*"+version+": [0-9]+ bytes, filter of a labels page of 40 series that matches everything$",
			lines[2],
		)
	}
	compacter, ok := r.eng.(interface{ CompactAll(context.Context) error })
	require.True(t, ok)
	require.NoError(t, compacter.CompactAll(t.Context()))
	list, _, err := ListWindows(t.Context(), r.View(), "ann")
	require.NoError(t, err)
	require.Len(t, list, 3)
	usage, ok := r.eng.(engine.Measured)
	require.True(t, ok)
	for _, w := range list {
		n, err := usage.Usage(t.Context(), format.PagesOf(w.Resolution), engine.Key{engine.Int(w.Window)})
		require.NoError(t, err)
		require.Positive(t, n)
		require.GreaterOrEqual(t, w.Bytes, int64(n))
	}

	table, key := of(rollup.Raw)
	rows, err := rangeOf(table, key)
	require.NoError(t, err)
	pages := map[string]engine.Mutation{}
	for row, err := range r.eng.Scan(t.Context(), rows) {
		require.NoError(t, err)
		m := engine.Mutation{Timestamp: math.MaxInt64, Value: bytes.Clone(row.Value)}
		for _, v := range row.Clustering {
			m.Clustering = append(m.Clustering, engine.Value{Int: v.Int, Text: strings.Clone(v.Text)})
		}
		pages[fmt.Sprint(row.Clustering[0].Int)] = m
	}
	put := func(m engine.Mutation) {
		require.NoError(t, r.eng.Write(t.Context(), []engine.Batch{
			{Table: rows.Table, Partition: rows.Partition, Mutations: []engine.Mutation{m}},
		}))
	}
	bad := pages["1"]
	bad.Value = bytes.Clone(bad.Value)
	bad.Value[len(bad.Value)/2]++
	put(bad)
	require.Regexp(t, "^kind=1 .*: CORRUPT: page: corrupt: ", show(rollup.Raw)[1])
	put(pages["1"])
}
