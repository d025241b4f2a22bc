package format

import (
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
)

// FuzzLabels parses arbitrary labels rows. Valid labels must be valid after they are encoded again.
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

// TestSeriesSetOfARow compares the series set of a row with the series set of its labels.
func TestSeriesSetOfARow(t *testing.T) {
	for _, ls := range []labels.Labels{
		labels.FromStrings(labels.MetricName, "up"),
		labels.FromStrings(labels.MetricName, `a=b,c\d`, "x", `1,2=3\`, "y", "", "z,=", "ü"),
		labels.FromStrings(labels.MetricName, "m", "A", "1", "a", "2", "job", strings.Repeat("x", 300)),
	} {
		got, err := AppendSeriesSetOfRow([]byte("before "), AppendLabels(nil, ls), ls.Get(labels.MetricName))
		require.NoError(t, err)
		require.Equal(t, string(AppendSeriesSet([]byte("before "), ls)), string(got))
	}
	for _, bad := range []string{"", "\x02", "\x01\x05ab", "\x01\x01a"} {
		_, err := AppendSeriesSetOfRow(nil, []byte(bad), "up")
		require.ErrorIs(t, err, ErrMalformedLabels)
	}
}
