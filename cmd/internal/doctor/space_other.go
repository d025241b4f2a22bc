//go:build !linux && !darwin

package doctor

// space returns 0, 0, because this system doesn't report the free space.
func space(string) (free, total int64) { return 0, 0 }
