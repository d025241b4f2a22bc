package format

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
)

func TestLabelMemory(t *testing.T) {
	list := []labels.Labels{labels.EmptyLabels(), labels.FromStrings(labels.MetricName, "up")}
	for i := range 2000 {
		list = append(
			list, labels.FromStrings(labels.MetricName, "up", "id", fmt.Sprint(i), "text", strings.Repeat("é", i)),
		)
	}
	var memory LabelMemory
	builder := labels.NewScratchBuilder(4)
	var kept, parsed []labels.Labels
	var row []byte
	for _, ls := range list {
		builder.Reset()
		ls.Range(func(l labels.Label) { builder.Add(l.Name, l.Value) })
		kept = append(kept, memory.Labels(&builder))
		row = AppendLabels(row[:0], ls) // The next row overwrites this one, so no reference to it may be kept.
		again, err := memory.Parse(row, ls.Get(labels.MetricName), &builder)
		require.NoError(t, err)
		parsed = append(parsed, again)
	}
	for i, ls := range list {
		require.Equal(t, ls.String(), kept[i].String())
		require.True(t, labels.Equal(ls, kept[i]))
		if i > 0 { // A row has a metric.
			require.True(t, labels.Equal(ls, parsed[i]), "%s: %s", ls, parsed[i])
		}
	}
	_, err := memory.Parse(row[:len(row)-1], "up", &builder)
	require.ErrorIs(t, err, ErrMalformedLabels)
}

func TestLabelMemoryAllocatesPerBlock(t *testing.T) {
	row := AppendLabels(nil, labels.FromStrings(labels.MetricName, "up", "id", "a series", "instance", "host-1"))
	var memory LabelMemory
	builder := labels.NewScratchBuilder(4)
	parse := func() {
		if _, err := memory.Parse(row, "up", &builder); err != nil {
			t.Error(err)
		}
	}
	require.Less(t, testing.AllocsPerRun(10_000, parse), 0.1)
}
