//go:build !linux

package promql

// anonymousMemory returns 0: the anonymous memory isn't available.
func anonymousMemory() uint64 { return 0 }
