package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// elapsedTime returns the time since the machine was booted. It is unaffected by changes to the system clock and,
// unlike Go's monotonic clock, includes the time during which the machine was suspended.
func elapsedTime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return time.Since(processStart)
	}
	return time.Duration(now.Nano())
}
