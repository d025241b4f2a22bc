//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package pebble

import "os"

// blocksOf isn't known on this system.
func blocksOf(os.FileInfo) (uint64, bool) { return 0, false }
