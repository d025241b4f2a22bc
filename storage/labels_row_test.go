package storage

import (
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
)

// FuzzLabels parses hostile labels rows.
func FuzzLabels(f *testing.F) {
	f.Add(appendLabels(nil, labels.FromStrings(labels.MetricName, "up", "a", "b")))
	f.Fuzz(func(t *testing.T, b []byte) {
		var builder labels.ScratchBuilder
		if ls, err := parseLabels(b, "up", &builder); err == nil {
			again, err := parseLabels(appendLabels(nil, ls), "up", &builder)
			require.NoError(t, err)
			require.Equal(t, ls.Len(), again.Len())
		}
	})
}
