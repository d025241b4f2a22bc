package pebble

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestKeep checks which backups are kept. Backups are named by their times and listed in the order in which they were
// made.
func TestKeep(t *testing.T) {
	const layout = "01-02T15:04"
	all := []string{
		"11-01T10:00", "11-02T10:00", "11-09T10:00", "11-22T09:00", "11-22T23:50", "11-23T00:10", "11-23T08:00",
		"11-23T08:30", "11-23T09:00",
	}
	for about, c := range map[string]struct {
		keep    Keep
		damaged string
		stay    []string
	}{
		"all":       {stay: all},
		"last":      {keep: Keep{Last: 2}, stay: all[7:]},
		"hourly":    {keep: Keep{Hourly: 3}, stay: []string{"11-23T00:10", "11-23T08:30", "11-23T09:00"}},
		"daily":     {keep: Keep{Daily: 3}, stay: []string{"11-09T10:00", "11-22T23:50", "11-23T09:00"}},
		"weekly":    {keep: Keep{Weekly: 9}, stay: []string{"11-01T10:00", "11-02T10:00", "11-09T10:00", "11-22T23:50", "11-23T09:00"}[0:5]},
		"several":   {keep: Keep{Last: 1, Hourly: 2, Daily: 2}, stay: []string{"11-22T23:50", "11-23T08:30", "11-23T09:00"}},
		"damaged":   {keep: Keep{Last: 1, Daily: 2}, damaged: "11-23T09:00", stay: []string{"11-22T23:50", "11-23T08:30", "11-23T09:00"}},
		"old harm":  {keep: Keep{Daily: 2}, damaged: "11-09T10:00", stay: []string{"11-22T23:50", "11-23T09:00"}},
		"mid harm":  {keep: Keep{Daily: 2}, damaged: "11-23T08:00", stay: []string{"11-22T23:50", "11-23T08:00", "11-23T09:00"}},
		"too many":  {keep: Keep{Last: 99}, stay: all},
		"one at 00": {keep: Keep{Weekly: 1}, stay: []string{"11-23T09:00"}},
	} {
		var backups []DatedBackup
		for _, at := range all {
			taken, err := time.Parse("2006-"+layout, "2026-"+at)
			require.NoError(t, err)
			backups = append(backups, DatedBackup{Name: at, Taken: taken, Damaged: at == c.damaged})
		}
		gone := map[string]bool{}
		names, future := c.keep.Surplus(backups, backups[len(backups)-1].Taken)
		require.Empty(t, future)
		for _, name := range names {
			gone[name] = true
		}
		var stay []string
		for _, at := range all {
			if !gone[at] {
				stay = append(stay, at)
			}
		}
		require.Equal(t, c.stay, stay, about)
	}
	now := time.Unix(1.8e9, 0)
	names, _ := Keep{Last: 1}.Surplus([]DatedBackup{{Name: "a", Damaged: true}, {Name: "b", Damaged: true}}, now)
	require.Empty(t, names, "none is whole")
	names, future := Keep{Last: 1}.Surplus(
		[]DatedBackup{{Name: "a", Taken: now}, {Name: "b", Taken: now.Add(25 * time.Hour)}}, now,
	)
	require.Empty(t, names)
	require.Equal(t, "b", future, "the clock is wrong, or was")
	require.Error(t, Keep{Daily: -1}.Validate())
	require.NoError(t, Keep{Daily: 1}.Validate())
}
