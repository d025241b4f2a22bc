//go:build !linux && !darwin

package doctor

// space returns 0, 0, because the free space can't be read on this system.
func space(string) (free, total int64) { return 0, 0 }
