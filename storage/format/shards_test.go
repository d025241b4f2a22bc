package format

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/rollup"
)

func TestShardsFor(t *testing.T) {
	p := Period{SlotMS: 2 * HourMS, RawWindowMS: DayMS, Partitions: 16}
	require.EqualValues(t, 1, p.ShardsFor(rollup.Raw, 1, 100))
	require.EqualValues(t, 1, p.ShardsFor(rollup.Raw, 2000, 1000), "2000·16 series, 13 rows of each")
	require.EqualValues(t, 2, p.ShardsFor(rollup.Raw, 3000, 1000))
	require.EqualValues(t, 4, p.ShardsFor(rollup.Raw, 1, 1<<20), "16·12 MiB")
	require.EqualValues(t, MaxShards, p.ShardsFor(rollup.Raw, 1, 1<<50))
	for id := range 1000 {
		var series SeriesID
		series[0], series[1] = byte(id), byte(id>>8)
		for n := int64(1); n <= 64; n *= 2 {
			require.Less(t, ShardOf(series, n), n)
			require.Contains(t, []int64{ShardOf(series, n), ShardOf(series, n) + n}, ShardOf(series, 2*n),
				"doubling splits a shard")
		}
	}
}
