package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// sealing is the function that does all of sealing, rollups included, and rollingUp those that are there for rollups.
const sealing = "storage.(*Store).SealAll"

var rollingUp = []string{"storage.(*sealer).rollup", "storage.(*sealer).build"}

var errProfile = errors.New("rollups: the CPU profile doesn't show the sealer")

// shareOfRollups returns which share of sealing a CPU profile shows in code for rollups, 0 to 1.
func shareOfRollups(ctx context.Context, file string) (float64, error) {
	cmd := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", "-cum", "-unit=ms", "-nodecount=100000", "-nodefraction=0", "-edgefraction=0", file)
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("rollups: go tool pprof %s: %w", file, err)
	}
	return shareIn(out)
}

// shareIn reads the output of go tool pprof -top -cum: flat, flat%, sum%, cum, cum%, name.
func shareIn(top []byte) (float64, error) {
	cum := map[string]time.Duration{}
	lines := bufio.NewScanner(bytes.NewReader(top))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 {
			continue
		}
		ms, err := strconv.ParseFloat(strings.TrimSuffix(fields[3], "ms"), 64)
		if err != nil {
			continue
		}
		name := fields[5]
		cum[name[strings.LastIndexByte(name, '/')+1:]] = time.Duration(ms * float64(time.Millisecond))
	}
	if cum[sealing] == 0 {
		return 0, errProfile
	}
	var rollups time.Duration
	for _, name := range rollingUp {
		rollups += cum[name]
	}
	return rollups.Seconds() / cum[sealing].Seconds(), lines.Err()
}
