package bench

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ticksPerSecond is the unit of CPU times in /proc: USER_HZ, 100 on every Linux.
const ticksPerSecond = 100

// Usage is what a process of this machine has used.
type Usage struct {
	// CPU is user and system time since it began.
	CPU time.Duration
	// RSS is its memory now, PeakRSS the most that it ever had, bytes.
	RSS, PeakRSS int64
}

// ProcessUsage reads what the process uses, from /proc (Linux).
func ProcessUsage(pid int) (Usage, error) {
	var u Usage
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	// The name in the second field may hold spaces and brackets; the last bracket ends it.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return u, fmt.Errorf("bench: /proc/%d/stat is too short", pid)
	}
	for _, field := range fields[11:13] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return u, err
		}
		u.CPU += time.Duration(ticks) * time.Second / ticksPerSecond
	}
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

// DirBytes is the room that the files below dir take on disk. Files that vanish meanwhile count as nothing.
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
