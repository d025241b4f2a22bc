//go:build unix

package backups

import (
	"os"
	"syscall"
)

// giveTo changes the owner of a file created by root to the owner of its directory. Otherwise a server that runs as
// that user couldn't lock and remove the file.
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
