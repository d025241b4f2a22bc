//go:build !linux

package main

import "time"

// elapsed returns the time since the process was started, independent of changes to the clock. On systems where this
// excludes the time during which the machine was suspended, a suspension looks like a clock that jumped.
func elapsed() time.Duration { return time.Since(processStart) }
