package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// elapsed returns the time since the machine was booted, independent of changes to its clock. It includes the time
// during which the machine was suspended, which Go's monotonic clock doesn't.
func elapsed() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return time.Since(processStart)
	}
	return time.Duration(now.Nano())
}
