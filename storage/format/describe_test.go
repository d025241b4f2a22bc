package format

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/rollup"
)

// TestDescribeRollups checks the descriptions of rows of rollups, and that a damaged row is an error.
func TestDescribeRollups(t *testing.T) {
	var samples chunk.Samples
	for at := int64(1); at <= 3*HourMS; at += 60_000 {
		samples.AppendFloat(at, 0, float64(at))
	}
	var b rollup.Buckets
	rollup.AppendEvery(&b, &samples, rollup.OneHour.Width())
	one := rollup.AppendChunk(nil, &b, rollup.OneHour.Width(), 1)
	long := rollup.AppendLong(
		nil, []rollup.Part{{Start: 0, Version: 1}, {Start: HourMS, Version: 2}}, &b, rollup.OneHour.Width(),
	)
	for want, value := range map[string][]byte{
		"bytes, 3 buckets of 1h0m0s, ending from 1970-01-01T01:00:00Z to 1970-01-01T03:00:00Z":                       one,
		"bytes, merged from 2 chunks, 3 buckets of 1h0m0s, ending from 1970-01-01T01:00:00Z to 1970-01-01T03:00:00Z": long,
		"bytes, completely deleted": rollup.AppendEmpty(nil, 3),
	} {
		words, err := Describe(engine.R1h, nil, engine.Row{Clustering: RollupKey("s", 0), Value: value})
		require.NoError(t, err)
		require.Contains(t, words, want)
		value[len(value)-6] ^= 1
		_, err = Describe(engine.R1h, nil, engine.Row{Clustering: RollupKey("s", 0), Value: value})
		require.ErrorIs(t, err, rollup.ErrCorrupt)
	}
}
