//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package pebble

import (
	"os"
	"syscall"
)

// blocksOf returns the bytes of a file's blocks.
func blocksOf(info os.FileInfo) (uint64, bool) {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(stat.Blocks) * 512, true
	}
	return 0, false
}
