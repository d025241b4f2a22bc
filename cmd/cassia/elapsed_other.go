//go:build !linux

package main

import "time"

// elapsedTime returns the time since the process was started. It is unaffected by changes to the system clock. On
// systems where it excludes the time during which the machine was suspended, a suspension is treated like a jump of the
// clock.
func elapsedTime() time.Duration { return time.Since(processStart) }
