//go:build !linux

package main

import "time"

// elapsed is how long the process has run, however the clock was set. Where that leaves out the time in which the
// machine sleeps, that looks like a clock that leapt.
func elapsed() time.Duration { return time.Since(processStart) }
