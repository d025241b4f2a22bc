package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// server is a measured system whose data is in a folder.
type server interface {
	program(address string) (promrig.Program, error)
}

// maxSamples is the limit on samples per query in both systems. The queries read more than the default of 50 million.
const maxSamples = "1000000000"

type prometheusServer struct{ path, dir string }

func (s prometheusServer) program(address string) (promrig.Program, error) {
	return promrig.Prometheus(s.path, s.dir, address, "global: {scrape_interval: 1m}\n",
		"--storage.tsdb.retention.time=10y", "--query.max-samples="+maxSamples)
}

type cassiaServer struct{ path, dir string }

func (s cassiaServer) program(address string) (promrig.Program, error) {
	return promrig.Cassia(s.path, s.dir, address, "--retention.raw=0", "--query.max-samples="+maxSamples), nil
}

// cpuOf returns the CPU time of a process' threads, as counted by the scheduler. /proc/…/stat isn't used because it
// counts in hundredths of a second, which is too coarse. Threads that have exited aren't counted, but Go's runtime
// keeps its threads. cpuOf requires Linux.
func cpuOf(pid int) (time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // The thread has ended.
		}
		first, _, _ := strings.Cut(string(text), " ")
		ns, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("rollups: %s: %w", file, err)
		}
		sum += time.Duration(ns)
	}
	if sum == 0 {
		return 0, fmt.Errorf("rollups: the kernel doesn't tell what process %d has used", pid)
	}
	return sum, nil
}

// A server counts as idle after two consecutive intervals of quietEvery with less than quietShare of a core.
const (
	quietEvery = 300 * time.Millisecond
	quietShare = 0.04
	quietWait  = time.Minute
)

// quiet waits until a server is idle, but at most quietWait.
func quiet(ctx context.Context, pid int) error {
	before, err := cpuOf(pid)
	if err != nil {
		return err
	}
	for calm, end := 0, time.Now().Add(quietWait); calm < 2 && time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(quietEvery):
		}
		after, err := cpuOf(pid)
		if err != nil {
			return err
		}
		if calm++; (after - before).Seconds() > quietShare*quietEvery.Seconds() {
			calm = 0
		}
		before = after
	}
	return nil
}

// warm reads all files below a folder into the page cache.
func warm(dir string) error {
	buffer := make([]byte, 1<<20)
	return filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		for {
			if n, err := f.Read(buffer); n == 0 || err != nil {
				return nil //nolint:nilerr // The file has ended, or it will be read from the disk later.
			}
		}
	})
}
