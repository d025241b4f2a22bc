//go:build linux || darwin

package doctor

import "syscall"

// freeSpace returns the free bytes for this user and the total bytes of the file system that contains path.
func freeSpace(path string) (free, total int64) {
	var st syscall.Statfs_t
	if syscall.Statfs(path, &st) != nil {
		return 0, 0
	}
	return int64(st.Bavail) * int64(st.Bsize), int64(st.Blocks) * int64(st.Bsize)
}
