package main

import (
	"context"
	"time"
)

// Go collects garbage at least every two minutes, and returns the memory to the system one collection later. Without
// giveBack, an idle process that has sealed hundreds of megabytes would keep this memory for four minutes.
const (
	// giveBackInterval is the interval between checks of the head's size.
	giveBackInterval = 5 * time.Second
	// giveBackAfter is the number of consecutive checks at which the head must have been small. A backfill empties the
	// head repeatedly and needs the memory again soon after.
	giveBackAfter = 3
	// giveBackLeast is the min decrease of the head's size at which memory is returned, in bytes.
	giveBackLeast = 64 << 20
)

// giveBack checks the head's size at each tick until ctx ends. held returns the size in bytes. The head counts as small
// if it has shrunk to at most half of its max size since the last call of free, and by at least giveBackLeast. If the
// head was small at giveBackAfter consecutive checks, giveBack calls free.
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
