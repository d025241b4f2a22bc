package main

import (
	"context"
	"os"
	"runtime"
	"runtime/metrics"
	"time"
)

// Go lets the heap grow by as much as is in use before it collects garbage (GOGC=100). In a program built without cgo, write
// buffers and cached blocks of the embedded engine lie in the heap and are a large part of it. Collecting doesn't look into them,
// and their sizes are bounded already; so they are left out here, and garbage is collected as often as with cgo, where they lie elsewhere.
const (
	// usualGrowth is the percentage by which Go lets a heap grow, leastGrowth the least one here: blocks that left the cache are
	// garbage, and with a large cache next to nothing else may be in use.
	usualGrowth = 100
	leastGrowth = 25
	// fullGrowth is up to how many bytes of its own that are in use a heap may grow by as many; beyond, by so many, or by a
	// third of those in use, as where the head holds hundreds of thousands of series, which live for hours and make little garbage.
	fullGrowth = 96 << 20
	// growthPause is between two looks, for at the start garbage is collected often.
	growthPause = 100 * time.Millisecond
)

// growth is the percentage by which a heap of live bytes may grow, held of which are the engine's.
func growth(live, held int64) int {
	if live <= 0 {
		return usualGrowth
	}
	own := max(0, live-held)
	return int(max(leastGrowth, usualGrowth*min(own, max(fullGrowth, own/3))/live))
}

// boundGarbage sets the percentage anew after each collection, until ctx ends, unless who started the process has set it (GOGC).
func boundGarbage(ctx context.Context, held func() int64, set func(percent int) int) {
	if os.Getenv("GOGC") != "" {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for percent := usualGrowth; ; {
		select {
		case <-ctx.Done():
			return
		case <-collected():
		}
		metrics.Read(live)
		if p := growth(int64(live[0].Value.Uint64()), held()); p != percent {
			percent = p
			set(p)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(growthPause):
		}
	}
}

// collected returns a channel that is closed after the next collection.
func collected() <-chan struct{} {
	done := make(chan struct{})
	runtime.AddCleanup(&struct{ _ [64]byte }{}, func(done chan struct{}) { close(done) }, done)
	return done
}
