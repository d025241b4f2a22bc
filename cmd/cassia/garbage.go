package main

import (
	"context"
	"os"
	"runtime"
	"runtime/metrics"
	"time"
)

// By default (GOGC=100), Go starts a garbage collection when the heap has grown by the number of bytes in use. In a
// program built without cgo, the write buffers and cached blocks of the embedded engine are a large part of the heap,
// although they contain no pointers and their sizes are already bounded. These buffers and blocks are excluded here, so
// that garbage is collected as often as in a program built with cgo, where they are allocated outside the heap.
const (
	// usualGrowth is Go's default percentage by which the heap may grow. leastGrowth is the min percentage. Without it,
	// a process with a large cache and little other memory would collect garbage constantly, because each block that
	// the cache evicts becomes garbage.
	usualGrowth = 100
	leastGrowth = 25
	// fullGrowth is the max size in bytes, without the engine's memory, of a heap that may grow by 100 %. A larger heap
	// may grow by fullGrowth or by a third of its size, whichever is larger. Otherwise a head that holds hundreds of
	// thousands of series for hours, and produces little garbage, would double the memory.
	fullGrowth = 96 << 20
	// growthPause is the min interval between adjustments. It matters at the start, when collections are frequent.
	growthPause = 100 * time.Millisecond
)

// heapGrowth returns the percentage by which a heap with the given number of live bytes may grow. held is the number of
// live bytes that belong to the engine.
func heapGrowth(live, held int64) int {
	if live <= 0 {
		return usualGrowth
	}
	own := max(0, live-held)
	return int(max(leastGrowth, usualGrowth*min(own, max(fullGrowth, own/3))/live))
}

// tuneGC adjusts Go's GC percentage after each collection until ctx ends. It does nothing if the environment variable
// GOGC is set.
func tuneGC(ctx context.Context, held func() int64, set func(percent int) int) {
	if os.Getenv("GOGC") != "" {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for percent := usualGrowth; ; {
		select {
		case <-ctx.Done():
			return
		case <-waitCollected():
		}
		metrics.Read(live)
		if p := heapGrowth(int64(live[0].Value.Uint64()), held()); p != percent {
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

// waitCollected returns a channel that is closed after the next garbage collection.
func waitCollected() <-chan struct{} {
	done := make(chan struct{})
	runtime.AddCleanup(&struct{ _ [64]byte }{}, func(done chan struct{}) { close(done) }, done)
	return done
}
