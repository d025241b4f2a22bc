package fetch

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/adapter/importer"
)

// TestDaysGoOn resumes after a complete run. It checks that the last piece is read again from its start, because the
// server may have received samples of it since, and that later pieces are read.
func TestDaysGoOn(t *testing.T) {
	t.Parallel()
	const day = 24 * 3600 * 1000
	var asked [][2]int64
	now := int64(3*day + 5000)
	d := &Days{
		Selection: importer.Everything(), Width: 24 * time.Hour, Now: func() time.Time { return time.UnixMilli(now) },
		Fetch: func(_ context.Context, minMS, maxMS int64, _ *importer.Gatherer, _ func(importer.Tail) error) error {
			asked = append(asked, [2]int64{minMS, maxMS})
			return nil
		},
	}
	d.MinMS = 2*day + 7
	run := func(after string) (last string) {
		asked, last = nil, after
		for b, err := range d.Batches(t.Context(), after) {
			require.NoError(t, err)
			last = b.Position
		}
		return last
	}
	at := run("")
	require.Equal(t, [][2]int64{{2*day + 7, 3 * day}, {3*day + 1, 3*day + 5000}}, asked)
	require.Equal(t, at, run(at))
	require.Empty(t, asked, "there is nothing newer")
	now = 4*day + 100
	at = run(at)
	require.Equal(t, [][2]int64{{3*day + 1, 4 * day}, {4*day + 1, 4*day + 100}}, asked)
	d.MaxMS = 4*day + 100
	now += day
	run(at)
	require.Empty(t, asked, "the selection ends there")
}
