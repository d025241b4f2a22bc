package main

import (
	"context"
	"time"
)

// Go collects garbage at least every two minutes and returns memory to the system one collection later, so a process that has sealed
// hundreds of megabytes and rests would keep them for four minutes.
const (
	// giveBackInterval is between two looks at the head.
	giveBackInterval = 5 * time.Second
	// giveBackAfter is for how many looks the head must have been small: a backfill empties it again and again, and needs the
	// memory at once.
	giveBackAfter = 3
	// giveBackLeast is by how much the head must have become smaller, bytes.
	giveBackLeast = 64 << 20
)

// giveBack calls free when the head, of which held returns the bytes, has become smaller by half and by giveBackLeast, and stayed so for
// giveBackAfter looks. A look is taken at each tick, until ctx ends.
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
