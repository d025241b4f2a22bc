package engine_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
)

// TestMeter checks that work is added to the meter of a context, that the completed work never exceeds the expected
// work, and that nothing is measured without a meter.
func TestMeter(t *testing.T) {
	t.Parallel()
	var seen [][2]int64
	ctx := engine.WithMeter(context.Background(), engine.NewMeter(func(done, total int64) {
		seen = append(seen, [2]int64{done, total})
	}))
	engine.MeterOf(ctx).AddExpected(10)
	engine.MeterOf(ctx).Add(4)
	engine.MeterOf(ctx).Add(0)
	engine.MeterOf(ctx).Add(7)
	require.Equal(t, [][2]int64{{0, 10}, {4, 10}, {10, 10}}, seen)
	engine.MeterOf(context.Background()).AddExpected(1)
	engine.MeterOf(context.Background()).Add(1)
}
