package main

import (
	"context"
	"time"
)

// Go collects garbage at least every two minutes and returns memory to the system one collection later. A process that
// has sealed hundreds of megabytes and is idle would keep them for four minutes.
const (
	// giveBackInterval is the interval between checks of the head's size.
	giveBackInterval = 5 * time.Second
	// giveBackAfter is the number of consecutive checks for which the head must have been small. A backfill empties the
	// head repeatedly and needs the memory again at once.
	giveBackAfter = 3
	// giveBackLeast is the min decrease of the head's size, in bytes.
	giveBackLeast = 64 << 20
)

// giveBack calls free when the head has shrunk by half and by giveBackLeast, and has stayed small for giveBackAfter
// checks. held returns the head's size in bytes, which is checked at each tick until ctx ends.
func giveBack(ctx context.Context, ticks <-chan time.Time, held func() int64, free func()) {
	most, small := int64(0), 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
		now := held()
		most = max(most, now)
		if small++; now > most/2 || most-now < giveBackLeast {
			small = 0
		}
		if small >= giveBackAfter {
			free()
			most, small = now, 0
		}
	}
}
