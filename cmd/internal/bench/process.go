package bench

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Usage is the resource usage of a process on this machine.
type Usage struct {
	// CPU is the user and system time since the process started.
	CPU time.Duration
	// RSS is the current resident memory and PeakRSS its max, in bytes.
	RSS, PeakRSS int64
}

// ProcessUsage reads the resource usage of a process from its CPU clock and from /proc (Linux).
func ProcessUsage(pid int) (Usage, error) {
	var u Usage
	var cpu unix.Timespec
	if err := unix.ClockGettime(cpuClock(pid), &cpu); err != nil {
		return u, fmt.Errorf("bench: CPU time of process %d: %w", pid, err)
	}
	u.CPU = time.Duration(cpu.Nano())
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
		if err != nil {
			continue
		}
		switch name {
		case "VmRSS":
			u.RSS = kb * 1024
		case "VmHWM":
			u.PeakRSS = kb * 1024
		}
	}
	return u, nil
}

// cpuClock returns the clock ID of the CPU time of all threads of a process, as clock_getcpuclockid(3) does: the lowest
// three bits are 2 (CPUCLOCK_SCHED), and the other bits are the complement of the process ID.
func cpuClock(pid int) int32 { return int32(^pid)<<3 | 2 }

// DirBytes returns the disk usage of the files below dir. Files that are deleted concurrently don't count.
func DirBytes(dir string) (int64, error) {
	var total int64
	err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		total += info.Size()
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			total += stat.Blocks*512 - info.Size()
		}
		return nil
	})
	return total, err
}
