package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// elapsed is how long the machine has run, however its clock was set. It counts the time in which the machine sleeps,
// which Go's monotonic clock doesn't.
func elapsed() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return time.Since(processStart)
	}
	return time.Duration(now.Nano())
}
