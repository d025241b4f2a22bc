package format

import (
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
)

// FuzzLabels parses hostile labels rows.
func FuzzLabels(f *testing.F) {
	f.Add(AppendLabels(nil, labels.FromStrings(labels.MetricName, "up", "a", "b")))
	f.Fuzz(func(t *testing.T, b []byte) {
		var builder labels.ScratchBuilder
		if ls, err := ParseLabels(b, "up", &builder); err == nil {
			again, err := ParseLabels(AppendLabels(nil, ls), "up", &builder)
			require.NoError(t, err)
			require.Equal(t, ls.Len(), again.Len())
		}
	})
}
