//go:build unix

package backups

import (
	"os"
	"syscall"
)

// giveTo makes the owner of a directory that of a file in it, where root made the file: a server that runs as another user locks
// and removes it.
func giveTo(dir, path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if of, ok := info.Sys().(*syscall.Stat_t); ok && of.Uid != 0 {
		return os.Lchown(path, int(of.Uid), int(of.Gid))
	}
	return nil
}
