package main

import (
	"context"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestGrowthLeavesOutWhatTheEngineHolds(t *testing.T) {
	for name, c := range map[string]struct {
		live, held int64
		want       int
	}{
		"nothing held":                         {96 << 20, 0, 100},
		"a large heap":                         {512 << 20, 0, 33},
		"a somewhat large heap":                {192 << 20, 0, 50},
		"a heap in between":                    {160 << 20, 0, 60},
		"nothing known":                        {0, 10 << 20, 100},
		"half":                                 {180 << 20, 90 << 20, 50},
		"nearly all, as with a large cache":    {2 << 30, 2<<30 - 10<<20, 25},
		"allocated since the last collection":  {90 << 20, 150 << 20, 25},
		"as much as a heap of many terabytes":  {1 << 50, 1 << 49, 25},
		"next to nothing of what lives is its": {96 << 20, 1, 99},
	} {
		require.Equal(t, c.want, heapGrowth(c.live, c.held), name)
	}
}

func TestGarbageIsBoundedAfterACollection(t *testing.T) {
	t.Setenv("GOGC", "")
	ctx, cancel := context.WithCancel(t.Context())
	percents, ended := make(chan int, 1), make(chan struct{})
	go func() {
		defer close(ended)
		tuneGC(ctx, func() int64 { return math.MaxInt64 / 200 }, func(p int) int { percents <- p; return 0 })
	}()
	require.Equal(t, leastGrowth, collectUntil(t, percents))
	cancel()
	<-ended
}

// collectUntil runs garbage collections until tuneGC sets a percentage, and returns it.
func collectUntil(t *testing.T, percents <-chan int) int {
	for {
		runtime.GC()
		select {
		case p := <-percents:
			return p
		case <-t.Context().Done():
			t.Fatal("the test was ended")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestGarbageIsLeftToWhoSetsGOGC(t *testing.T) {
	t.Setenv("GOGC", "80")
	tuneGC(t.Context(), func() int64 { t.Error("asked"); return 0 }, func(int) int { t.Error("set"); return 0 })
}
