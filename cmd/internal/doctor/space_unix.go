//go:build linux || darwin

package doctor

import "syscall"

// space returns how many bytes of the file system that path lies in are free for this user, and how many there are.
func space(path string) (free, total int64) {
	var st syscall.Statfs_t
	if syscall.Statfs(path, &st) != nil {
		return 0, 0
	}
	return int64(st.Bavail) * int64(st.Bsize), int64(st.Blocks) * int64(st.Bsize)
}
